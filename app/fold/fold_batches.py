"""Folding a batch of the log: the learners written whole, and the tails extended by entries. Without I/O."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import TypeAlias

from app.bandits.spaces import Spaces
from app.fold.arm_sums import NOTHING_TAUGHT, AnySums, Taught, fold_arms
from app.fold.checkpoints import is_due, restored, tail_bytes
from app.fold.fold import LeaveOut, fold, moves_of, reason_of
from app.records.log_entries import (
    DecodedEntry,
    ForgetEntry,
    Item,
    MoveEntry,
    RewardEntry,
    StateEntry,
    dim_of,
)
from app.records.records import LearnerState, state_to_bytes
from app.storage.types import ArmId, DeadLetter, FoldedCounts, LearnerId, LogEntry, StoredLearner

log = logging.getLogger("shortlist.worker")

MOST_NUMBERS = 1 << 22  # in the states of all current batches, 32 MiB: at least one, whatever its dimension
REPLACING = ForgetEntry | StateEntry  # entries after which nothing is left of what the learner knew
MOST_TAUGHT = 2_000  # entries that a batch takes out of arms, of at least one learner: some ten milliseconds

States = Mapping[LearnerId, LearnerState | None]
Before: TypeAlias = "Mapping[LearnerId, CheckpointedLearner | StoredLearner]"


@dataclass(frozen=True, slots=True)
class CheckpointedLearner:
    """A learner as it is at the watermark of its partition; ``tail`` is the number of bytes of its tail."""

    state: LearnerState | None
    tail: int = 0


@dataclass(frozen=True, slots=True)
class ArmsBefore:
    """Sums of arms at the watermark. ``taught``: the contributions of forgotten learners."""

    sums: Mapping[ArmId, AnySums | None] = field(default_factory=dict)
    taught: Taught = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Folded:
    """The outcome of a batch.

    ``states``       the new states of changed learners
    ``checkpoints``  learners of them written whole; None: removed
    ``tails``        of the others, the entries for the end of their tails
    ``dead``         the entries left out
    ``learners``     the learners of the batch afterwards, except small new ones
    ``counts``       of each bandit, the number of folded entries other than moves
    ``moved``        of each moved bandit, the last folded move
    ``arms``         the new sums of changed arms; None: of no decision
    ``known_arms``   arms of them whose stored sums go on: after a move sums begin anew
    """

    states: States
    checkpoints: Mapping[LearnerId, bytes | None]
    tails: Mapping[LearnerId, Sequence[str]]
    dead: Sequence[DeadLetter]
    learners: Mapping[LearnerId, CheckpointedLearner]
    counts: Mapping[str, FoldedCounts]
    moved: Mapping[str, int]
    arms: Mapping[ArmId, AnySums | None]
    known_arms: AbstractSet[ArmId]


def batches(
    entries: Sequence[DecodedEntry], most_numbers: int = MOST_NUMBERS, taught: Taught = NOTHING_TAUGHT
) -> Iterator[Sequence[DecodedEntry]]:
    """Cut the entries where the states of a batch would take more memory than ``most_numbers``, and where
    more than ``MOST_TAUGHT`` entries would be taken out of arms.
    """
    start, numbers, entries_taken = 0, 0, 0
    learners = set[LearnerId]()
    for number, (entry, content) in enumerate(entries):
        learner, needed = entry.learner, dim_of(content) ** 2
        more = len(taught.get(entry.entry_id, ()))
        is_large = learner not in learners and numbers + needed > most_numbers
        # At least one learner, however large: else nothing would ever be folded.
        if learners and (is_large or (entries_taken and entries_taken + more > MOST_TAUGHT)):
            yield entries[start:number]
            start, numbers, entries_taken, learners = number, 0, 0, set()
        entries_taken += more
        if learner not in learners:
            learners.add(learner)
            numbers += needed
    if entries:
        yield entries[start:]


def fold_stored(
    before: Before,
    entries: Sequence[DecodedEntry],
    spaces: Spaces = Spaces(),
    arms: ArmsBefore = ArmsBefore(),
) -> Folded:
    """Fold a batch into all learners of its entries, and into the ``arms`` named there.

    An unreadable learner stays as it is, and all its entries are left out.
    """
    dead: dict[str, DeadLetter] = {}

    def leave_out(entry: LogEntry, reason: str) -> None:
        log.error("entry %s is a dead letter: %s", entry.entry_id, reason)
        dead[entry.entry_id] = DeadLetter(entry, reason)

    learners = _restored(before, entries, leave_out)
    sound = [item for item in entries if item.entry.entry_id not in dead] if dead else entries
    states = fold({learner: item.state for learner, item in learners.items()}, sound, leave_out, spaces)
    # a dead letter must be in no tail: folding the tail would fail on it each time
    sound = [item for item in sound if item.entry.entry_id not in dead] if dead else sound
    checkpoints, tails = _checkpoints_and_tails(states, learners, before, sound)
    # What is a dead letter now has taught nothing.
    taught = {
        forget: [item for item in entries_of_forgotten if item.entry.entry_id not in dead]
        for forget, entries_of_forgotten in arms.taught.items()
    }
    sums = fold_arms(arms.sums, sound, spaces.folded, taught) if arms.sums else {}
    # A move fits the bandit's prior. Another fit for each entry of a move, in each partition,
    # would make every process read every learner once more.
    counted = [item for item in sound if not isinstance(item.content, MoveEntry)]
    folded = Counter(entry.learner.bandit_uid for entry, _ in counted)
    replaced = Counter(
        entry.learner.bandit_uid for entry, content in counted if isinstance(content, REPLACING)
    )
    former_sums = {arm: arms.sums.get(arm) for arm in sums}
    return Folded(
        states,
        checkpoints,
        tails,
        [dead[entry.entry_id] for entry, _ in entries if entry.entry_id in dead] if dead else [],
        learners,
        {uid: FoldedCounts(count, replaced[uid]) for uid, count in folded.items()},
        moves_of(entries),
        sums,
        {
            arm
            for arm, new_sums in sums.items()
            if (was := former_sums[arm]) and (new_sums is None or new_sums.space == was.space)
        },
    )


def _restored(
    before: Before, entries: Sequence[DecodedEntry], leave_out: LeaveOut
) -> dict[LearnerId, CheckpointedLearner]:
    """The learners before the batch; of one that cannot be read all entries are left out."""
    learners = dict[LearnerId, CheckpointedLearner]()
    for learner, item in before.items():
        if isinstance(item, CheckpointedLearner):
            learners[learner] = item
            continue
        try:
            learners[learner] = CheckpointedLearner(restored(learner, item), tail_bytes(item.tail))
        except Exception as error:
            reason = f"the learner's state cannot be read: {reason_of(error)}"
            for entry, _ in entries:
                if entry.learner == learner:
                    leave_out(entry, reason)
    return learners


def _checkpoints_and_tails(
    states: States,
    learners: dict[LearnerId, CheckpointedLearner],
    before: Before,
    sound: Sequence[DecodedEntry],
) -> tuple[dict[LearnerId, bytes | None], dict[LearnerId, Sequence[str]]]:
    """The changed learners written whole, and the entries for the tails of the others.

    ``learners`` has the learners before, and those of the batch afterwards. ``sound``: the folded entries.
    """
    # The entries of a forgotten learner are going to be erased: no tail may need them.
    replaced = {entry.learner for entry, content in sound if isinstance(content, REPLACING)}
    added: dict[LearnerId, list[Item]] = {}
    for entry, content in sound:
        if isinstance(content, RewardEntry) and entry.learner not in replaced:
            added.setdefault(entry.learner, []).append((entry, content))
    checkpoints: dict[LearnerId, bytes | None] = {}
    tails: dict[LearnerId, Sequence[str]] = {}
    for learner, state in states.items():
        new, was, stored = added.get(learner, ()), learners.get(learner), before.get(learner)
        tail = tail_bytes(entry for entry, _ in new) + (0 if was is None else was.tail)
        was_read = isinstance(stored, StoredLearner)
        # A tail can only add. A removed, forgotten, restored or unreadable learner is written whole, and so
        # is one whose tail could not be folded without its moves.
        if (
            state is None
            or was is None
            or not new
            or _is_carried(was.state, state, new)
            or is_due(state, tail, was_read=was_read)
        ):
            checkpoints[learner] = None if state is None else state_to_bytes(state)
            learners[learner] = CheckpointedLearner(state)
            # many keys are rewarded once, and then not for long
            if isinstance(stored, StoredLearner) and not (stored.checkpoint or stored.tail):
                del learners[learner]
        else:
            tails[learner] = [entry.entry_id for entry, _ in new]
            learners[learner] = CheckpointedLearner(state, tail)
    return checkpoints, tails


def _is_carried(was: LearnerState | None, state: LearnerState, new: Sequence[Item]) -> bool:
    """True if folding its tail into its checkpoint would need the moves."""
    if not state.space:
        return False
    if was is not None and was.space != state.space:
        return True
    return any(reward.space != state.space for _, reward in new)
