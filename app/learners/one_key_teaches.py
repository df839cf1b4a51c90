"""Notices that one key gives most rewards of an arm, or of all arms, of a bandit with arm effects.

An effect is of all keys together, so such a key moves the choices of all others. The newest entries of the
reward log are counted, ``MOST_ENTRIES`` of each partition: all rewards of a key are in one of them.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

from app.fold.arm_sums import arm_of
from app.records.log_entries import decoded
from app.records.records import pack, unpack
from app.storage.store import Store
from app.storage.types import LearnerId

LEAST_REWARDS = 100  # fewer say nothing of who gives them
MOST_SHARE = 0.5  # of one key
MOST_ENTRIES = 10_000
PAGE = 1_000
SHOWN_MS = 86_400_000
_NAME = "one-key-teaches:"


class OneKeyTeaches(msgspec.Struct, frozen=True, array_like=True):
    """``arm``: '' of all arms together; else the arm with most rewards, of those taught by one key.
    ``rewards``: the number counted, of all keys. The key stays unnamed, as keys may be forgotten.
    """

    arm: str
    rewards: int


async def look(store: Store, bandit_uids: Iterable[str]) -> None:
    """Keep the findings of these bandits, if any, for ``SHOWN_MS``.

    Cost: reads the end of the log of each partition. Raises Unavailable.
    """
    counts: dict[str, Counter[tuple[str, LearnerId]]] = {uid: Counter() for uid in bandit_uids}
    for partition in range(store.partitions):
        before, left = "+", MOST_ENTRIES
        while left:
            page = await store.rewards.read_back(partition, before, PAGE)
            for entry in page:
                uid = entry.learner.bandit_uid
                if uid in counts and (arm := arm_of(decoded(entry))) is not None:
                    counts[uid][arm.arm, entry.learner] += 1
            if len(page) < PAGE:
                break
            before, left = page[-1].entry_id, left - PAGE
    for uid, by_arm_and_key in counts.items():
        if (finding := finding_of(by_arm_and_key)) is not None:
            # In the store, for every process.
            await store.write_once.put(None, _NAME + uid, pack(finding), ttl_ms=SHOWN_MS)


async def found_lately(store: Store, bandit_uids: Sequence[str]) -> dict[str, OneKeyTeaches]:
    """The recent findings of these bandits. Raises Unavailable."""
    # Side by side they leave in one pipeline: a status looks at all bandits.
    stored = await asyncio.gather(*(store.write_once.get(None, _NAME + uid) for uid in bandit_uids))
    pairs = zip(bandit_uids, stored, strict=True)
    return {uid: unpack(data, OneKeyTeaches) for uid, data in pairs if data is not None}


def finding_of(counts: Counter[tuple[str, LearnerId]]) -> OneKeyTeaches | None:
    """``counts``: rewards by arm and key."""
    by_key, by_arm, largest = Counter[LearnerId](), Counter[str](), Counter[str]()
    for (arm, key), count in counts.items():
        by_key[key] += count
        by_arm[arm] += count
        largest[arm] = max(largest[arm], count)
    if by_key.total() >= LEAST_REWARDS and max(by_key.values()) > MOST_SHARE * by_key.total():
        return OneKeyTeaches("", by_key.total())
    for arm, count in by_arm.most_common():
        if count >= LEAST_REWARDS and largest[arm] > MOST_SHARE * count:
            return OneKeyTeaches(arm, count)
    return None
