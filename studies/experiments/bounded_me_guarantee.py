"""`shortlist reproduce figure1-bounded-me`: how far BoundedME is from the best arm, against epsilon.

Notation
    n, N        10^4 arms of 10^5 rewards, 0 or 1; an arm's mean is uniform on [0, 1]
    adversarial the ones of an arm are returned before its zeros, as in the paper: not in random order, so
                outside of what the theorem promises
    random      rewards in random order, each arm by itself

Nothing is stored but how many ones an arm has: a pull returns their number among the next rewards.

Source: Liu, Wu, Mozafari, "A Bandit Approach to Maximum Inner Product Search", Figure 1.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import numpy as np

from shortlist.mips.answer import Objective
from shortlist.mips.bounded_me import RoundPlan, bounded_me
from shortlist.mips.columns import Bounds
from shortlist.mips.read_costs import READS_ALONE, ReadCosts
from shortlist.types import Rows, Vector
from shortlist_client.progress import progress
from studies.experiments.plots import figure
from studies.measurement import report

SEED = 7
DELTAS = (0.01, 0.05, 0.1, 0.2, 0.3)
EPSILONS = (0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.55, 0.6)
RUNS, QUICK_RUNS = 20, 4
# The print has both orders. One sample of all arms needs the random order that the lemma assumes.
CASES: tuple[tuple[Order, RoundPlan], ...] = (
    ("adversarial", "printed"),
    ("random", "printed"),
    ("random", "sampled"),
)

Order = Literal["adversarial", "random"]


@dataclass(eq=False)
class Coins:
    """``Rewards`` of arms with ``ones`` (n,) rewards of 1 among N, the others 0."""

    ones: Rows
    dim: int
    order: Order
    rng: np.random.Generator
    objective: Objective = "inner_product"
    bounds: Bounds = field(default_factory=lambda: Bounds(1.0, 1.0))
    noise: float = 0.0
    sum_noise: float = 0.0
    whole_noise: float = 0.0
    costs: ReadCosts = READS_ALONE
    violated: bool = False

    def __post_init__(self) -> None:
        self._left = self.ones.copy()

    @property
    def size(self) -> int:
        return len(self.ones)

    def root_mean_squares(self) -> None:
        """The print knows nothing of the variance."""

    def rounded(self, t: float) -> int:
        return min(self.dim, max(1, int(np.ceil(t))))

    def pull(self, start: int, stop: int, places: Rows | None) -> Vector:
        some = np.arange(self.size) if places is None else places
        if self.order == "adversarial":
            ones = self.ones[some]
            return (np.minimum(ones, stop) - np.minimum(ones, start)).astype(np.float64)
        left = self._left[some]
        drawn = self.rng.hypergeometric(left, self.dim - start - left, stop - start)
        self._left[some] -= drawn
        return drawn.astype(np.float64)

    def pull_squares(self, start: int, stop: int, places: Rows | None) -> tuple[Vector, Vector]:
        sums = self.pull(start, stop, places)
        return sums, sums

    def whole(self, places: Rows) -> Vector:
        return self.ones[places].astype(np.float64)

    def scores(self, places: Rows) -> tuple[Rows, Vector]:
        return places, self.whole(places)


def run(name: str, quick: bool, data: Path | None) -> dict[str, Any]:  # noqa: ARG001 - as all reproductions
    """Print one row an epsilon and order; draw the figure where matplotlib is installed."""
    runs = QUICK_RUNS if quick else RUNS
    cases = [(order, plan, epsilon) for order, plan in CASES for epsilon in EPSILONS]
    rows = [row(order, epsilon, runs, plan) for order, plan, epsilon in progress(cases, "epsilons")]
    print("The paper prints a curve below the diagonal: suboptimality < epsilon everywhere.")
    if find_spec("matplotlib") is not None:
        print(f"figure: {draw(rows, Path(f'{name}.png'))}")
    return report(name, rows, seed=SEED)


def row(
    order: Order,
    epsilon: float,
    runs: int,
    plan: RoundPlan = "printed",
    *,
    n: int = 10_000,
    dim: int = 100_000,
) -> dict[str, Any]:
    """As the paper: the (1 - delta) percentile of the suboptimality over the runs, averaged over delta."""
    percentiles, reads, failed = [], [], 0
    for delta in DELTAS:
        found = []
        for seed in range(runs):
            rng = np.random.default_rng((SEED, seed, int(1e3 * delta), int(1e3 * epsilon)))
            ones = rng.binomial(dim, rng.random(n))
            coins = Coins(ones, dim, order, rng)
            answer = bounded_me(coins, k=1, epsilon=epsilon, delta=delta, plan=plan)
            found.append(float(ones.max() - ones[answer.rows[0]]) / dim)
            reads.append((answer.reads or 0) / answer.exhaustive_reads)
        percentiles.append(float(np.quantile(found, 1.0 - delta)))
        failed += int(np.sum(np.array(found) > epsilon))
    return {
        "order": order,
        "plan": plan,
        "epsilon": epsilon,
        "suboptimality": float(np.mean(percentiles)),
        "largest_percentile": max(percentiles),
        "below_epsilon": max(percentiles) < epsilon,
        "failures": failed,
        "runs": runs * len(DELTAS),
        "reads": float(np.mean(reads)),
    }


def draw(rows: list[dict[str, Any]], path: Path) -> Path:
    """Suboptimality and reads against epsilon."""
    with figure(path, columns=2) as (left, right):
        for order, plan in CASES:
            some = [row for row in rows if (row["order"], row["plan"]) == (order, plan)]
            at = [row["epsilon"] for row in some]
            left.plot(at, [row["suboptimality"] for row in some], "o-", label=f"{order}, {plan}")
            right.plot(at, [row["reads"] for row in some], "o-", label=f"{order}, {plan}")
        left.plot([0, max(EPSILONS)], [0, max(EPSILONS)], "k:", label="epsilon")
        left.set(
            xlabel="epsilon", ylabel="suboptimality", title="Figure 1: BoundedME, n = 10,000, N = 100,000"
        )
        right.set(xlabel="epsilon", ylabel="reads / n N", ylim=(0, 1))
        left.legend()
    return path
