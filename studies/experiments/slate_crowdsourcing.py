"""`shortlist reproduce slates-crowdsourcing`: Table 2 of the full-bandit paper, on instances like its data.

The crowdsourcing data of Li et al. is not available. Its sizes are: n workers, their average accuracy and the
best one's. Accuracies are drawn from a Beta law and brought to that average and best; a total is the number
of right answers of k workers. k, epsilon and delta are lost in the print: 10, 0.5 and 0.05 here. So orders of
magnitude can be compared, and which method needs fewest; no more.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from shortlist.slates.campaign_state import SlateMethod
from shortlist.slates.widths import Bound
from shortlist.types import Matrix, Vector
from shortlist_client.progress import progress
from studies.experiments.slate_instances import Draw, begin, mean_samples, play
from studies.measurement import report

SEED = 2020
# Name, workers, average and best accuracy, printed samples of ICB, SAQM, SA-FOA.
TASKS = (
    ("IT", 36, 0.54, 0.84, (46_658, 68_328, 3_421)),
    ("Medicine", 45, 0.48, 0.92, (73_337, 86_252, 3_493)),
    ("Chinese", 50, 0.37, 0.79, (105_214, 110_504, 4_949)),
    ("Pokemon", 55, 0.28, 1.00, (20_943, 91_423, 3_050)),
    ("English", 63, 0.26, 0.70, (118_587, 131_512, 9_313)),
    ("Science", 111, 0.29, 0.85, (362_558, 291_773, 15_611)),
)
PLAYED: tuple[tuple[SlateMethod, Bound], ...] = (
    ("icb", "certified"),
    ("saqm", "certified"),
    ("sa_foa", "certified"),
    ("icb", "paper"),
    ("sa_foa", "paper"),
)


def run(
    name: str,
    quick: bool,
    data: Path | None,  # noqa: ARG001 - as all reproductions
    *,
    k: int = 10,
    tasks: Sequence[tuple[str, int, float, float, tuple[int, ...]]] = TASKS,
    methods: Sequence[tuple[SlateMethod, Bound]] = PLAYED,
) -> dict[str, Any]:
    """Print mean samples beside the printed ones. SAQM with Theorem 1's ratio needs more than a million."""
    rows = []
    for task, n, average, best, printed in progress(tasks[: 3 if quick else None], "tasks"):
        row: dict[str, Any] = {"task": task, "n": n, "slates": f"{math.comb(n, k):.1e}"}
        row |= dict(zip(("icb printed", "saqm printed", "sa_foa printed"), printed, strict=True))
        wrong = 0
        for method, bound in methods:
            played = []
            for seed in range(2 if quick else 5):
                theta = accuracies(n, average, best, np.random.default_rng((SEED, n, seed)))
                draw = right_answers(np.random.default_rng((SEED, n, seed, 1)))
                # A right answer is 1/2-sub-Gaussian (Hoeffding), and workers answer independently.
                state = begin(method, n, k, noise_std=math.sqrt(k) / 2.0, seed=seed, bound=bound)
                played.append(play(state, theta, draw))
            row[method if bound == "certified" else f"{method} bound=paper"] = mean_samples(played)
            wrong += sum(one.lost > 0.5 for one in played)
        rows.append({**row, "not within epsilon": wrong})
    return report(name, rows, seed=SEED)


def accuracies(n: int, average: float, best: float, rng: np.random.Generator) -> Vector:
    """N accuracies with this average and this maximum."""
    drawn: Vector = rng.beta(2.0, 2.0 * (best - average) / average, n)
    drawn /= drawn.max()
    for _ in range(50):  # a power moves the mean and leaves the maximum
        drawn **= math.log(average / best) / math.log(float(drawn.mean()))
    return best * drawn


def right_answers(rng: np.random.Generator) -> Draw:
    """The number of workers of a slate who are right."""

    def draw(means: Matrix) -> Vector:
        right: Vector = (rng.random(means.shape) < means).sum(axis=1).astype(np.float64)
        return right

    return draw
