"""Which quotas a process knows, while others change them and replies are lost."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from app.bandits.settings import LogRule, RepeatsRule
from app.exposure_limits.caps import FrequencyCapKey
from app.exposure_limits.quotas import KEPT_MS, Quotas
from app.exposure_limits.rules import BanditQuota, QuotaRule
from app.platform.errors import NotFound, Unavailable
from app.platform.metrics import Metrics
from app.storage.store import Store
from app.storage.types import LearnerId
from headless_service import HeadlessService
from lossy_store import LossyStore

pytestmark = pytest.mark.anyio

UID = "0123456789abcdef"


async def put(store: Store) -> None:
    quota = BanditQuota.of_rule("q", "0" * 16, QuotaRule(1, arm="a"))
    assert await store.quotas.put(UID, "q", quota.record, b"", quota.rule.terms(quota.uid), most=9)


async def test_quotas_that_could_not_be_read_are_read_in_the_next_round(store: Store):
    await put(store)
    lossy: Any = LossyStore(store)
    quotas = Quotas(lossy, Metrics())
    lossy.refuse.add("quotas.changes")
    with pytest.raises(Unavailable):
        await quotas.replace({UID: 1})
    lossy.refuse.clear()
    await quotas.replace({UID: 1})
    assert [*quotas.of] == [UID]


async def test_those_of_a_bandit_that_is_gone_are_known_no_more(store: Store):
    await put(store)
    quotas = Quotas(store, Metrics())
    await quotas.replace({UID: 1})
    await store.quotas.erase(UID)
    await quotas.replace({})
    assert not quotas.of


async def test_others_hear_of_a_quota_whose_deletion_was_answered_to_nobody(service: HeadlessService):
    await service.catalogue()
    bandit = await service.bandit()
    await service.parts.quotas.put(bandit, "q", QuotaRule(1, arm="a1"))
    noted = (await service.store.registry.read()).quotas[bandit.uid]
    service.store.lose.append("quotas.delete")
    with pytest.raises(Unavailable):
        await service.parts.quotas.delete(bandit, "q")
    with pytest.raises(NotFound):
        await service.parts.quotas.delete(bandit, "q")
    assert (await service.store.registry.read()).quotas[bandit.uid] == noted + 1


class TrimmedStore:
    """A store that notes until when changes are trimmed."""

    def __init__(self, store: Store) -> None:
        self._quotas = store.quotas
        self.quotas, self.trimmed_ms = self, list[int]()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._quotas, name)

    async def trim(self, bandit_uid: str, before_ms: int) -> None:
        self.trimmed_ms.append(before_ms)


async def test_changes_are_kept_longer_than_the_rows_that_name_them(store: Store, service: HeadlessService):
    await put(store)
    trimmed: Any = TrimmedStore(store)
    quotas = Quotas(trimmed, Metrics())
    await quotas.replace({UID: 1})
    catalogue = (await service.bandit()).catalogue
    bandit: Any = SimpleNamespace(
        uid=UID, record=SimpleNamespace(log=LogRule(keep_s=3_600.0)), catalogue=catalogue
    )
    await quotas.poll([bandit])
    (before_ms,) = trimmed.trimmed_ms
    assert before_ms <= quotas.of[UID].known.now_ms - KEPT_MS - 3_600_000


def test_of_a_global_bandit_a_cap_applies_to_visitors_alone():
    def subject(scope: str, learner: str, visitor: str | None) -> LearnerId | None:
        record = SimpleNamespace(repeats=RepeatsRule(most=1, within_s=5.0), scope=scope)
        bandit: Any = SimpleNamespace(uid="b", record=record)
        found = FrequencyCapKey.of(bandit, LearnerId("b", learner), visitor)
        return None if found is None else found.key

    assert subject("global", "", None) is None
    assert subject("global", "", "ann") == LearnerId("b", "ann")
    assert subject("per_key", "bob", None) == LearnerId("b", "bob")
