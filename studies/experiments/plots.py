"""Small figures, where matplotlib (the extra ``plots``) is installed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any


def can_draw() -> bool:
    """Whether matplotlib is installed; says how to get it if it is not."""
    found = find_spec("matplotlib") is not None
    if not found:
        print("matplotlib is not installed (.venv/bin/pip install -e '.[plots]'): there is no figure")
    return found


@contextmanager
def figure(path: Path, *, columns: int = 1, lines: int = 1) -> Iterator[list[Any]]:
    """Yield the axes, line by line, of a figure that is written to ``path`` afterwards.

    The same data make the same bytes: no date, and no ids that are drawn.
    """
    from matplotlib import rc_context  # noqa: PLC0415 - an extra
    from matplotlib.figure import Figure  # noqa: PLC0415 - this way no display is needed

    made = Figure(figsize=(4.5 * columns, 3.4 * lines), layout="constrained")
    axes = made.subplots(lines, columns, squeeze=False)
    yield list(axes.flat)
    with rc_context({"svg.hashsalt": "shortlist", "svg.fonttype": "none"}):
        made.savefig(path, dpi=80, metadata={"Date": None} if path.suffix == ".svg" else None)
