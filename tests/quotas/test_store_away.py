"""The store is away: choices go on with the shares that are there, and those that need more are refused."""

from __future__ import annotations

from collections import Counter

import pytest

from app.bandits.bandit import Bandit
from app.bandits.settings import LogRule, RepeatsRule
from app.frequency_caps.caps import FrequencyCapKey, FrequencyCaps
from app.platform.errors import NotFound, Unavailable
from app.platform.metrics import Metrics
from app.policies.request import ChooseRequest
from app.quotas.rules import QuotaRule
from app.storage.types import LearnerId
from headless_service import HeadlessService

pytestmark = pytest.mark.anyio

AWAY = {"quotas.share", "write_once.put", "rows.write"}


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


async def test_choices_that_need_more_than_there_is_are_refused_and_others_go_on(service: HeadlessService):
    await service.catalogue()
    bandit = await service.bandit(policy="softmax", temperature=1.0, log=LogRule())
    await service.parts.quotas.put(bandit, "q", QuotaRule(1_000, arm="a0"))
    await service.parts.quotas.put(bandit, "over", QuotaRule(0, arm="a1"))
    before = await chosen(service, bandit, 40)
    shares = service.parts.quotas.ledgers[bandit.uid]
    await shares.refill()
    await shares.refresh(shares.by_id["q"])  # waits for a refill that the service itself had under way
    service.store.refuse |= AWAY
    left = shares.by_id["q"].left
    assert left > 0
    # An arm of three is drawn ``left`` times within so many choices, but for a chance below 1e-20.
    found = await chosen(service, bandit, 6 * left + 300)
    assert found["a0"] <= left
    assert found["refused"] > 0
    assert found["a2"] > 20
    assert found["a3"] > 20
    assert found["a1"] == 0
    service.store.refuse -= AWAY
    after = await chosen(service, bandit, 40)
    assert after["a0"] > 0
    assert after["refused"] == 0
    await shares.sync_with_store()
    state = await service.parts.quotas.get(bandit, "q")
    assert state.used == before["a0"] + found["a0"] + after["a0"]


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


async def test_what_rows_name_is_stored_before_the_last_quota_is_forgotten(service: HeadlessService):
    """The store refuses just that at first, so that no round stores it before the quota is deleted."""
    await service.catalogue()
    bandit = await service.bandit(policy="softmax", temperature=1.0, log=LogRule())
    quotas, ledgers = service.parts.quotas, service.parts.quotas.ledgers
    await quotas.put(bandit, "over", QuotaRule(0, arm="a1"))
    service.store.refuse |= {"write_once.put"}
    choice = await service.choose(bandit)
    with pytest.raises(Unavailable):
        await quotas.delete(bandit, "over")
    assert not ledgers[bandit.uid].by_id
    service.store.refuse.clear()
    # The same changes are read again, as by a poll.
    with pytest.raises(NotFound):
        await quotas.get(bandit, "over")
    assert bandit.uid not in ledgers
    await service.parts.rows.flush()
    logged = await service.parts.decision_log.find(bandit, choice.decision)
    assert logged is not None
    assert logged.row.barred is not None
    assert logged.row.barred.arms == ["a1"]
