"""Regret over time of tables 1 to 5, drawn from the record of a reproduction."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from studies.experiments.plots import figure

COLUMNS = 2
BASELINE, SHORT = {"color": "0.6", "linewidth": 3.0}, {"linewidth": 1.0}


def write(record: dict[str, Any], folder: Path) -> list[Path]:
    """Write NAME.png and NAME.svg where matplotlib is installed; else say so, and write nothing."""
    if find_spec("matplotlib") is None:
        print("matplotlib is not installed (.venv/bin/pip install -e '.[plots]'): there is no figure")
        return []
    paths = [folder / f"{record['benchmark']}.{kind}" for kind in ("png", "svg")]
    for path in paths:
        draw(record, path)
        print(f"figure: {path}")
    return paths


def draw(record: dict[str, Any], path: Path) -> None:
    """A panel for each environment and kind of policy: mean regret after each part of the steps."""
    panels: dict[tuple[str, bool], list[dict[str, Any]]] = {}
    for curve in record["curves"]:
        panels.setdefault((curve["title"], "elim" in curve["label"]), []).append(curve)
    with figure(path, columns=COLUMNS, lines=-(-len(panels) // COLUMNS)) as axes:
        for place in axes[len(panels) :]:
            place.axis("off")
        for place, ((title, _), curves) in zip(axes, panels.items(), strict=False):
            for curve in curves:
                steps = np.arange(1, len(curve["mean"]) + 1) * record["steps"] / len(curve["mean"])
                style = BASELINE if curve["label"].startswith("linear") else SHORT
                place.plot(steps, curve["mean"], label=curve["label"], **style)
            place.set(title=title, xlabel="step", ylabel="regret", ylim=(0, None))
            place.legend()
