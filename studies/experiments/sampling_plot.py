"""The pictures of `shortlist reproduce figure1-sampling`: errors against delta, and the share of reads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from shortlist.sampling.race import Variance
from studies.experiments.plots import figure

COLOURS = {"racing_normal": "tab:blue", "racing_ebs": "tab:orange", "lil_ucb": "tab:green"}
MARKERS = {"normal": "x", "uniform": "o", "lognormal": "s"}

Curve = tuple[Sequence[Mapping[str, Any]], dict[str, Any]]


def draw(
    rows: Sequence[Mapping[str, Any]], states: int, path: Path, *, variance: Variance = "pairwise"
) -> Path:
    """Draw the rows of one number of states; a column of panels for every sigma.

    ``variance``: of the races that are drawn. lil'UCB is drawn in its heuristic setting.
    """
    settings = {"racing_normal": variance, "racing_ebs": variance, "lil_ucb": "heuristic"}
    sigmas = sorted({row["sigma"] for row in rows}, reverse=True)
    with figure(path, columns=len(sigmas), lines=2) as panels:
        for column, sigma in enumerate(sigmas):
            here = [row for row in rows if (row["D"], row["sigma"]) == (states, sigma)]
            upper, lower = panels[column], panels[len(sigmas) + column]
            upper.plot([1e-3, 0.1], [1e-3, 0.1], color="black", linewidth=0.7, label="delta")
            for curve, style in _curves(here, settings):
                # Where nothing went wrong the error is below what the runs can show.
                seen = [row for row in curve if row["error"] > 0.0]
                upper.plot([row["delta"] for row in seen], [row["error"] for row in seen], **style)
                lower.plot([row["delta"] for row in curve], [row["reads"] for row in curve], **style)
            upper.set(xscale="log", yscale="log", ylim=(5e-4, 0.3), ylabel="error")
            upper.set_title(f"D = {states}, sigma = {sigma:g}")
            lower.set(xscale="log", yscale="log", ylim=(2e-4, 1.5), xlabel="delta", ylabel="reads / (N D)")
        panels[-1].legend(fontsize=6, loc="lower left")
    return path


def _curves(rows: Sequence[Mapping[str, Any]], settings: Mapping[str, str]) -> Iterator[Curve]:
    """The rows of one method and reward distribution by delta, and how to draw them."""
    for method, colour in COLOURS.items():
        for rewards, marker in MARKERS.items():
            wanted = f"{method} {settings[method]}", rewards
            some = [row for row in rows if (row["method"], row["rewards"]) == wanted]
            style = {"color": colour, "marker": marker, "markersize": 4, "linewidth": 0.8}
            style["label"] = f"{method}, {rewards}"
            yield sorted(some, key=lambda row: float(row["delta"])), style
