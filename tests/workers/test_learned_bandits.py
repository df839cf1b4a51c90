"""What a worker that serves no bandit is told of those that are made and changed."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import pytest

from app.bandits.settings import BanditRecord
from app.bandits.versions import BanditVersion, version_to_bytes
from app.records.records import CatalogueRecord, with_uid
from app.storage.store import Store
from app.storage.types import BanditChange
from workers.learned_bandits import LearnedBandits

pytestmark = [pytest.mark.anyio, pytest.mark.rest]


async def test_of_bandits_that_are_made_or_changed_no_other_is_looked_at(store: Store):
    bandits, told = LearnedBandits(store), list[Iterable[str] | None]()
    await bandits.poll(told.append)
    told.clear()
    await store.registry.create_catalogue("c", with_uid("c" * 16, CatalogueRecord(3, {"kind": "auto"})))
    record = BanditRecord(catalogue="c", policy="sub_ts", scope="per_key", prior="learned")
    stored = {uid: version_to_bytes(uid, BanditVersion(record)) for uid in ("1" * 16, "2" * 16)}
    for uid, data in stored.items():
        await store.registry.create_bandit(uid[0], data, catalogue="c")
        await bandits.poll(told.append)
    assert told == [{"1" * 16}, {"2" * 16}]
    later = msgspec.structs.replace(record, arm_effects="auto")
    await store.registry.change_bandit(
        "1",
        "1" * 16,
        BanditChange({}),
        expected=stored["1" * 16],
        record=version_to_bytes("1" * 16, BanditVersion(later, 2)),
    )
    await bandits.poll(told.append)
    assert told[2:] == [{"1" * 16}]
