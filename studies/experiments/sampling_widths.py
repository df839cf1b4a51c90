"""`shortlist reproduce figure1e-sampling`: Figure 1(e), the widths of the samplers after T of N factors.

Notation
    N, T        size of the population, factors read
    sigma, C    standard deviation of the rewards, their range
    G(T)        how far the mean of one arm is allowed to be off, here over sigma

Racing-Normal needs sigma alone. The others need C as well: that of a sample of 100,000 from each of the
paper's distributions. The print shows one curve a method, and does not say of which distribution.

Source: Chen and Ghahramani, "Scalable Discrete Sampling as a Multi-Armed Bandit Problem", Figure 1(e).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from shortlist.sampling.lil_ucb import Setting, constants_of
from shortlist.sampling.race import doubling
from shortlist.sampling.racing_ebs import ebs_rules
from shortlist.sampling.racing_normal import FIRST, normal_rules
from studies.experiments.plots import can_draw, figure
from studies.experiments.sampling_figure import REWARDS, SEED, SIZE, population
from studies.measurement import report

DELTA = 0.1
LINES = {"normal": "-", "uniform": "--", "lognormal": ":"}
COLOURS = {
    "racing_normal": "tab:blue",
    "racing_ebs": "tab:orange",
    "lil_ucb heuristic": "tab:green",
    "lil_ucb safe": "tab:red",
}


def run(name: str, quick: bool, data: Path | None) -> dict[str, Any]:  # noqa: ARG001 - of every reproduction
    """Print and return the widths of every method at every T of the doubling schedule. It takes seconds."""
    rows = [row for rewards in REWARDS for row in lines(rewards)]
    if can_draw():
        print(f"figure: {draw(rows, Path(f'{name}.png'))}")
    return report(name, rows, seed=SEED)


def lines(rewards: str) -> Iterator[dict[str, Any]]:
    """The rows of one distribution of rewards, of standard deviation 1."""
    spread = np.ptp(population(rewards, 1, SIZE), axis=0)
    one = np.ones(1)
    normal = normal_rules(1, SIZE, delta=DELTA, variance="pairwise", first=FIRST)
    bernstein = ebs_rules(spread, SIZE, delta=DELTA, variance="pairwise", first=FIRST)
    settings: tuple[Setting, ...] = ("heuristic", "safe")
    for t in doubling(FIRST, SIZE)[:-1]:
        widths = {
            "racing_normal": float(normal.width(t, one, spread)[0]),
            "racing_ebs": float(bernstein.width(t, one, spread)[0]),
        }
        for setting in settings:
            half = float(spread[0]) / 2.0
            widths[f"lil_ucb {setting}"] = half * constants_of(setting, DELTA, 1).width(t)
        yield {"rewards": rewards, "T": t, **widths}


def draw(rows: Sequence[Mapping[str, Any]], path: Path) -> Path:
    """Draw the widths against T; that of Racing-Normal is the same for all distributions."""
    with figure(path) as (axes,):
        for method, colour in COLOURS.items():
            for rewards, line in LINES.items():
                some = [row for row in rows if row["rewards"] == rewards]
                label = method if rewards == "normal" else None
                axes.plot(
                    [row["T"] for row in some],
                    [row[method] for row in some],
                    line,
                    color=colour,
                    label=label,
                    linewidth=1.2,
                )
        axes.set(xscale="log", yscale="log", xlabel="T", ylabel="G(T) / sigma")
        axes.set_title("normal -, uniform --, lognormal :", fontsize=9)
        axes.legend(fontsize=7)
    return path
