"""`shortlist reproduce figure2-sampling`: which order has an ARCH model? By an exact chain, and by races.

The print has a year of a stock index, 13,000 returns of five minutes. Here as many returns are made by an
ARCH model of order 30 with Student innovations. A third way, importance sampling from the Laplace
approximations, says what both chains should find.

Evaluations are likelihoods or gradients of one return; those of control variates are not counted, as in the
print. Processor time counts everything.

Source: Chen and Ghahramani, "Scalable Discrete Sampling as a Multi-Armed Bandit Problem", sections 5.2, C.2.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import logsumexp

from app.platform.command_line import table
from shortlist.types import Matrix, Rows, Vector
from shortlist_client.progress import progress
from studies.experiments.arch_chain import Chain, Decisions, Exact, Races
from studies.experiments.arch_model import ORDERS, Laplace, Series, laplace, log_likelihoods, log_prior, make
from studies.experiments.arch_proxy import Expansion, binned
from studies.experiments.plots import can_draw, figure
from studies.measurement import record

SEED = 52
FIRST_STEPS = {"exact": 0.5, "races": 0.1}
STYLES = {"exact": "-", "races": "--"}
LONGEST_LAG = 60


@dataclass(frozen=True, slots=True)
class Scale:
    """``adapting`` and ``running``: iterations of a chain. ``weights``: draws for the evidence of a model."""

    size: int
    adapting: int
    running: int
    runs: int
    weights: int


FULL, QUICK = Scale(13_000, 3_000, 4_000, 5, 2_000), Scale(3_000, 300, 300, 2, 100)


@dataclass(frozen=True, slots=True, eq=False)
class Adapting:
    """How log p(q | r) was estimated meanwhile. Shapes: evaluations (t,), estimates (t, models)."""

    evaluations: Vector
    estimates: Matrix
    priors: Vector
    steps: Vector


@dataclass(frozen=True, slots=True, eq=False)
class Running:
    """Chains with fixed priors. ``wrong``: shares of the races of models and of moves; None if exact.

    Shapes: models (runs, iterations), wrong (2,).
    """

    models: Rows
    evaluations: float
    cpu_ms: float
    accepted: float
    wrong: Vector | None

    def shares(self) -> Matrix:
        """How often each model was chosen. Shapes: -> (runs, models)."""
        counts = [np.bincount(some, minlength=len(ORDERS)) for some in self.models]
        found: Matrix = np.array(counts) / self.models.shape[1]
        return found


@dataclass(frozen=True, slots=True, eq=False)
class Setting:
    """What both chains share: the returns, and what was found out of every model beforehand."""

    series: Series
    pseudo: Sequence[Laplace]
    inside: Rows
    outside: Rows
    expansions: Sequence[Expansion]

    @classmethod
    def of(cls, series: Series) -> Setting:
        pseudo = [laplace(series, order) for order in ORDERS]
        return cls(series, pseudo, *binned(series, [one.mode for one in pseudo]))

    def races(self) -> Races:
        return Races(self.series, self.inside, self.outside, self.expansions)

    def decisions(self, way: str) -> Decisions:
        return self.races() if way == "races" else Exact(self.series)

    def chain(self, way: str, seed: int, priors: Vector, steps: Vector) -> Chain:
        rng = np.random.default_rng((SEED, seed))
        return Chain(self.series, self.pseudo, self.decisions(way), rng, priors.copy(), steps.copy())


def run(
    name: str,
    quick: bool,
    data: Path | None,  # noqa: ARG001 - of every reproduction
    scale: Scale | None = None,
) -> dict[str, Any]:
    """Print and return the variance of rewards, the posterior of the orders, and what the chains cost.

    In full it takes about five minutes of one core; ``quick``: 3,000 returns and short chains, seconds.
    """
    scale = scale or (QUICK if quick else FULL)
    setting = Setting.of(make(scale.size, SEED))
    adapted = {way: adapt(setting, way, scale.adapting) for way in FIRST_STEPS}
    priors = adapted["exact"].priors
    ran = {way: run_all(setting, way, scale, priors, adapted[way].steps) for way in FIRST_STEPS}
    evidence = [importance(setting.series, one, scale.weights) for one in setting.pseudo]
    parts = [
        [*variances(setting)],
        [*posterior(evidence, adapted, ran, priors)],
        [*costs(adapted, ran)],
    ]
    for rows in parts:
        print(table(rows), end="\n\n")
    if can_draw():
        print(f"figure: {draw(setting.series, adapted, ran, Path(f'{name}.png'))}")
    return record(name, [row for rows in parts for row in rows], seed=SEED)


def adapt(setting: Setting, way: str, iterations: int) -> Adapting:
    """Tune the priors until every order is visited, and the steps of the moves."""
    count = len(ORDERS)
    chain = setting.chain(way, 0, np.zeros(count), np.full(count, FIRST_STEPS[way]))
    evaluations, estimates = [], []
    for _ in progress(range(iterations), f"adapting, {way}"):
        chain.adapt()
        evaluations.append(chain.decisions.evaluations)
        estimates.append(-chain.priors - logsumexp(-chain.priors))
    return Adapting(np.array(evaluations, dtype=np.float64), np.array(estimates), chain.priors, chain.steps)


def run_all(setting: Setting, way: str, scale: Scale, priors: Vector, steps: Vector) -> Running:
    """Chains with fixed priors and steps."""
    models, evaluations, accepted, started = [], 0, 0, time.process_time()
    for seed in progress(range(1, scale.runs + 1), f"chains, {way}"):
        chain = setting.chain(way, seed, priors, steps)
        models.append([_next(chain) for _ in range(scale.running)])
        evaluations += chain.decisions.evaluations
        accepted += chain.accepted
    spent, total = time.process_time() - started, scale.runs * scale.running
    wrong = None if way == "exact" else mistakes(setting, way, scale, priors, steps)
    return Running(np.array(models), evaluations / total, 1e3 * spent / total, accepted / total, wrong)


def mistakes(setting: Setting, way: str, scale: Scale, priors: Vector, steps: Vector) -> Vector:
    """The shares of wrong decisions on models and on moves, in a chain of its own. Shapes: -> (2,)."""
    chain = setting.chain(way, scale.runs + 1, priors, steps)
    chain.judge = Exact(setting.series)
    for _ in progress(range(scale.running), f"mistakes, {way}"):
        chain.step()
    return chain.wrong / chain.time


def _next(chain: Chain) -> int:
    chain.step()
    return chain.model


def importance(series: Series, pseudo: Laplace, draws: int) -> float:
    """Return log p(r | q), from ``draws`` of the Laplace approximation."""
    rng, weights = np.random.default_rng(SEED), []
    for _ in range(draws):
        x = pseudo.draw(rng)
        fit = float(log_likelihoods(series, x, slice(None)).sum())
        weights.append(fit + log_prior(x) - pseudo.log_density(x))
    return float(logsumexp(weights)) - float(np.log(draws))


def variances(setting: Setting) -> Iterator[dict[str, Any]]:
    """Of the differences that races of moves and of models look at, with and without control variates."""
    races, rng = setting.races(), np.random.default_rng(SEED)
    times = np.arange(len(setting.inside))
    states = [one.draw(rng) for one in setting.pseudo]
    races_of = {"models": (setting.expansions, states)}
    for place, order in enumerate(ORDERS):
        pair = [setting.pseudo[place].draw(rng) for _ in range(2)]
        races_of[f"moves, order {order}"] = [setting.expansions[place]] * 2, pair
    for what, (expansions, some) in races_of.items():
        arms = np.arange(len(some))
        plain = races.plain(some).read(arms, times)
        residual = races.factors(expansions, some)[0].read(arms, times)
        before, after = ((part[1:] - part[0]).var(axis=1).mean() for part in (plain, residual))
        yield {
            "race of": what,
            "variance": float(before),
            "controlled": float(after),
            "ratio": float(before / after),
        }


def posterior(
    evidence: Sequence[float], adapted: Mapping[str, Adapting], ran: Mapping[str, Running], priors: Vector
) -> Iterator[dict[str, Any]]:
    """One row an order: log p(q | r) in three ways, and the adjusted posterior with its spread over runs."""
    truth = np.array(evidence) - logsumexp(evidence)
    shares = {
        way: np.array([np.bincount(models, minlength=len(ORDERS)) for models in found.models])
        / found.models.shape[1]
        for way, found in ran.items()
    }
    logs = {way: np.log(np.maximum(share.mean(axis=0), 1e-9)) - priors for way, share in shares.items()}
    for place, order in enumerate(ORDERS):
        row: dict[str, Any] = {"order": order, "importance sampling": float(truth[place])}
        for way, found in adapted.items():
            row[f"adapting, {way}"] = float(found.estimates[-1][place])
            row[f"chains, {way}"] = float((logs[way] - logsumexp(logs[way]))[place])
        for way, share in shares.items():
            row[f"adjusted, {way}"] = float(share[:, place].mean())
            row[f"sd, {way}"] = float(share[:, place].std(ddof=1))
        yield row


def costs(adapted: Mapping[str, Adapting], ran: Mapping[str, Running]) -> Iterator[dict[str, Any]]:
    """One row a chain. ``converged``: evaluations after which all estimates stay within 1 of their last."""
    for way, found in ran.items():
        tuned = adapted[way]
        far = np.flatnonzero(np.abs(tuned.estimates - tuned.estimates[-1]).max(axis=1) > 1.0)
        size = float(np.mean([effective(models) for models in found.models]))
        share = size / found.models.shape[1]
        yield {
            "chain": way,
            "evaluations": found.evaluations,
            "cpu_ms": found.cpu_ms,
            "accepted": found.accepted,
            "wrong models": None if found.wrong is None else float(found.wrong[0]),
            "wrong moves": None if found.wrong is None else float(found.wrong[1]),
            "converged": float(tuned.evaluations[far[-1]]) if len(far) else 0.0,
            "ess per iteration": share,
            "ess per million": 1e6 * share / found.evaluations,
            "ess per second": 1e3 * share / found.cpu_ms,
        }


def correlation(values: Rows, lags: int) -> Vector:
    """The autocorrelation of a series at lags 0 to ``lags``."""
    centred = values - values.mean()
    variance = float(centred @ centred) or 1.0
    return np.array([centred[: len(centred) - lag] @ centred[lag:] for lag in range(lags + 1)]) / variance


def effective(values: Rows) -> float:
    """The effective sample size: autocorrelations are added until two neighbours are not above 0 (Geyer)."""
    found = correlation(values, min(len(values) // 2, 1_000))
    pairs = found[1:-1:2] + found[2::2]
    ends = np.flatnonzero(pairs <= 0.0)
    return len(values) / (1.0 + 2.0 * float(pairs[: ends[0] if len(ends) else len(pairs)].sum()))


def draw(series: Series, adapted: Mapping[str, Adapting], ran: Mapping[str, Running], path: Path) -> Path:
    """Draw Figure 2: the returns, the estimates by evaluations, the adjusted posterior, autocorrelations."""
    with figure(path, columns=2, lines=2) as (returns, estimates, adjusted, correlations):
        returns.plot(series.returns, linewidth=0.3)
        returns.set(title="(a) returns", xlabel="t")
        for place, (way, line) in enumerate(STYLES.items()):
            tuned, found = adapted[way], ran[way]
            for order, curve in enumerate(tuned.estimates.T):
                label = str(ORDERS[order]) if way == "exact" else None
                estimates.plot(tuned.evaluations, curve, line, color=f"C{order}", label=label, linewidth=1)
            shares = found.shares()
            x = np.arange(len(ORDERS)) + 0.2 * (2 * place - 1)
            adjusted.bar(x, shares.mean(axis=0), 0.4, yerr=shares.std(axis=0, ddof=1), label=way)
            lags = np.mean([correlation(models, LONGEST_LAG) for models in found.models], axis=0)
            correlations.plot(found.evaluations * np.arange(LONGEST_LAG + 1), lags, line, label=way)
        estimates.set(title="(b) log p(q | r)", xlabel="evaluations", xscale="log")
        estimates.legend(title="order", fontsize=6)
        adjusted.set(title="(c) adjusted posterior", xlabel="order")
        adjusted.set_xticks(range(len(ORDERS)), [str(order) for order in ORDERS])
        adjusted.legend(fontsize=7)
        correlations.set(title="(d) autocorrelation of q", xlabel="evaluations", xlim=(0, 1.5e6))
        correlations.legend(fontsize=7)
    return path
