"""`shortlist bench logged-draws`: can the log of Thompson sampling be evaluated, with propensities by draws?

A policy that draws theta~ and takes the best arms does not know how likely its list was. The posterior of
each decision is known from the log, so more draws from it estimate the probability. This study plays logs of
known truth, estimates, and counts how often the interval of another policy's value is right.

Notation
    K, d, k     arms, dimension, places of a list
    N, B        draws for each state of the learner, decisions between two states
    c           how many of the N draws begin like the logged list, down to a place; t the same of the target
    xi          the standard normal vector of a draw; that of the logged decision is its own

Forms: how a weight comes from the counts. Target and logging policy draw from separate xi, or from the same.
    floor       (t / N) / (max(c, 1) / N)
    beta        (t / N) / ((c + .5) / (N + 1)): the posterior mean of a Beta prior of weight 1
    own         (t / N) / ((c + 1) / (N + 1)): the logged decision is a draw too. The count of a list of
                probability p is binomial, so E[(N + 1) / (c + 1)] = (1 - (1 - p)^(N + 1)) / p: no bias but
                for what is rarer than 1 / N, and that is missing from the mean weight, where it can be seen
    left out    (t / N) / (c / N), and 0 for decisions with c = 0: the mean weight says what this costs
    together    t / max(c, 1), the same xi for both
    exchanged   (t + own t) / (c + 1), the same xi for both, and what the target does with the xi of the
                decision: of N + 1 exchangeable draws one was logged, so nothing is biased but what none shows
    exact       10,000 draws instead of N; of few arms

Targets use the learner as it was at the start of a twentieth of the log, as evaluations do; the first
twentieth is left out. The true value is the mean of the expected rewards of lists from other draws.

Columns
    near        targets near the policy: itself, exploration x .5 and x 2, a prior of four times the weight
    bias        mean error by the mean width of intervals; of all near targets of a world the largest
    covered     share of intervals that hold the true value, where there is a value
    least       the same of the world and near target where it is least
    refused     share of evaluations without a value: too much is missing
    width       mean width of intervals
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from app.platform.command_line import table
from shortlist.evaluation import off_policy, simulated_target
from shortlist.evaluation.logged import Logged
from shortlist.linear import ridge_sums, softmax
from shortlist.linear.ridge import Posterior
from shortlist.types import Matrix, Rows, Vector
from shortlist_evaluation.evaluator import TOO_MUCH_MISSING
from studies.bench import auto_rules
from studies.measurement import record

SEED, TIMED = 81, 5
TWENTIETHS = 20
EXACT_DRAWS, TRUTH_DRAWS = 10_000, 500
PRIOR_FACTOR = 4.0
NOISE, BASE_RATE, SPREAD = 0.5, 0.2, 0.1
ESTIMATORS = ("ips", "snips", "dr")
FORMS = ("floor", "beta", "own", "left out", "together", "exchanged")
NEAR = ("same", "x .5", "x 2", "prior")
FAR = ("greedy", "uniform")
TEMPERATURES = {"x .5": 0.5, "x 2": 2.0}


@dataclass(frozen=True)
class World:
    """``misfit``: deviation of what arms earn beyond their features. ``filtered``: half of the arms can be
    drawn in a block, others in the next. ``is_small``: few enough arms for the exact form.
    """

    name: str
    arms: int
    k: int = 1
    clicks: bool = True
    dim: int = 8
    fold: int = 20
    decisions: int = 2_000
    draws: int = 1_000
    misfit: float = 0.0
    filtered: bool = False
    logs: int = 20
    is_small: bool = False


WORLDS = (
    World("20 arms", 20, logs=30, is_small=True),
    World("20 arms, a state each", 20, fold=1, decisions=600, logs=15),
    World("20 arms, 200 share a state", 20, fold=200, decisions=4_000, logs=60),
    World("20 arms, lists of 3", 20, k=3, logs=20, is_small=True),
    World("200 arms, Gaussian", 200, clicks=False, logs=30),
    World("200 arms, effects", 200, misfit=0.05, logs=25),
    World("200 arms, lists of 5", 200, k=5, logs=15),
    World("1,000 arms, filters", 1_000, filtered=True, logs=25),
    World("1,000 arms, Gaussian, lists of 3", 1_000, k=3, clicks=False, logs=10),
    World("20,000 arms", 20_000, dim=16, decisions=800, fold=40, logs=10),
)
FEW_OR_MANY_DRAWS, FEW_LOGS = (100, 300, 1_000, 3_000), 15


def run(quick: bool) -> dict[str, Any]:
    """Play all worlds; print and return a row for each world, target, form and estimator, and their summary.

    ``quick``: two logs of each of the smaller worlds.
    """
    worlds = [replace(world, logs=2) for world in WORLDS if world.arms <= 1_000] if quick else list(WORLDS)
    rows, seconds = list[dict[str, Any]](), list[dict[str, Any]]()
    with threadpool_limits(1):
        for world in worlds:
            found = rows_of(world, SEED)
            rows += found
            seconds.append(cost_of(world, np.random.default_rng(SEED)))
            print(table([row for row in found if row["form"] in {"own", "exchanged", "softmax"}]), flush=True)
        base = worlds[0]
        fewer = replace(base, logs=min(base.logs, FEW_LOGS), is_small=False)
        numbers = [
            row for draws in FEW_OR_MANY_DRAWS for row in rows_of(replace(fewer, draws=draws), SEED + 1)
        ]
    summary = summary_of(rows)
    print(table(summary))
    few = summary_of(numbers, by="draws", forms=("own", "exchanged"))
    print(table(few))
    print(table(seconds))
    return record("logged-draws", [*rows, *summary, *few, *seconds], seed=SEED)


@dataclass
class Columns:
    """What ``Logged`` is made of, block after block."""

    propensities: list[Matrix] = field(default_factory=list)
    targets: list[Matrix] = field(default_factory=list)
    rewards: list[Matrix] = field(default_factory=list)
    predicted: list[Matrix] = field(default_factory=list)
    expected: list[Matrix] = field(default_factory=list)

    def logged(self) -> Logged:
        columns = (self.propensities, self.targets, self.rewards, self.predicted, self.expected)
        return Logged(*map(np.concatenate, columns))


@dataclass(frozen=True)
class Play:
    """A log. ``columns``: by target and form. ``truths``: by target."""

    columns: Mapping[tuple[str, str], Columns]
    truths: Mapping[str, float]


def rows_of(world: World, seed: int) -> list[dict[str, Any]]:
    """Rows of all targets, forms and estimators."""
    errors: dict[tuple[str, str, str], list[tuple[float, float, bool]]] = defaultdict(list)
    refused: dict[tuple[str, str, str], int] = defaultdict(int)
    for number in range(world.logs):
        rng = np.random.default_rng([seed, number, world.arms, world.k])
        plays = [play(world, rng)]
        if world.k == 1:
            plays.append(play_softmax(world, rng))
        for played in plays:
            for (target, form), columns in played.columns.items():
                for name, found in estimates(world, columns.logged()).items():
                    if found is None:
                        refused[target, form, name] += 1
                        continue
                    value, (low, high) = found
                    truth = played.truths[target]
                    errors[target, form, name].append((value - truth, high - low, low <= truth <= high))
    return [
        {
            "world": world.name,
            "draws": world.draws,
            **dict(zip(("target", "form", "estimator"), key, strict=True)),
            **_measures(errors[key], refused[key]),
        }
        for key in sorted({*errors, *refused}, key=_order)
    ]


def cost_of(world: World, rng: np.random.Generator) -> dict[str, Any]:
    """What the draws of the policy and of one target take for a state of the learner, of processor time."""
    arms = Arms.draw(world, rng)
    posterior = auto_rules.posterior(ridge_sums.empty(world.dim + 1))
    times = []
    for _ in range(TIMED):
        began = time.process_time()
        for _ in range(2):
            xi = rng.standard_normal((world.draws, world.dim + 1))
            drawn = best(arms.features[eligible(world, 0)], posterior, 1.0, xi, world.k)
            prefixes(drawn, drawn[: world.fold])
        times.append(time.process_time() - began)
    each = float(np.median(times))
    return {
        "world": world.name,
        "draws": world.draws,
        "ms a state": 1_000.0 * each,
        "s for 10,000 states": 10_000.0 * each,
    }


def _order(key: tuple[str, str, str]) -> tuple[int, str, int]:
    target, form, name = key
    return (*NEAR, *FAR).index(target), form, ESTIMATORS.index(name)


def _measures(found: Sequence[tuple[float, float, bool]], refused: int) -> dict[str, Any]:
    """``found``: error, width, and whether the interval holds the truth, of each log with a value."""
    logs = len(found) + refused
    if not found:
        absent = dict.fromkeys(("bias", "error of bias", "covered", "width", "median"), np.nan)
        return {"logs": logs, "refused": 1.0, **absent}
    error, width, is_covered = np.array(found, dtype=np.float64).T
    mean_width = float(width.mean())
    return {
        "logs": logs,
        "refused": refused / logs,
        "bias": float(error.mean()) / mean_width,
        "error of bias": float(error.std()) / mean_width / len(error) ** 0.5,
        "covered": float(is_covered.mean()),
        "width": mean_width,
        "median": float(np.median(width)),
    }


def summary_of(
    rows: Sequence[Mapping[str, Any]], *, by: str | None = None, forms: Sequence[str] = (*FORMS, "exact")
) -> list[dict[str, Any]]:
    """A row for each form and estimator, of all near targets; ``by``: for each value of a column."""
    groups = defaultdict[tuple[Any, str, str], list[Mapping[str, Any]]](list)
    for row in rows:
        if row["target"] in NEAR and row["form"] in forms:
            groups[row[by] if by else "near", row["form"], row["estimator"]].append(row)
    found = []
    for (value, form, name), group in groups.items():
        shares = np.array([row["logs"] * (1.0 - row["refused"]) for row in group])
        with_value = [row for row, share in zip(group, shares, strict=True) if share]
        covered = np.array([row["covered"] for row in with_value])
        found.append(
            {
                by or "targets": value,
                "form": form,
                "estimator": name,
                "intervals": round(shares.sum()),
                "refused": float(np.mean([row["refused"] for row in group])),
                "mean bias": float(np.mean([row["bias"] for row in with_value])),
                "largest bias": max((row["bias"] for row in with_value), key=abs),
                "covered": float(covered @ shares[shares > 0] / shares.sum()),
                "least": float(covered.min()),
            }
        )
    return found


def estimates(world: World, logged: Logged) -> dict[str, tuple[float, tuple[float, float]] | None]:
    """Value and interval by each estimator; None where too much is missing, as the service has it."""
    bounds = (0.0, 1.0) if world.clicks else None
    state = off_policy.add(off_policy.start(ESTIMATORS, places=world.k, rewards=bounds), logged)
    if state.lacking(TOO_MUCH_MISSING).any():
        return dict.fromkeys(ESTIMATORS)
    found = {}
    for name in ESTIMATORS:
        whole = state.estimates(name).whole
        is_given = whole.value is not None and whole.interval is not None
        found[name] = (whole.value, whole.interval) if is_given else None
    return found  # type: ignore[return-value]  # both are given, or neither


@dataclass(frozen=True)
class Arms:
    """Features with a constant (K, d + 1), and what each arm earns on average (K,)."""

    features: Matrix
    means: Vector

    @classmethod
    def draw(cls, world: World, rng: np.random.Generator) -> Arms:
        features = rng.normal(size=(world.arms, world.dim)) / world.dim**0.5
        taste = rng.normal(size=world.dim)
        beyond = world.misfit * rng.normal(size=world.arms)
        if world.clicks:
            means = (BASE_RATE + SPREAD * features @ taste + beyond).clip(0.01, 0.99)
        else:
            means = features @ taste + beyond
        numbers = np.column_stack((np.ones(world.arms), features))
        return cls(numbers.astype(np.float32 if world.arms >= 1_000 else np.float64), means)

    def rewards(self, world: World, lists: Rows, rng: np.random.Generator) -> Matrix:
        means = self.means[lists]
        if world.clicks:
            return (rng.random(lists.shape) < means).astype(np.float64)
        return means + NOISE * rng.normal(size=lists.shape)


def play(world: World, rng: np.random.Generator) -> Play:
    """Log decisions of Thompson sampling as by default, and weigh them. Cost: O(N K d) for each state."""
    arms = Arms.draw(world, rng)
    exploration = auto_rules.exploration(world.dim + 1)
    sums = ridge_sums.empty(world.dim + 1)
    length = float(np.square(arms.features).sum(axis=1).mean())
    columns: dict[tuple[str, str], Columns] = defaultdict(Columns)
    truths = defaultdict[str, list[float]](list)
    block = world.decisions // TWENTIETHS
    targets = dict[str, tuple[Posterior, float]]()
    for start in range(0, world.decisions, world.fold):
        posterior = auto_rules.posterior(sums, mean_square=length)
        if start % block == 0:
            prior = auto_rules.posterior(sums, ridge=PRIOR_FACTOR * posterior.ridge, mean_square=length)
            targets = {
                "same": (posterior, exploration),
                "x .5": (posterior, 0.5 * exploration),
                "x 2": (posterior, 2.0 * exploration),
                "prior": (prior, exploration),
                "greedy": (posterior, 0.0),
            }
        among = eligible(world, start)
        features = arms.features[among]
        noise = rng.standard_normal((world.fold, posterior.root.shape[1]))
        lists = best(features, posterior, exploration, noise, world.k)
        rewards = arms.rewards(world, among[lists], rng)
        if start >= block:
            decisions = Decisions(features, arms.means[among], posterior, exploration, lists, rewards, noise)
            _weigh(world, decisions, targets, (columns, truths), rng)
        shown = arms.features[among[lists]].reshape(-1, world.dim + 1).astype(np.float64)
        sums = ridge_sums.add(sums, shown, rewards.reshape(-1), np.ones(len(shown), dtype=np.bool_))
    return Play(columns, {name: float(np.mean(values)) for name, values in truths.items()})


@dataclass(frozen=True)
class Decisions:
    """Those of one state of the learner, among the arms with these ``features`` and ``means``.

    ``noise``: the xi of each. Shapes: lists, rewards (B, k), noise (B, r).
    """

    features: Matrix
    means: Vector
    posterior: Posterior
    exploration: float
    lists: Rows
    rewards: Matrix
    noise: Matrix


def _weigh(
    world: World,
    log: Decisions,
    targets: Mapping[str, tuple[Posterior, float]],
    found: tuple[dict[tuple[str, str], Columns], dict[str, list[float]]],
    rng: np.random.Generator,
) -> None:
    """Add the decisions of one state to all columns."""
    (columns, truths), features, means = found, log.features, log.means
    lists, rewards, noise = log.lists, log.rewards, log.noise
    policy = log.posterior, log.exploration
    xi = rng.standard_normal((world.draws, noise.shape[1]))
    shares, _ = prefixes(best(features, *policy, xi, world.k), lists)
    exact = None
    if world.is_small:
        many = rng.standard_normal((EXACT_DRAWS, noise.shape[1]))
        exact, _ = prefixes(best(features, *policy, many, world.k), lists)
    counts = np.rint(shares * world.draws)
    ours = (counts + 1.0) / (world.draws + 1.0)
    xi_target, xi_truth = rng.standard_normal((2, *xi.shape))
    theta = targets["same"][0].theta.astype(features.dtype)
    predictions = (features @ theta).astype(np.float64)
    if world.clicks:
        predictions = predictions.clip(0.0, 1.0)
    for name, (posterior, exploration) in targets.items():
        drawn = best(features, posterior, exploration, xi_target if exploration else xi_target[:1], world.k)
        apart, expected = prefixes(drawn, lists, predictions)
        both, own = apart, apart
        if exploration:
            drawn = best(features, posterior, exploration, xi, world.k)
            both, _ = prefixes(drawn, lists)
            ones = np.cumprod(best(features, posterior, exploration, noise, world.k) == lists, axis=1)
            own = (np.rint(both * world.draws) + ones) / (world.draws + 1.0)
            drawn = best(features, posterior, exploration, xi_truth[:TRUTH_DRAWS], world.k)
        truths[name].append(float(means[drawn].sum(axis=1).mean()))
        floor = np.maximum(counts, 1.0) / world.draws
        beta = (counts + 0.5) / (world.draws + 1.0)
        forms = {
            "floor": (floor, apart),
            "beta": (beta, apart),
            "own": (ours, apart),
            "left out": (floor, np.where(counts > 0.0, apart, 0.0)),
            "together": (floor, both),
            "exchanged": (ours, own),
        }
        if exact is not None:
            forms["exact"] = (np.maximum(exact, 1.0 / EXACT_DRAWS), apart)
        for form, shares_of_form in forms.items():
            _add(columns[name, form], shares_of_form, rewards, (predictions[lists], expected))
    truths["uniform"].append(float(means.mean() * world.k))
    chances = np.broadcast_to(np.cumprod(1.0 / (len(means) - np.arange(world.k))), lists.shape)
    mean = np.full(lists.shape, predictions.mean())
    _add(columns["uniform", "own"], (ours, chances), rewards, (predictions[lists], mean))


def _add(
    columns: Columns, shares: tuple[Matrix, Matrix], rewards: Matrix, model: tuple[Matrix, Matrix]
) -> None:
    """Add decisions. ``shares``: of lists down to each place, by the policy and by the target.

    ``model``: what is predicted of the lists, and expected of the target.
    """
    (policy, target), (predicted, expected) = shares, model
    columns.propensities.append(conditional(policy))
    columns.targets.append(np.minimum(conditional(target), 1.0))
    columns.rewards.append(rewards)
    columns.predicted.append(predicted)
    # Where no draw begins like the list, nothing is known of what follows: the reward counts as it is.
    columns.expected.append(np.where(np.isnan(expected), predicted, expected))


def play_softmax(world: World, rng: np.random.Generator) -> Play:
    """Log decisions of a softmax over the same estimates, whose propensities are exact, of single arms."""
    arms = Arms.draw(world, rng)
    sums = ridge_sums.empty(world.dim + 1)
    length = float(np.square(arms.features).sum(axis=1).mean())
    columns: dict[tuple[str, str], Columns] = defaultdict(Columns)
    truths = defaultdict[str, list[float]](list)
    block = world.decisions // TWENTIETHS
    held = auto_rules.posterior(sums, mean_square=length)
    for start in range(0, world.decisions, world.fold):
        posterior = auto_rules.posterior(sums, mean_square=length)
        held = posterior if start % block == 0 else held
        among = eligible(world, start)
        features, means = arms.features[among], arms.means[among]
        scores = (features @ posterior.theta).astype(np.float64)
        temperature = auto_rules.exploration(world.dim + 1) * SPREAD * (1.0 if world.clicks else 10.0)
        choices = [softmax.choose(scores, k=1, temperature=temperature, rng=rng) for _ in range(world.fold)]
        lists = np.array([choice.places for choice in choices])
        propensities = np.array([choice.propensities for choice in choices])
        rewards = arms.rewards(world, among[lists], rng)
        if start >= block:
            predictions = (features @ held.theta).astype(np.float64)
            for name, factor in TEMPERATURES.items():
                weights = np.exp((predictions - predictions.max()) / (factor * temperature))
                chances = weights / weights.sum()
                truths[name].append(float(chances @ means))
                clipped = predictions.clip(0.0, 1.0) if world.clicks else predictions
                expected = np.full(lists.shape, chances @ clipped)
                shares = propensities, chances[lists]
                _add(columns[name, "softmax"], shares, rewards, (clipped[lists], expected))
        shown = arms.features[among[lists[:, 0]]].astype(np.float64)
        sums = ridge_sums.add(sums, shown, rewards[:, 0], np.ones(len(shown), dtype=np.bool_))
    return Play(columns, {name: float(np.mean(values)) for name, values in truths.items()})


def eligible(world: World, start: int) -> Rows:
    """Rows of the arms that decisions from ``start`` on may choose."""
    every = np.arange(world.arms)
    return every[every % 2 == start // world.fold % 2] if world.filtered else every


def best(features: Matrix, posterior: Posterior, exploration: float, noise: Matrix, k: int) -> Rows:
    """The ``k`` best arms for theta^ + exploration V^-1/2 xi of each xi. Shapes: (n, r) -> (n, k)."""
    thetas = posterior.theta + exploration * noise @ posterior.root.T
    scores = thetas.astype(features.dtype) @ features.T
    lines, found = np.arange(len(scores)), np.empty((len(scores), k), dtype=np.int64)
    for place in range(k):
        found[:, place] = scores.argmax(axis=1)
        scores[lines, found[:, place]] = -np.inf
    return found


def prefixes(simulated: Rows, lists: Rows, predictions: Vector | None = None) -> tuple[Matrix, Matrix]:
    """Share of the simulated lists that begin like each list, down to each place; and the mean prediction for
    what they have at a place, nan where none begins like the list. Shapes: (N, k), (n, k) -> (n, k), (n, k).
    """
    distinct, which = np.unique(lists, axis=0, return_inverse=True)
    scores = np.zeros(simulated.shape) if predictions is None else predictions[simulated]
    one = np.zeros(len(distinct), dtype=np.int64)
    given, expected = simulated_target.weigh(simulated[None], scores[None], one, distinct)
    shares: Matrix = np.cumprod(given, axis=1, dtype=np.float64)
    before = np.hstack((np.ones((len(distinct), 1)), shares[:, :-1]))
    expected = np.where(before > 0.0, expected, np.nan)
    return shares[which.reshape(-1)], expected[which.reshape(-1)]


def conditional(shares: Matrix) -> Matrix:
    """Of each place given those before it, from the shares down to each place; 0 after a 0. Shape: (n, k)."""
    if shares.shape[1] == 1:
        return shares
    before = np.hstack((np.ones((len(shares), 1)), shares[:, :-1]))
    return np.divide(shares, before, out=np.zeros_like(shares), where=before > 0.0)
