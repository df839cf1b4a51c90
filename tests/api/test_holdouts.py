"""The holdout: who is in it, what it is served, and that its propensities are those of the draw.

Shares of fixed keys are rejected beyond 4 standard deviations, those of decisions whose ids are random beyond
5.5, which happens by chance once in 2e7; counts of draws beyond their 1e-7 quantile.
"""

from __future__ import annotations

import numpy as np
import pytest

from app.bandits.settings import HoldoutRule
from app.selection.holdout import group_of

pytestmark = pytest.mark.anyio
SIGMAS, SIGMAS_OF_RANDOM_IDS, ALARM = 4.0, 5.5, 1e-7
KEYS = [f"user-{number}" for number in range(10_000)]


def in_share(count: int, total: int, share: float, sigmas: float = SIGMAS) -> bool:
    return abs(count - total * share) <= sigmas * np.sqrt(total * share * (1 - share))


@pytest.mark.parametrize("share", [0.01, 0.1, 0.5, 0.9])
def test_the_share_of_the_keys_is_in_the_holdout(share: float):
    rule = HoldoutRule(share)
    for bandit in ("home", "search"):
        held = sum(group_of(bandit, key, rule) == "holdout" for key in KEYS)
        assert in_share(held, len(KEYS), share)
