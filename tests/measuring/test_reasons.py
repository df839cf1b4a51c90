"""Which rewards of a key speak for an arm."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from app.measuring.reasons import rewards_of
from headless_service import HeadlessService
from logged_rows import row

pytestmark = pytest.mark.anyio


async def test_rewards_from_before_a_move_are_no_reasons(service: HeadlessService):
    """They are of features of another catalogue, though its arms have the same ids and revisions."""
    bandit = await service.bandit()
    rows = []
    for time, value in ((1_000, 2.0), (2_000, 3.0)):
        choice = await service.choose(bandit)
        rows.append(row(value, arms=[choice.arms[0].id], decision=choice.decision, time=time, key="ann"))
    record = msgspec.structs.replace(bandit.record, moved_ms=1_500)
    moved = msgspec.structs.replace(bandit, record=record)
    reasons = await rewards_of(service.parts.catalogues, moved, rows)
    assert reasons is not None
    np.testing.assert_array_equal(reasons.values, [3.0])
