"""The picture of `shortlist reproduce figure1-sampling`; needs the extra ``plots``.

One row of panels a number of states: errors against delta, and the share of factors read, for every sigma.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from app.errors import ShortlistError

COLOURS = {"racing_normal": "tab:blue", "racing_ebs": "tab:orange", "lil_ucb": "tab:green"}
MARKERS = {"normal": "x", "uniform": "o", "lognormal": "s"}
DRAWN = ("racing_normal pairwise", "racing_ebs pairwise", "lil_ucb heuristic")


def save(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Write the figure. Raises ShortlistError when matplotlib is not installed."""
    try:
        from matplotlib.figure import Figure  # noqa: PLC0415 - an extra
    except ImportError:
        raise ShortlistError("a picture needs matplotlib: pip install 'shortlist[plots]'") from None
    states = sorted({row["D"] for row in rows})
    sigmas = sorted({row["sigma"] for row in rows}, reverse=True)
    figure = Figure(figsize=(2.6 * len(sigmas), 4.2 * len(states)), layout="constrained")
    panels = figure.subplots(2 * len(states), len(sigmas), squeeze=False)
    for place, count in enumerate(states):
        for column, sigma in enumerate(sigmas):
            here = [row for row in rows if (row["D"], row["sigma"]) == (count, sigma)]
            _errors(panels[2 * place][column], here)
            _reads(panels[2 * place + 1][column], here)
            panels[2 * place][column].set_title(f"D = {count}, sigma = {sigma:g}", fontsize=8)
    figure.savefig(path, dpi=75)


def _lines(rows: Sequence[Mapping[str, Any]], value: str) -> list[tuple[list[float], list[float], str, str]]:
    """The curves of one panel: delta, value, colour, marker."""
    found = []
    for method in DRAWN:
        for rewards, marker in MARKERS.items():
            some = [row for row in rows if (row["method"], row["rewards"]) == (method, rewards)]
            some.sort(key=lambda row: float(row["delta"]))
            deltas, values = [row["delta"] for row in some], [row[value] for row in some]
            found.append((deltas, values, COLOURS[method.split()[0]], marker))
    return found


def _errors(panel: Any, rows: Sequence[Mapping[str, Any]]) -> None:
    """Errors that occurred, and delta itself; the others are below what the runs can show."""
    panel.plot([1e-3, 0.1], [1e-3, 0.1], color="black", linewidth=0.7)
    for deltas, errors, colour, marker in _lines(rows, "error"):
        seen = [(delta, error) for delta, error in zip(deltas, errors, strict=True) if error > 0.0]
        if seen:
            panel.plot(*zip(*seen, strict=True), color=colour, marker=marker, markersize=4, linewidth=0.8)
    panel.set(xscale="log", yscale="log", ylim=(2e-4, 0.3), ylabel="error")
    panel.tick_params(labelsize=6)


def _reads(panel: Any, rows: Sequence[Mapping[str, Any]]) -> None:
    for deltas, shares, colour, marker in _lines(rows, "reads"):
        panel.plot(deltas, shares, color=colour, marker=marker, markersize=4, linewidth=0.8)
    panel.set(xscale="log", yscale="log", ylim=(2e-4, 1.5), xlabel="delta", ylabel="reads / (N D)")
    panel.tick_params(labelsize=6)
