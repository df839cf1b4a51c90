"""`shortlist reproduce slates-figures`: Figures 1 to 3 of the full-bandit paper.

1   how near the approximations come to the exact maxima, in the first 100,000 rounds
2   time of one stopping test against n
3   samples until the stop, against the gap

The print's n, k and gaps are lost; those here are of the size that Exhaustive can do. Its findings: ratios
"almost always" high, about 0.95 for SA-FOA at the small gap; Exhaustive prohibitive; samples "comparable".
"""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Any

import numpy as np

from shortlist.slates import ask_tell, exhaustive, icb, sa_foa, saqm
from shortlist.slates.campaign_state import SlateMethod, next_look
from shortlist.slates.certified_bounds import upper_bound
from shortlist.slates.densest_k_subgraph import densest_k_subgraph
from shortlist.slates.least_squares import Fit, fit
from shortlist.slates.matroids import UniformMatroid
from shortlist.slates.widths import Bound, Look
from shortlist.types import Matrix, Vector
from shortlist_client.progress import progress
from studies.experiments.plots import can_draw
from studies.experiments.slate_bounds import Instances
from studies.experiments.slate_instances import DELTA, MOST, mean_samples, normal, play, synthetic
from studies.experiments.slate_plot import draw
from studies.measurement import report

SEED = 2020
METHODS: tuple[tuple[SlateMethod, Bound], ...] = (
    ("exhaustive", "certified"),
    ("sa_foa", "certified"),
    ("icb", "certified"),
    ("saqm", "certified"),
    ("exhaustive", "paper"),
    ("sa_foa", "paper"),
    ("icb", "paper"),
    ("saqm", "paper"),
)
SIZES = (10, 15, 20, 24, 50, 100, 200)
INSTANCES = Instances()


def run(name: str, quick: bool, data: Path | None) -> dict[str, Any]:  # noqa: ARG001 - as all reproductions
    """Print the three figures as tables; return all rows, each with its figure."""
    rows = [*precision(10_000 if quick else 100_000, INSTANCES), *times(SIZES[: 5 if quick else None])]
    rows += samples(2 if quick else 10, 200_000 if quick else MOST, INSTANCES)
    for figure in (1, 2):
        print(f"\nFigure {figure}")
        report(name, [_without_figure(row) for row in rows if row["figure"] == figure], seed=SEED)
    print("\nFigure 3: mean samples until the stop; - is more than were tried")
    record = report(name, [_without_figure(row) for row in rows if row["figure"] == 3], seed=SEED)
    if can_draw():
        print(f"figure: {draw(rows, Path(f'{name}.svg'))}")
    return {**record, "rows": rows}


def _without_figure(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name != "figure"}


def precision(rounds: int, instances: Instances) -> list[dict[str, Any]]:
    """Figure 1: each approximation over the exact maximum, at looks up to ``rounds``; the additive error."""
    rows, n, k = [], instances.n, instances.k
    for gap in (instances.gaps[0], instances.gaps[-1]):
        theta = synthetic(n, k, gap, np.random.default_rng(SEED))
        state = sa_foa.start(
            n=n, k=k, epsilon=0.5, delta=DELTA, noise_std=1.0, reach=None, allocation="g", bound="paper",
            seed=SEED, matroid=None,
        )  # fmt: skip
        slates = ask_tell.slates_of(state, np.arange(rounds))
        totals = normal(1.0, np.random.default_rng(SEED + 1))(theta[slates])
        found = []
        for look, at in enumerate(_looks(4 * n, rounds), start=1):
            A, b = _sums(slates[:at], totals[:at], n)
            estimate = fit(A, b, UniformMatroid(n, k))
            if estimate is not None:
                look_at = Look(1.0, DELTA, "paper", at, look)
                found.append(_ratios(estimate, look_at, state.design.support, k))
        table = np.array(found)
        for place, label in enumerate(("least", "mean", "greatest")):
            values = (np.nanmin(table, axis=0), np.nanmean(table, axis=0), np.nanmax(table, axis=0))[place]
            columns = ("saqm_ratio", "saqm_bound", "sa_foa_ratio", "sa_foa_error", "sa_foa_bound")
            rows.append(
                {"figure": 1, "gap": gap, "looks": label, **dict(zip(columns, values.tolist(), strict=True))}
            )
    return rows


def _looks(first: int, rounds: int) -> list[int]:
    looks = [first]
    while next_look(looks[-1]) <= rounds:
        looks.append(next_look(looks[-1]))
    return looks


def _sums(slates: np.ndarray[Any, np.dtype[np.int64]], totals: Vector, n: int) -> tuple[Matrix, Vector]:
    chi = np.zeros((len(slates), n))
    np.put_along_axis(chi, slates, 1.0, axis=1)
    return chi.T @ chi, chi.T @ totals


def _ratios(
    found: Fit, look: Look, support: np.ndarray[Any, np.dtype[np.int64]], k: int
) -> tuple[float, ...]:
    """Norms and values over the exact ones: approximation, certified bound; additive error of SA-FOA.

    The value of M^ itself is 0, and not counted as an approximation of a maximum below it.
    """
    chi = exhaustive.all_slates(len(found.W), k)
    longest = math.sqrt(float(((chi @ found.W) * chi).sum(axis=1).max()))
    slate = densest_k_subgraph(found.W, k)
    reached = math.sqrt(float(found.W[np.ix_(slate, slate)].sum()))
    exact = exhaustive.excess(found, look).value
    value = sa_foa.heuristic(found, look, support).value
    certified = sa_foa.excess(found, look).value
    bound = math.sqrt(upper_bound(found.W, k))
    if exact <= 0.0:  # certain by far: no ratio tells anything
        return reached / longest, bound / longest, math.nan, math.nan, math.nan
    return reached / longest, bound / longest, value / exact, exact - value, certified / exact


def times(sizes: tuple[int, ...]) -> list[dict[str, Any]]:
    """Figure 2: milliseconds of one test after 20 n results, k = n / 5, the least of five."""
    rows = []
    for n in progress(sizes, "values of n"):
        k = max(n // 5, 2)
        estimate = _estimate(n, k)
        row: dict[str, Any] = {"figure": 2, "n": n, "k": k, "slates": f"{math.comb(n, k):.1e}"}
        for method, test in (("saqm", saqm), ("sa_foa", sa_foa), ("icb", icb), ("exhaustive", exhaustive)):
            row[f"{method}_ms"] = None
            if method != "exhaustive" or math.comb(n, k) <= exhaustive.MOST_SLATES:
                row[f"{method}_ms"] = _least_ms(test, estimate, Look(1.0, DELTA, "certified", 20 * n, 20))
        rows.append(row)
    return rows


def _estimate(n: int, k: int) -> Fit:
    rng = np.random.default_rng(SEED)
    slates = np.array([rng.permutation(n)[:k] for _ in range(20 * n)])
    found = fit(*_sums(slates, rng.standard_normal(len(slates)), n), UniformMatroid(n, k))
    assert found is not None  # noqa: S101 - 20 n random slates
    return found


def _least_ms(test: Any, estimate: Fit, look: Look) -> float:
    taken = []
    for _ in range(5):
        started = time.perf_counter()
        test.excess(estimate, look)
        taken.append(time.perf_counter() - started)
    return 1_000.0 * min(taken)


def samples(seeds: int, most: int, instances: Instances) -> list[dict[str, Any]]:
    """Figure 3: mean samples of every method on the same instances, G-allocation as in the paper."""
    rows = []
    for method, bound in progress(METHODS, "methods"):
        row: dict[str, Any] = {"figure": 3, "method": method, "bound": bound}
        wrong = 0
        for gap in instances.gaps:
            played = []
            for seed in range(seeds):
                theta = synthetic(instances.n, instances.k, gap, np.random.default_rng((SEED, seed)))
                draw = normal(1.0, np.random.default_rng((SEED, seed, 1)))
                state = instances.begin(method, seed, bound=bound, allocation="g")
                played.append(play(state, theta, draw, most=most))
                if played[-1].samples is None:
                    break
            wrong += sum(one.lost > 0.5 for one in played)
            row[f"gap {gap}"] = mean_samples(played)
        rows.append({**row, "not within epsilon": wrong})
    return rows
