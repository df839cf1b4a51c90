"""The learned priors that a process serves."""

from types import SimpleNamespace
from typing import Any

import pytest

from app.bandits.prior_version import PriorVersion, version_of, version_to_bytes
from app.learners.learned_priors import LearnedPriors

pytestmark = [pytest.mark.anyio, pytest.mark.rest]

BEGUN_MS, LATEST_MS = 1_000, 4_000_000_000_000


class TwoVersions:
    """A store with an old version of a prior, and one that was made in the future."""

    async def changes(self) -> int:
        return 1

    async def numbers(self) -> dict[str, int]:
        return {"uid": 2}

    async def read(self, uid: str, number: int) -> bytes:
        return version_to_bytes(version_of(number, BEGUN_MS if number == 1 else LATEST_MS, None))


async def test_a_look_at_an_earlier_version_does_not_make_what_is_served_old():
    def with_prior(version: PriorVersion | None) -> Any:
        return SimpleNamespace(prior=version)

    bandit: Any = SimpleNamespace(uid="uid", record=SimpleNamespace(prior="learned"), with_prior=with_prior)
    store: Any = TwoVersions()
    priors = LearnedPriors(store, capacity_bytes=1 << 20)
    await priors.sync()
    newest = await priors.serving(bandit)
    assert newest.prior is not None
    assert newest.prior.number == 2
    earlier = await priors.then(bandit, 1)
    assert earlier is not None
    assert earlier.prior is not None
    assert earlier.prior.number == 1
    assert priors.cached(bandit) is newest, "it is not made again"
    assert priors.oldest_s() == 0.0
