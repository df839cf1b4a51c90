"""The holdout: who is in it, what it is served, and that its propensities are those of the draw.

Shares are rejected beyond 4 standard deviations, which happens by chance in 1 of 16,000 tests; counts of
draws beyond their 1e-7 quantile. Seeds and keys are fixed, but not the decisions of a global bandit without
either: their tests fail by chance that often.
"""

from __future__ import annotations

import numpy as np
import pytest

from app.bandits.settings import HoldoutRule
from app.policies.request import group_of

pytestmark = pytest.mark.anyio
SIGMAS, ALARM = 4.0, 1e-7
KEYS = [f"user-{number}" for number in range(10_000)]


def in_share(count: int, total: int, share: float) -> bool:
    return abs(count - total * share) <= SIGMAS * np.sqrt(total * share * (1 - share))


@pytest.mark.parametrize("share", [0.01, 0.1, 0.5, 0.9])
def test_the_share_of_the_keys_is_in_the_holdout(share: float):
    rule = HoldoutRule(share)
    for bandit in ("home", "search"):
        held = sum(group_of(bandit, key, rule) == "holdout" for key in KEYS)
        assert in_share(held, len(KEYS), share)
