"""The common arms of two catalogues, and the map from the features of the one to the other.

Everything here is a computation on snapshots, for a thread.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from app.bandits.bandit import Bandit
from app.indexes.snapshot import Snapshot
from app.records.records import LearnerState
from shortlist.linear import feature_map, history_prior
from shortlist.linear.feature_map import FeatureMap
from shortlist.linear.learned_prior import LearnedPrior
from shortlist.types import Matrix, Vector

MOST_FITTED = 20_000  # arms by which a map is fitted
MOST_PRODUCTS = 2e10  # of two numbers, in a fit: some seconds
MOST_SHOWN = 50  # times that an arm was shown: more say little more of how learners depend on it
NEVER_SHOWN = 0.1  # what an arm counts that the log does not show: so that the map is known everywhere
HISTORY_R2 = 0.5  # of the old features, by the new ones, for a history to come along
MOST_COMPARED = 1_000  # arms by which estimates are compared


@dataclass(frozen=True, slots=True, eq=False)
class CommonArms:
    """Arms of both catalogues, in one order. ``only_from``, ``only_to``: how many one of them lacks.

    Shapes: ids (n,), old (n, d), new (n, d').
    """

    ids: list[str]
    old: Matrix
    new: Matrix
    count: int
    only_from: int
    only_to: int


def common_arms(old: Snapshot, new: Snapshot, shown: Mapping[str, int]) -> CommonArms:
    """The common arms; where they are very many, shown ones and an even sample of others.

    ``shown``: how often arms were shown. Cost: one look-up for each arm, and a read of the features.
    """
    rows = old.eligible()
    ids = [old.id_of(row) for row in rows.tolist()]
    new_rows = new.table.row_of_each(ids)
    both = np.flatnonzero(new_rows >= 0)
    products = old.table.dim * max(old.table.dim, new.table.dim) * (len(feature_map.RIDGES) + 2)
    most, fitted_by = int(min(MOST_FITTED, max(4 * old.table.dim, MOST_PRODUCTS / products))), both
    if len(both) > most:
        often = np.array([shown.get(ids[position], 0) for position in both.tolist()])
        first = np.argsort(-often, kind="stable")[: most // 2]
        others = np.setdiff1d(np.arange(len(both)), first)
        fitted_by = both[np.union1d(first, others[:: -(-len(others) // (most - len(first)))])]
    return CommonArms(
        [ids[position] for position in fitted_by.tolist()],
        old.features_of(rows[fitted_by]).astype(np.float64),
        new.features_of(new_rows[fitted_by]).astype(np.float64),
        count=len(both),
        only_from=len(rows) - len(both),
        only_to=new.size - len(both),
    )


@dataclass(frozen=True, slots=True, eq=False)
class ArmMap:
    """Between the features of the arms of two catalogues.

    ``forward``     from old features to new ones
    ``directions``  P' = P B (p, d'), where B (d, d') is the map the other way; None: there is no context
    ``by_log``      whether arms count by how often they were shown; else all alike
    """

    forward: FeatureMap
    directions: Matrix | None
    by_log: bool


def fitted(arms: CommonArms, shown: Mapping[str, int], bandit: Bandit) -> ArmMap:
    """The map of a bandit's arms, affine where its learners have an intercept."""
    often = np.array([min(shown.get(arm, 0), MOST_SHOWN) for arm in arms.ids], dtype=float)
    by_log = bool(often.any())
    weights = np.maximum(np.sqrt(often), NEVER_SHOWN) if by_log else np.ones(len(often))
    forward = feature_map.fit(arms.old, arms.new, weights, intercept=bandit.record.intercept)
    directions = None
    if bandit.context is not None:
        directions = feature_map.fit(arms.new, arms.old, weights, intercept=False).linear
        if bandit.context.directions is not None:
            directions = bandit.context.directions @ directions
    return ArmMap(forward, directions, by_log)


def transform_of(arms: ArmMap, bandit: Bandit, constant: float | None) -> Matrix:
    """T for the learners of a bandit. ``constant``: of its intercept in the new catalogue. Shape: (D', D)."""
    constants = None
    if bandit.record.intercept and bandit.record.constant is not None and constant is not None:
        constants = bandit.record.constant, constant
    dim = bandit.catalogue.dim
    interactions = 0 if bandit.context is None else bandit.context.more_numbers(dim)
    interactions += bandit.match_dim
    return feature_map.of_learner(arms.forward, interactions=interactions, constants=constants)


def moved_history(
    history: LearnedPrior, arms: CommonArms, bandit: Bandit, constant: float | None
) -> LearnedPrior | None:
    """The prior of a history, for the features of another catalogue; None: these hardly tell the old ones,
    and the mapped prior would be far too sure. ``constant``: as in ``transform_of``.
    """
    back = feature_map.fit(arms.new, arms.old, np.ones(len(arms.ids)), intercept=bandit.record.intercept)
    if back.r2 < HISTORY_R2:
        return None
    constants = None
    if bandit.record.intercept and bandit.record.constant is not None and constant is not None:
        constants = constant, bandit.record.constant
    return history_prior.moved(history, feature_map.of_learner(back, constants=constants))


def agreement(
    arms: CommonArms,
    bandit: Bandit,
    before: Sequence[LearnerState],
    moved: Bandit,
    after: Sequence[LearnerState],
) -> float | None:
    """The correlation of the estimates of arms by learners before and after a move; None: of no learner.

    ``after``: the learners of ``before``, in the same order. Compares at most ``MOST_COMPARED`` arms.
    """
    if not before:
        return None
    rows = np.linspace(0, len(arms.ids) - 1, min(len(arms.ids), MOST_COMPARED)).astype(int)
    return feature_map.agreement(
        np.array([_estimates(bandit, state, arms.old[rows]) for state in before]),
        np.array([_estimates(moved, state, arms.new[rows]) for state in after]),
    )


def _estimates(bandit: Bandit, state: LearnerState, features: Matrix) -> Vector:
    """A learner's estimates of arms, in a context of zeros and without ``match``. Shapes: (n, d) -> (n,)."""
    theta = bandit.posterior(state.sums).theta
    if bandit.context is not None:
        theta, _ = bandit.context.weights(theta)
    theta, offset = bandit.theta_and_offset(theta)
    estimates: Vector = features @ theta + offset
    return estimates
