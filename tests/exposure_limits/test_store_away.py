"""The store is away: choices that would show what has a limit are refused, and others go on."""

from __future__ import annotations

from collections import Counter

import pytest

from app.bandits.bandit import Bandit
from app.bandits.settings import LogRule, RepeatsRule
from app.exposure_limits.caps import FrequencyCapKey, FrequencyCaps
from app.exposure_limits.rules import QuotaRule
from app.platform.errors import Unavailable
from app.platform.metrics import Metrics
from app.selection.request import ChooseRequest
from app.storage.types import LearnerId
from headless_service import HeadlessService

pytestmark = pytest.mark.anyio

AWAY = {"quotas.count", "rows.write"}


async def chosen(service: HeadlessService, bandit: Bandit, times: int) -> Counter[str]:
    """How often each arm was chosen, and how many choices were refused, by ``refused``."""
    found = Counter[str]()
    for _ in range(times):
        try:
            choice = await service.choose(bandit)
        except Unavailable:
            found["refused"] += 1
        else:
            found.update(arm.id for arm in choice.arms)
    return found


async def test_what_has_a_quota_is_refused_and_other_arms_are_shown(service: HeadlessService):
    await service.catalogue()
    bandit = await service.bandit(policy="softmax", temperature=1.0, log=LogRule())
    await service.parts.quotas.put(bandit, "q", QuotaRule(1_000, arm="a0"))
    await service.parts.quotas.put(bandit, "over", QuotaRule(0, arm="a1"))
    before = await chosen(service, bandit, 40)
    service.store.refuse |= AWAY
    # An arm of three is drawn in so many choices, but for a chance below 1e-16.
    found = await chosen(service, bandit, 100)
    assert (found["a0"], found["a1"]) == (0, 0)
    assert min(found["refused"], found["a2"], found["a3"]) > 0
    service.store.refuse -= AWAY
    after = await chosen(service, bandit, 40)
    assert after["a0"] > 0
    assert after["refused"] == 0
    state = await service.parts.quotas.get(bandit, "q")
    assert state.used == before["a0"] + after["a0"]


async def test_what_is_refused_by_repeats_is_given_back(service: HeadlessService):
    await service.catalogue()
    bandit = await service.bandit(repeats=RepeatsRule(most=1, within_s=60.0))
    await service.parts.quotas.put(bandit, "q", QuotaRule(10, arm="a3"))
    service.store.refuse |= {"frequency_caps.take"}
    for _ in range(5):
        with pytest.raises(Unavailable):
            await service.choose(bandit, k=4)
    service.store.refuse.clear()
    assert len((await service.choose(bandit, k=4)).arms) == 4
    assert (await service.parts.quotas.get(bandit, "q")).used == 1


async def test_a_seeded_choice_that_begins_again_draws_as_if_there_had_been_no_other_try(
    service: HeadlessService,
):
    """What it drew first is shown by another process just before it counts."""
    await service.catalogue("many", arms=40)
    rule = RepeatsRule(most=1, within_s=60.0)
    bandit = await service.bandit("seeded", "many", policy="softmax", temperature=9.0, repeats=rule)
    request, expected = ChooseRequest(key="ann", k=3, seed=1), list[str]()
    first = (await service.parts.dry_runs.run(bandit, request)).arms[0].id

    async def meanwhile() -> None:
        caps = FrequencyCaps(service.store.frequency_caps, Metrics())  # type: ignore[arg-type]
        assert await caps.record(FrequencyCapKey(rule, LearnerId(bandit.uid, "ann")), [("other", first)])
        expected.extend(arm.id for arm in (await service.parts.dry_runs.run(bandit, request)).arms)

    service.store.before["frequency_caps.take"] = meanwhile
    choice = await service.choose(bandit, k=3, seed=1)
    assert first not in expected
    assert [arm.id for arm in choice.arms] == expected
