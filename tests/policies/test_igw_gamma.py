"""The automatic gamma of inverse-gap weighting: by how many candidates there are to begin with."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from app.indexes.live import LiveIndex
from app.indexes.snapshot import Snapshot
from app.policies import igw
from app.policies.targets import EvaluationBatch, Lists
from app.selection.list_limits import AtMost, Limits
from shortlist.linear import igw as algorithm
from shortlist.linear import scales
from shortlist.types import NO_ROWS

ARMS, UNIT = 6, 4.0


@pytest.fixture
def arms() -> Snapshot:
    """Of arms whose estimates are tenths of their rows."""
    index = LiveIndex(1)
    index.upsert([f"a{row}" for row in range(ARMS)], np.arange(float(ARMS))[:, None] / 10, range(ARMS))
    return index.snapshot()


def propensity(row: int, left: list[int], candidates: int) -> float:
    estimates, gamma = np.array(left) / 10, scales.GAMMA * candidates / UNIT
    return float(algorithm.propensities(estimates, gamma=gamma)[left.index(row)])


@pytest.mark.parametrize("within_limits", [False, True])
def test_arms_that_were_drawn_still_count_as_candidates(arms: Snapshot, within_limits: bool) -> None:
    limits = Limits([AtMost("maker", 1)], arms, NO_ROWS) if within_limits else None
    rng = np.random.default_rng(3)
    drawn = igw.draw(
        arms, np.ones(1), NO_ROWS, k=4, count=ARMS, gamma=None, unit=UNIT, rng=rng, limits=limits
    )
    left = [*range(ARMS)]
    for row, found in zip(drawn.hits.rows.tolist(), drawn.propensities.tolist(), strict=True):
        assert found == pytest.approx(propensity(row, left, ARMS))
        left.remove(row)


def test_an_evaluation_counts_the_candidates_that_the_choice_had(arms: Snapshot) -> None:
    """Two arms were excluded from it."""
    excluded, left = np.array([0, 5]), [1, 2, 3, 4]
    bandit: Any = SimpleNamespace(context=None, theta_and_offset=lambda theta: (theta, 0.0))
    posterior: Any = SimpleNamespace(theta=np.ones(1), unit=UNIT)
    situations = EvaluationBatch(bandit, ["one"], [posterior], np.zeros(1, np.int64), None, [excluded])
    target = igw.IgwTarget(arms, NO_ROWS, ARMS, None, 1)
    prepared = target.prepare(situations, lambda: None)
    rows = np.array(left)[:, None]
    weighed = target.weigh(situations, prepared, Lists(np.zeros(4, np.int64), rows, rows / 10))
    expected = [propensity(row, left, len(left)) for row in left]
    assert weighed.propensities[:, 0] == pytest.approx(expected)
    drawable, counts = target.drawn(situations, prepared[0], 0)
    assert dict(zip(drawable.tolist(), counts.tolist(), strict=True)) == pytest.approx(
        dict(zip(left, expected, strict=True))
    )
