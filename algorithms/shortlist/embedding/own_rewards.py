"""Coordinates of arms from the rewards of a bandit itself, and a rule about their worth.

Notation
    r, t        a reward, and the features of its arm by the table (T,), or of the arm in the context of its
                decision (``linear.bilinear``)
    theta_u     the estimate of key u, from a prior learned from all keys (``linear.learned_prior``)
    E           keys x arms: sums of r - t.theta_u, unexplained by the table
    c           coordinates of an arm (d,): V S of E as in ``behaviour``, times n / (n + 1) for n rewards
    before      mean of (r - t.theta_u)^2, over rewards unseen by features and learners
    after       the same of learners of [t ; c]

The first nine tenths of the rewards in time make E, c and all theta; the last tenth judges. The coordinates
are taken only if the error falls by more than its standard error, which counts each key as one draw.
Coordinates made with the judging rewards always look better: E holds these rewards.

Source: held-out validation; the standard error of a ratio over clusters, Cochran 1977, "Sampling
Techniques", section 9A.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy import sparse

from shortlist import checks
from shortlist.embedding.randomised_svd import right_singular_vectors
from shortlist.errors import InvalidParameter
from shortlist.linear import bilinear, learned_prior
from shortlist.linear.learned_prior import LearnedPrior
from shortlist.types import Matrix, Rows, Vector

TRAINED_SHARE = 0.9
MIN_JUDGED_KEYS = 5  # the gains of fewer say nothing of how much these vary
MOST_KEYS = 2_000  # that the prior is fitted from
MOST_PRIOR_NUMBERS = 1 << 25  # of their sums, 256 MB
BLOCK_NUMBERS = 1 << 21  # of the sums of keys that are worked on together
LENGTH_PERCENTILE = 99.9


@dataclass(frozen=True, slots=True, eq=False)
class Contexts:
    """The context of each reward. ``interactions``: on how many directions of the arms it acts; None: all.

    Shape: numbers (n, m).
    """

    numbers: Matrix
    interactions: int | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Rewards:
    """Rewards in the order of time, of keys that are numbered below ``key_count``.

    Shapes: keys, arms, values (n,).
    """

    keys: Rows
    arms: Rows
    values: Vector
    key_count: int
    contexts: Contexts | None = None

    def __len__(self) -> int:
        return len(self.values)

    def part(self, which: slice | Rows) -> Rewards:
        """Some of them, of the same keys."""
        contexts = self.contexts
        if contexts is not None:
            contexts = Contexts(contexts.numbers[which], contexts.interactions)
        return Rewards(self.keys[which], self.arms[which], self.values[which], self.key_count, contexts)


@dataclass(frozen=True, slots=True, eq=False)
class Judgement:
    """``error``: the standard error of ``before`` - ``after``. ``judged``: how many rewards these are of."""

    before: float
    after: float
    error: float
    judged: int

    @property
    def is_taken(self) -> bool:
        """True if the coordinates gain by more than the error."""
        return self.before - self.after > self.error


def judge(rewards: Rewards, table: Matrix, dim: int, rng: np.random.Generator) -> Judgement:
    """Return what ``dim`` coordinates of the first nine tenths gain on the last tenth.

    Shapes: table (A, T). Cost: for each of the rewards (T + d)^2, for each key (T + d)^3, three times, and
    three fits of a prior.
    Raises: InvalidShape, NonFinite, InvalidParameter (too few keys or rewards).
    """
    checks.shape("table", table, (None, None))
    checks.finite("values", rewards.values)
    split = int(TRAINED_SHARE * len(rewards))
    if split == len(rewards) or not split:
        raise InvalidParameter("rewards must be at least 10", argument="rewards")
    first, last = rewards.part(slice(None, split)), rewards.part(slice(split, None))
    judged_keys = len(np.unique(last.keys))
    if judged_keys < MIN_JUDGED_KEYS:
        message = f"the last tenth of the rewards must be of at least {MIN_JUDGED_KEYS} keys"
        raise InvalidParameter(message, argument="rewards")
    embedded = coordinates(first, table, dim, rng)
    before = squared_errors(first, last, table, rng)
    after = squared_errors(first, last, np.hstack((table, embedded)), rng)
    gains = before - after
    gain = float(gains.mean())
    by_key = np.bincount(last.keys, gains - gain, minlength=rewards.key_count)
    error = float(np.sqrt(np.square(by_key).sum() * judged_keys / (judged_keys - 1))) / len(gains)
    return Judgement(float(before.mean()), float(after.mean()), error, len(gains))


def coordinates(rewards: Rewards, table: Matrix, dim: int, rng: np.random.Generator) -> Matrix:
    """Return c of every arm; zeros of arms without rewards. Shapes: table (A, T) -> (A, dim).

    Raises: InvalidParameter (too few keys, or ``dim`` is above the rank of E).
    """
    missed = rewards.values - estimates(rewards, rewards, table, rng)
    shape = (rewards.key_count, len(table))
    summed = sparse.coo_array((missed.astype(np.float32), (rewards.keys, rewards.arms)), shape=shape).tocsr()
    found = right_singular_vectors(summed, dim, rng)
    vectors = found.vectors.astype(np.float64) * found.values
    counts = np.bincount(rewards.arms, minlength=len(table))[:, None]
    vectors /= np.percentile(np.linalg.norm(vectors, axis=1), LENGTH_PERCENTILE)
    shrunk: Matrix = vectors * (counts / (counts + 1.0))
    return shrunk


def squared_errors(seen: Rewards, judged: Rewards, features: Matrix, rng: np.random.Generator) -> Vector:
    """Return (r - x.theta_u)^2 of the judged rewards, by learners of those that were seen.

    Shape: (judged,).
    """
    errors: Vector = np.square(judged.values - estimates(seen, judged, features, rng))
    return errors


def estimates(seen: Rewards, asked: Rewards, features: Matrix, rng: np.random.Generator) -> Vector:
    """Return x.theta_u for each of the rewards ``asked``, by learners of those that were ``seen``.

    Shapes: features (A, D) -> (asked,). Raises: InvalidParameter: too few keys have rewards.
    """
    joint = _JointFeatures.of(features, seen)
    order, starts = _by_key(seen)
    keys = np.flatnonzero(np.diff(starts))
    sample = np.sort(rng.permutation(keys)[: prior_keys(joint.dim)])
    prior = _prior(seen, order, starts, sample, joint)
    asked_order, asked_starts = _by_key(asked)
    result = np.empty(len(asked))
    for block in _blocks(np.arange(seen.key_count), joint.dim):
        grams, moments, _ = _sums(seen, order, starts, block, joint)
        thetas = np.linalg.solve(grams + prior.precision, (moments + prior.pull)[..., None])[..., 0]
        places = asked_order[asked_starts[block[0]] : asked_starts[block[-1] + 1]]
        key_thetas = thetas[asked.keys[places] - block[0]]
        result[places] = np.einsum("nd,nd->n", joint.rows(asked, places), key_thetas)
    return result


def prior_keys(dim: int) -> int:
    """Return from how many keys the prior of D numbers is fitted at most."""
    return min(MOST_KEYS, max(learned_prior.MIN_KEYS, MOST_PRIOR_NUMBERS // dim**2))


@dataclass(frozen=True, slots=True, eq=False)
class _JointFeatures:
    """The features for learners: of arms, in the contexts of decisions if any, and 1.

    Shapes: arms (A, T + 1), or (A, T) with contexts; directions (p, T), None: all. ``dim`` is D.
    """

    arms: Matrix
    directions: Matrix | None
    dim: int

    @classmethod
    def of(cls, features: Matrix, rewards: Rewards) -> _JointFeatures:
        contexts, size = rewards.contexts, features.shape[1]
        if contexts is None:
            return cls(np.column_stack((features, np.ones(len(features)))), None, size + 1)
        count, directions = size, None
        if contexts.interactions is not None:
            count = min(contexts.interactions, size)
            directions = bilinear.directions(features.T @ features, count)
        return cls(features, directions, size + count * contexts.numbers.shape[1] + 1)

    def rows(self, rewards: Rewards, places: Rows) -> Matrix:
        """The features of some rewards. Shapes: places (n,) -> (n, D)."""
        features = self.arms[rewards.arms[places]]
        if rewards.contexts is None:
            return features
        numbers = bilinear.phi(features, self.directions, rewards.contexts.numbers[places])
        return np.column_stack((numbers, np.ones(len(numbers))))


def _prior(seen: Rewards, order: Rows, starts: Rows, keys: Rows, joint: _JointFeatures) -> LearnedPrior:
    grams, moments, squares = _sums(seen, order, starts, keys, joint)
    weights = np.diff(starts)[keys].astype(np.float64)
    prior = learned_prior.fit(grams, moments[:, None], squares[:, None, None], weights)
    if prior is None:
        least = learned_prior.MIN_KEYS
        message = f"keys with rewards must be at least {least}, and a reward other than 0"
        raise InvalidParameter(message, argument="rewards")
    return prior


def _by_key(rewards: Rewards) -> tuple[Rows, Rows]:
    """The rewards by key, and where those of each key begin. Shapes: (n,), (keys + 1,)."""
    counts = np.bincount(rewards.keys, minlength=rewards.key_count)
    starts = np.concatenate((np.zeros(1, np.int64), np.cumsum(counts)))
    return np.argsort(rewards.keys, kind="stable"), starts


def _sums(
    seen: Rewards, order: Rows, starts: Rows, keys: Rows, joint: _JointFeatures
) -> tuple[np.ndarray[tuple[int, int, int], np.dtype[np.float64]], Matrix, Vector]:
    """Sums of x x^T, of x r and of r^2 of these keys. Shapes: (k, D, D), (k, D), (k,)."""
    dim = joint.dim
    grams, moments, squares = np.zeros((len(keys), dim, dim)), np.zeros((len(keys), dim)), np.zeros(len(keys))
    for position, key in enumerate(keys.tolist()):
        rows = order[starts[key] : starts[key + 1]]
        features, values = joint.rows(seen, rows), seen.values[rows]
        grams[position], moments[position], squares[position] = (
            features.T @ features,
            values @ features,
            values @ values,
        )
    return grams, moments, squares


def _blocks(keys: Rows, dim: int) -> Iterator[Rows]:
    step = max(1, BLOCK_NUMBERS // dim**2)
    for start in range(0, len(keys), step):
        yield keys[start : start + step]
