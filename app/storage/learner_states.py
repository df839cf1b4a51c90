"""The states of learners on Redis: a hash of checkpoints and a set of tails for each bandit and partition."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from app.platform.deadlines import yield_to_others
from app.storage import redis_keys as keys
from app.storage.part import RedisPart, log_entry
from app.storage.redis_client import Argument
from app.storage.types import DeadLetter, FoldedCounts, LearnerChanges, LogEntry, StoredLearner
from app.storage.types.decisions import UID_LENGTH, ArmId, LearnerId

MOST_LISTED = 10_000  # names of learners in one answer, and those of one more partition
_CHANGES_OF = keys.log, keys.watermark, keys.learner_changes


class LearnerStates(RedisPart):
    """Checkpoints and tails, by partition and learner."""

    changes_kept = keys.CHANGES_KEPT
    most_listed = MOST_LISTED

    async def watermark(self, partition: int) -> str:
        """The watermark; "0-0" before the first."""
        entry_id: bytes | None = await self._redis.command("GET", keys.watermark(partition))
        return (entry_id or b"0-0").decode()

    async def stored(
        self, partition: int, learners: Sequence[LearnerId], known: Mapping[LearnerId, str] | None = None
    ) -> Sequence[StoredLearner]:
        """Read the states of these learners in the partition; all at one moment.

        ``known`` has the last entry folded by the caller, by learner. If the tail has this entry, only the
        entries after it are read (``continues``).
        """
        # A script needs at least one key.
        if not learners:
            return []
        # Bandits by number: their uids would be repeated for each learner.
        numbers = _numbered(learners)
        arguments: list[Argument] = []
        for learner in learners:
            arguments += (numbers[learner[0]], learner[1], (known or {}).get(learner, ""))
        names = [keys.log(partition), *_of_bandits(partition, numbers)]
        checkpoints, *tails = await self._redis.script("stored", names, arguments, bulk=len(learners) > 1)
        result = list(map(StoredLearner, checkpoints))
        for index, continues, tail in tails:
            await yield_to_others()  # some tails have hundreds of entries
            result[index] = StoredLearner(checkpoints[index], _entries(tail), bool(continues))
        return result

    async def names(self, partition: int, uid: str) -> Sequence[str]:
        """The names of the learners of a bandit in the partition, in order. Cost: one step for each."""
        names = [keys.states(partition, uid), keys.tails(partition, uid)]
        return sorted({name.decode() for name in await self._redis.script("learner_names", names)})

    async def apply(
        self,
        partition: int,
        *,
        expected: str,
        watermark: str,
        states: Mapping[LearnerId, bytes | None],
        tails: Mapping[LearnerId, Sequence[str]] | None = None,
        dead: Sequence[DeadLetter] = (),
        folded: Mapping[str, FoldedCounts] | None = None,
        moved: Mapping[str, int] | None = None,
        arms: Mapping[ArmId, bytes | None] | None = None,
        known_arms: Collection[ArmId] = (),
    ) -> bool:
        """Compare and set: if the watermark is ``expected``, set it with all states, tails and dead letters.

        ``states`` are checkpoints: the tail of the learner goes. None removes the learner. ``tails`` are ids
        of entries, in log order, for the end of a learner's tail; the checkpoint stays. Learners of a deleted
        bandit are left out. An unchanged watermark says: no learner has changed, they only get checkpoints.
        False: the watermark is another one, and nothing was done. After a lost reply the watermark may be the
        caller's own: read the watermark again. ``folded``: by uid, the addition to ``PriorStore.folded``; of
        bandits with a learner here. ``moved``: by uid, the number of the last move whose entry is folded now.
        ``arms``: their sums; None removes them. ``known_arms``: the arms which had sums when they were read;
        sums gone since then stay away.
        """
        tails, arms = tails or {}, arms or {}
        numbers = _numbered([*states, *tails, *arms])
        moved = moved or {}
        arguments: list[Argument] = [expected, watermark, self.changes_kept, len(dead), len(moved), len(arms)]
        for letter in dead:
            arguments += (letter.entry.entry_id, letter.reason)
        for uid, number in moved.items():
            arguments += (uid, number)
        for uid in numbers:
            counts = (folded or {}).get(uid, FoldedCounts())
            arguments += (counts.entries, counts.replaced)
        for arm, sums in arms.items():
            arguments += (numbers[arm.bandit_uid], keys.sums_field(arm), sums or b"")
            arguments.append("1" if arm in known_arms else "")
        for (uid, name), state in states.items():
            arguments += (numbers[uid], name, "" if state is None else "1", state or b"")
        for (uid, name), ids in tails.items():
            arguments += (numbers[uid], name, "t", " ".join(ids))
        names = keys.of_partition(
            partition,
            keys.watermark,
            keys.log,
            keys.dead,
            keys.learner_changes,
            keys.deleted,
            keys.folded,
            keys.spaces,
        )
        for uid in numbers:
            names += (keys.states(partition, uid), keys.tails(partition, uid), keys.arm_sums(partition, uid))
        return bool(await self._redis.script("apply", names, arguments, bulk=True))

    async def changed(self, since: Mapping[int, str]) -> Mapping[int, LearnerChanges]:
        """The learners whose states have changed in each partition after its watermark in ``since``.

        A watermark of "", and one above the partition's own, count as unknown.
        """
        # On a cluster partitions are on different nodes, and one script may ask one of them.
        one_by_one = [{partition: watermark} for partition, watermark in since.items()]
        together = one_by_one if self._redis.is_cluster else [since]
        parts = await asyncio.gather(*map(self._changed, together))
        return {partition: changes for part in parts for partition, changes in part.items()}

    async def _changed(self, since: Mapping[int, str]) -> Mapping[int, LearnerChanges]:
        """The changes of partitions on one node."""
        changes_by_partition: dict[int, LearnerChanges] = {}
        # One answer lists at most ``most_listed`` names; names without room are asked for again.
        while len(changes_by_partition) < len(since):
            missing = [partition for partition in since if partition not in changes_by_partition]
            names = [name for partition in missing for name in keys.of_partition(partition, *_CHANGES_OF)]
            arguments: list[Argument] = [self.changes_kept, self.most_listed]
            arguments += (since[partition] for partition in missing)
            results = await self._redis.script("changed_learners", names, arguments)
            # Not strict: the script stops after as many partitions as the answer has room for.
            changes_by_partition.update(zip(missing, map(_changes, results), strict=False))
        return changes_by_partition


def _changes(result: Sequence[Any]) -> LearnerChanges:
    watermark, newest, *listed = result
    if not listed:
        return LearnerChanges(watermark.decode(), newest.decode())
    members: Sequence[bytes] | None = listed[0]
    # Too many changes ago: which learners have changed is not known any more, so all may have.
    if members is None:
        return LearnerChanges(watermark.decode(), newest.decode(), None)
    learners = [_learner(member) for member in members if not member.startswith(b"-")]
    removed = [_learner(member[1:]) for member in members if member.startswith(b"-")]
    return LearnerChanges(watermark.decode(), newest.decode(), learners, removed)


def _learner(member: bytes) -> LearnerId:
    return LearnerId(member[:UID_LENGTH].decode(), member[UID_LENGTH:].decode())


def _numbered(learners: Iterable[LearnerId | ArmId]) -> dict[str, int]:
    """The bandits of these learners and arms, numbered from 1."""
    uids = dict.fromkeys(uid for uid, *_ in learners)
    return {uid: number for number, uid in enumerate(uids, start=1)}


def _of_bandits(partition: int, uids: Iterable[str]) -> list[str]:
    return [key for uid in uids for key in (keys.states(partition, uid), keys.tails(partition, uid))]


def _entries(result: Sequence[tuple[bytes, Sequence[bytes]]]) -> tuple[LogEntry, ...]:
    """Entries as scripts return them: their fields are a list."""
    entries = []
    for entry_id, flat in result:
        fields: Mapping[bytes, Any] = dict(zip(flat[::2], flat[1::2], strict=True))
        entries.append(log_entry(entry_id, fields))
    return tuple(entries)
