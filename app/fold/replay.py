"""Replay: the reward log folded again from its start, and compared bit for bit with the stored states.

Dead letters are left out here, too. Of a trimmed log a learner is compared if its version says that all its
entries are there; others, and such sums of arms, count as older than the log.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from app.bandits.spaces import Moves, Spaces
from app.fold.arm_sums import AnySums, fold_arms, folded_sums, forgets, taught_by
from app.fold.checkpoints import read_together, restored
from app.fold.fold import fold, moves_of
from app.fold.log_pages import counted_pages, pages
from app.records.log_entries import decoded, decoded_all
from app.records.records import LearnerState, bytes_to_state, state_to_bytes
from app.storage.arm_effects import MERGED
from app.storage.store import Store
from app.storage.types import UID_LENGTH, ArmId, LearnerId, StoredLearner, entry_order

PAGE_BYTES = 1 << 20  # of states that are read together: the store takes a few milliseconds for them


@dataclass(slots=True)
class Comparison:
    """Numbers of replayed entries, of equal learners and arms, and of those older than the log; and the
    names of the different ones.
    """

    entries: int = 0
    equal: int = 0
    older: int = 0
    different: list[str] = field(default_factory=list)


async def compare(store: Store) -> Comparison:
    """Replay every partition. A service may be running: each partition is compared at its watermark."""
    result = Comparison()
    bandits = {
        data[:UID_LENGTH].decode(): name for name, data in (await store.registry.read()).bandits.items()
    }
    for partition in range(store.partitions):
        await _compare(store, partition, bandits, result)
    return result


async def _compare(store: Store, partition: int, bandits: Mapping[str, str], result: Comparison) -> None:
    watermark, learners, sums = await _stored(store, partition, list(bandits))
    folded = {uid: last for uid, last in (await store.moves.folded(partition)).items() if uid in bandits}
    maps = await Moves(store.moves).maps(folded)
    stored = {
        identity: _encoded(identity, learner, Spaces(folded, maps)) for identity, learner in learners.items()
    }
    replayed: dict[LearnerId, LearnerState | None] = {}
    arms: dict[ArmId, AnySums | None] = {}
    first = await anext(pages(store, partition, watermark), None)
    is_complete = watermark == "0-0" if first is None else entry_order(first[0].entry_id)[1] <= 1
    spaces = Spaces(await _moves_before(store, partition, watermark, folded), maps)
    async for page in counted_pages(store, partition, watermark):
        entries = decoded_all(entry for entry in page if entry.learner.bandit_uid in bandits)
        result.entries += len(entries)
        replayed.update(fold(replayed, entries, lambda entry, reason: None, spaces))  # noqa: ARG005
        taught = await taught_by(store, partition, list(filter(forgets, entries)))
        arms.update(fold_arms(arms, entries, spaces.folded, taught))
        spaces = Spaces({**spaces.folded, **moves_of(entries)}, maps)
    replayed = {
        learner: spaces.carried(learner.bandit_uid, state, folded.get(learner.bandit_uid, 0))
        for learner, state in replayed.items()
    }
    for learner in sorted({*stored, *(identity for identity, state in replayed.items() if state)}):
        state, data = replayed.get(learner), stored.get(learner)
        if data == (None if state is None else state_to_bytes(state)):
            result.equal += 1
        elif not is_complete and _version(data) > (state.version if state else 0):
            result.older += 1
        else:
            result.different.append(f"{bandits[learner.bandit_uid]}/{learner.name}")
    for arm in sorted({*sums, *(identity for identity, arm_sums in arms.items() if arm_sums)}):
        stored_sums, replayed_sums = sums.get(arm), arms.get(arm)
        if stored_sums == replayed_sums:
            result.equal += 1
        elif stored_sums is None or stored_sums.version > (replayed_sums.version if replayed_sums else 0):
            # They were merged, those of a deleted arm were dropped, or an erased key has taught it.
            result.older += 1
        else:
            result.different.append(f"{bandits[arm.bandit_uid]}, arm {arm.arm}")


async def _stored(
    store: Store, partition: int, uids: Sequence[str]
) -> tuple[str, Mapping[LearnerId, StoredLearner], Mapping[ArmId, AnySums]]:
    """The watermark, with learners and sums of arms at this watermark."""
    watermark = await store.learners.watermark(partition)
    # Page by page: the store does nothing else while it reads one. What is folded meanwhile is read again.
    learners: Mapping[LearnerId, StoredLearner] = {}
    changed: Sequence[LearnerId] | None = None
    while True:
        read = await _read(store, partition, uids, changed)
        learners = read if changed is None else {**learners, **read}
        sums = {
            ArmId(uid, arm, revision): own
            for uid in uids
            async for page in store.effects.all_sums(partition, uid)
            for (arm, revision), data in page.items()
            if revision != MERGED  # nothing of it is in the log in this form
            for own in (folded_sums(revision, data),)
        }
        changes = (await store.learners.changed({partition: watermark}))[partition]
        if watermark == changes.watermark:
            existing = {learner: stored for learner, stored in learners.items() if stored != StoredLearner()}
            return watermark, existing, sums
        watermark, changed = changes.watermark, changes.learners


async def _read(
    store: Store, partition: int, uids: Sequence[str], changed: Sequence[LearnerId] | None
) -> Mapping[LearnerId, StoredLearner]:
    """Read the learners of the bandits among these, as stored; None: all of the bandits."""
    result = dict[LearnerId, StoredLearner]()
    for uid in uids:
        if changed is None:
            names = await store.learners.names(partition, uid)
            wanted = [LearnerId(uid, name) for name in names]
        else:
            wanted = [learner for learner in changed if learner.bandit_uid == uid]
        together = 1  # how large the states of this bandit are is known once one is read
        while wanted:
            page, wanted = wanted[:together], wanted[together:]
            stored = await store.learners.stored(partition, page)
            result.update(zip(page, stored, strict=True))
            together = read_together(max(map(_size, stored)), most_bytes=PAGE_BYTES)
    return result


def _size(stored: StoredLearner) -> int:
    return len(stored.checkpoint or b"") + sum(len(entry.payload) for entry in stored.tail)


async def _moves_before(
    store: Store, partition: int, until: str, folded: Mapping[str, int]
) -> Mapping[str, int]:
    """Return of each bandit the last move before the log begins: its entry may have been trimmed."""
    last_moves = dict(folded)
    if folded:
        async for page in pages(store, partition, until):
            for entry in page:
                for uid, number in moves_of([decoded(entry)]).items():
                    last_moves[uid] = min(last_moves.get(uid, number), number - 1)
    return last_moves


def _encoded(identity: LearnerId, stored: StoredLearner, spaces: Spaces) -> bytes | None:
    """The state in the form of a checkpoint; None for an unreadable one, which no log gives.

    Carries a learner through the folded moves it has not gone through yet.
    """
    try:
        uid = identity.bandit_uid
        state = spaces.carried(uid, restored(identity, stored), spaces.folded.get(uid, 0))
    except Exception:
        return b"unreadable"
    return None if state is None else state_to_bytes(state)


def _version(data: bytes | None) -> int:
    try:
        return bytes_to_state(data).version if data is not None else -1
    except (ValueError, struct.error):
        return -1
