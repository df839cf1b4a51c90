"""`shortlist reproduce figure1-sampling`: errors and reads over the paper's grid; Figures 1 and 5 to 7.

Notation
    D, N        number of states, of factors
    sigma       standard deviation of the log factors: 0.1 very hard, 1e-4 easy, 1e-5 very easy
    run         one random order of the factors and one vector of Gumbel variables

Every error is counted against the exact draw of the same Gumbel variables. The races of one run, over all
sigma, delta and methods, share its order: what they would read is summed up once, up to every check, and the
races themselves are those of the service. Runs are independent of each other, so the intervals are binomial.

The print draws p(X) and does not list it: here a fixed draw of a Dirichlet distribution.

Source: Chen and Ghahramani, "Scalable Discrete Sampling as a Multi-Armed Bandit Problem", section 5.1, C.1.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from shortlist.sampling.factors import Factors, LogFactors
from shortlist.sampling.lil_ucb import lil_ucb
from shortlist.sampling.race import RaceRules, Variance, race
from shortlist.sampling.racing_ebs import FIRST as EBS_FIRST
from shortlist.sampling.racing_ebs import ebs_rules
from shortlist.sampling.racing_normal import FIRST as NORMAL_FIRST
from shortlist.sampling.racing_normal import normal_rules
from shortlist.types import Matrix, Rows, Vector
from shortlist_client.progress import progress
from studies.experiments.plots import can_draw
from studies.experiments.sampling_plot import draw
from studies.measurement import report

SIZE = 100_000
SIGMAS = (0.1, 1e-4, 1e-5)
DELTAS = (1e-3, 1e-2, 3e-2, 0.1)
REWARDS = ("normal", "uniform", "lognormal")
RUNS = {2: 600, 10: 600, 100: 100}
LIL_RUNS = {2: 50, 10: 20, 100: 3}
LIL_DELTAS = (1e-2, 0.1)
QUICK_SIZE, QUICK_SHARE = 20_000, 0.02
MARGINAL_STATES = 10  # of Figure 5
SEED = 2016

Key = tuple[float, float, str]


def probabilities(states: int) -> Vector:
    """The p(X) of ``states`` states."""
    p: Vector = np.random.default_rng(SEED).dirichlet(np.ones(states))
    return p


def population(rewards: str, states: int, size: int) -> Matrix:
    """Noise of mean 0 and variance 1 for every state, exactly. Shapes: -> (N, D)."""
    rng = np.random.default_rng((SEED, REWARDS.index(rewards), states))
    shape = (size, states)
    if rewards == "lognormal":
        noise = rng.lognormal(0.0, 2.0, shape)
    else:
        noise = rng.standard_normal(shape) if rewards == "normal" else rng.random(shape)
    noise -= noise.mean(axis=0)
    noise /= noise.std(axis=0)
    return noise


class Prefixes:
    """Sums and products of the noise up to every check of one order. Shapes: sums (D,), products (D, D)."""

    def __init__(self, noise: Matrix, schedule: list[int], rng: np.random.Generator) -> None:
        ordered = noise[rng.permutation(len(noise))]
        sums, products, start = np.zeros(noise.shape[1]), np.zeros((noise.shape[1],) * 2), 0
        self.at: dict[int, tuple[Vector, Matrix]] = {}
        for t in schedule:
            part = ordered[start:t]
            sums, products, start = sums + part.sum(axis=0), products + part.T @ part, t
            self.at[t] = sums, products


class PrefixSample:
    """A ``Sample`` of what has been summed up; the rewards are sigma times the noise."""

    def __init__(self, prefixes: Prefixes, sigma: float) -> None:
        self._prefixes, self._sigma = prefixes, sigma
        self._arms: Rows = np.arange(len(next(iter(prefixes.at.values()))[0]))
        self._t = self.reads = 0

    def read_to(self, t: int) -> None:
        self.reads += len(self._arms) * (t - self._t)
        self._t = t
        sums, products = self._prefixes.at[t]
        self._means = sums[self._arms] / t
        self._products = products[np.ix_(self._arms, self._arms)] / t
        self._squares = np.diagonal(self._products)

    def keep(self, places: Rows) -> None:
        self._arms = self._arms[places]

    def means(self) -> Vector:
        return self._sigma * self._means

    def deviations(self) -> Vector:
        return self._root(self._squares - self._means**2)

    def deviations_from(self, place: int) -> Vector:
        squares = self._squares - 2.0 * self._products[place] + self._squares[place]
        return self._root(squares - (self._means - self._means[place]) ** 2)

    def _root(self, variances: Vector) -> Vector:
        root: Vector = self._sigma * np.sqrt(np.maximum(variances, 0.0))
        return root


@dataclass
class Count:
    """Runs, errors and reads of one method at one point of the grid."""

    runs: int = 0
    errors: int = 0
    reads: int = 0

    def add(self, wrong: bool, reads: int) -> None:
        self.runs, self.errors, self.reads = self.runs + 1, self.errors + wrong, self.reads + reads


def run(name: str, quick: bool, data: Path | None) -> dict[str, Any]:  # noqa: ARG001 - of every reproduction
    """Print and return one row for each method and point of the grid.

    ``quick``: N = 20,000 and one run in fifty. In full it takes about five minutes of one core.
    """
    size, share = (QUICK_SIZE, QUICK_SHARE) if quick else (SIZE, 1.0)
    rows = [line for states in RUNS for rewards in REWARDS for line in lines(rewards, states, size, share)]
    if can_draw():
        for states in RUNS:
            print(f"figure: {draw(rows, states, Path(f'{name}-{states}.png'))}")
        marginal = Path(f"{name}-{MARGINAL_STATES}-marginal.png")
        print(f"figure: {draw(rows, MARGINAL_STATES, marginal, variance='marginal')}")
    return report(name, rows, seed=SEED)


def lines(rewards: str, states: int, size: int, share: float) -> Iterator[dict[str, Any]]:
    """The rows of one population; ``share`` of the runs."""
    label, noise = f"D = {states}, {rewards}", population(rewards, states, size)
    counts = race_all(noise, max(10, int(RUNS[states] * share)), label)
    search_all(noise, max(2, int(LIL_RUNS[states] * share)), counts, label)
    for key, count in counts.items():
        yield line(rewards, states, size, key, count)


def line(rewards: str, states: int, size: int, key: Key, count: Count) -> dict[str, Any]:
    """One row; ``low`` and ``high`` are the 95 % interval of the error (Clopper and Pearson)."""
    sigma, delta, method = key
    low, high = stats.binomtest(count.errors, count.runs).proportion_ci(0.95)
    return {
        "rewards": rewards,
        "D": states,
        "sigma": sigma,
        "method": method,
        "delta": delta,
        "runs": count.runs,
        "error": count.errors / count.runs,
        "low": float(low),
        "high": float(high),
        "within": bool(low <= delta),
        "reads": count.reads / (count.runs * size * states),
    }


def rules_of(noise: Matrix, sigma: float) -> Iterator[tuple[float, str, RaceRules]]:
    """The races at one sigma: delta, name, rules."""
    size, states = noise.shape
    ranges = sigma * np.ptp(noise, axis=0)
    variances: tuple[Variance, ...] = ("pairwise", "marginal")
    for delta in DELTAS:
        for variance in variances:
            normal = normal_rules(states, size, delta=delta, variance=variance, first=NORMAL_FIRST)
            yield delta, f"racing_normal {variance}", normal
            ebs = ebs_rules(ranges, size, delta=delta, variance=variance, first=EBS_FIRST)
            yield delta, f"racing_ebs {variance}", ebs


def race_all(noise: Matrix, runs: int, label: str) -> dict[Key, Count]:
    """Every race of the grid, ``runs`` times."""
    rng = np.random.default_rng((SEED, noise.shape[1]))
    logs = np.log(probabilities(noise.shape[1]))
    rules = [(sigma, *each) for sigma in SIGMAS for each in rules_of(noise, sigma)]
    schedule = sorted({t for *_, rule in rules for t in rule.schedule})
    counts: dict[Key, Count] = defaultdict(Count)
    for _ in progress(range(runs), f"races, {label}"):
        prefixes = Prefixes(noise, schedule, rng)
        offsets = logs + rng.gumbel(size=len(logs))
        for sigma, delta, method, rule in rules:
            sample = PrefixSample(prefixes, sigma)
            winner = race(sample, offsets, rule)
            counts[sigma, delta, method].add(winner != int(offsets.argmax()), sample.reads)
    return counts


def search_all(noise: Matrix, runs: int, counts: dict[Key, Count], label: str) -> None:
    """Both settings of lil'UCB, which has no schedule to share. Adds to ``counts``."""
    size, states = noise.shape
    logs = np.log(probabilities(states))
    grid = [(sigma, delta) for sigma in SIGMAS for delta in LIL_DELTAS]
    for number in progress(range(runs), f"lil'UCB, {label}"):
        for sigma, delta in grid:
            factors, ranges = Factors(states, size, _scaled(noise, sigma)), sigma * np.ptp(noise, axis=0)
            for setting in ("heuristic", "safe"):
                rng = np.random.default_rng((SEED, number))
                exact = logs + np.random.default_rng((SEED, number)).gumbel(size=states)
                found = lil_ucb(factors, ranges=ranges, delta=delta, rng=rng, log_prior=logs, setting=setting)
                wrong = int(found.rows[0]) != int(exact.argmax())
                counts[sigma, delta, f"lil_ucb {setting}"].add(wrong, found.reads)


def _scaled(noise: Matrix, sigma: float) -> LogFactors:
    return lambda rows, indices: sigma * noise[indices][:, rows].T
