"""Folding a batch of the log: which learners are written whole, and to which tails it goes. Without I/O."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from app.bandits.spaces import Spaces
from app.fold.arm_sums import NOTHING_TAUGHT, AnySums, Taught, fold_arms
from app.fold.checkpoints import is_due, restored, tail_bytes
from app.fold.fold import fold, moves_of, reason_of
from app.records.log_entries import DecodedEntry, Item, MoveEntry, RewardEntry, dim_of
from app.records.records import LearnerState, state_to_bytes
from app.storage.types import ArmId, DeadLetter, FoldedCounts, LearnerId, LogEntry, StoredLearner

log = logging.getLogger("shortlist.worker")

MOST_NUMBERS = 1 << 22  # in the states of all current batches, 32 MiB: at least one, whatever its dimension
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
    """Sums of arms at the watermark. ``taught``: what learners that are forgotten have taught them."""

    sums: Mapping[ArmId, AnySums | None] = field(default_factory=dict)
    taught: Taught = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Folded:
    """What becomes of a batch.

    ``states``       the new states of the learners that have changed
    ``checkpoints``  those of them that are written whole; None: removed
    ``tails``        of the others, the entries that are put at the end of their tails
    ``dead``         the entries that were left out
    ``kept``         the learners of the batch as they are afterwards, save small ones that are new
    ``counts``       of each bandit, how many entries were folded that are not of a move
    ``moved``        of each bandit that was moved, the last move that was folded
    ``arms``         the new sums of the arms that have changed; None: of no decision
    """

    states: States
    checkpoints: Mapping[LearnerId, bytes | None]
    tails: Mapping[LearnerId, Sequence[str]]
    dead: Sequence[DeadLetter]
    kept: Mapping[LearnerId, CheckpointedLearner]
    counts: Mapping[str, FoldedCounts]
    moved: Mapping[str, int]
    arms: Mapping[ArmId, AnySums | None]


def batches(
    entries: Sequence[DecodedEntry], most_numbers: int = MOST_NUMBERS, taught: Taught = NOTHING_TAUGHT
) -> Iterator[Sequence[DecodedEntry]]:
    """Cut the entries where the states of a batch would take more memory than ``most_numbers``, and where it
    would take more than ``MOST_TAUGHT`` entries out of arms.
    """
    start, numbers, taken = 0, 0, 0
    learners = set[LearnerId]()
    for number, (entry, content) in enumerate(entries):
        learner, needed = entry.learner, dim_of(content) ** 2
        more = len(taught.get(entry.entry_id, ()))
        is_large = learner not in learners and numbers + needed > most_numbers
        # At least one learner, however large: else nothing would ever be folded.
        if learners and (is_large or (taken and taken + more > MOST_TAUGHT)):
            yield entries[start:number]
            start, numbers, taken, learners = number, 0, 0, set()
        taken += more
        if learner not in learners:
            learners.add(learner)
            numbers += needed
    if entries:
        yield entries[start:]


def numbers_of(entries: Sequence[DecodedEntry]) -> int:
    """How many numbers the states of a batch have, about."""
    dims = {entry.learner: dim_of(content) for entry, content in entries}
    return sum(dim**2 for dim in dims.values())


def fold_stored(
    before: Before,
    entries: Sequence[DecodedEntry],
    spaces: Spaces = Spaces(),
    arms: ArmsBefore = ArmsBefore(),
) -> Folded:
    """Fold a batch into all learners of its entries, and into the ``arms`` that they name.

    A learner that cannot be read stays as it is, and all its entries are left out.
    """
    dead: dict[str, DeadLetter] = {}

    def leave_out(entry: LogEntry, reason: str) -> None:
        log.error("entry %s is a dead letter: %s", entry.entry_id, reason)
        dead[entry.entry_id] = DeadLetter(entry, reason)

    kept, broken = _restored(before)
    sound = entries
    if broken:
        for entry, _ in entries:
            if reason := broken.get(entry.learner):
                leave_out(entry, reason)
        sound = [each for each in entries if each.entry.learner not in broken]
    states = fold({learner: each.state for learner, each in kept.items()}, sound, leave_out, spaces)
    read = {learner for learner, each in before.items() if isinstance(each, StoredLearner)}
    if dead:
        # a dead letter must be in no tail: folding the tail would fail on it each time
        sound = [each for each in sound if each.entry.entry_id not in dead]
    added, counts = _added(sound)
    checkpoints: dict[LearnerId, bytes | None] = {}
    tails: dict[LearnerId, Sequence[str]] = {}
    for learner, state in states.items():
        new = added.get(learner, ())
        tail = tail_bytes(entry for entry, _ in new) + (kept[learner].tail if learner in kept else 0)
        # A tail can only add. A learner that was removed, forgotten, given a state, carried to another space
        # or unreadable is written whole.
        is_whole = state is None or not new or learner not in kept or _is_carried(kept[learner], state, new)
        if is_whole or state is None or is_due(state, tail, was_read=learner in read):
            checkpoints[learner] = None if state is None else state_to_bytes(state)
            kept[learner] = CheckpointedLearner(state)
        else:
            tails[learner] = [entry.entry_id for entry, _ in new]
            kept[learner] = CheckpointedLearner(state, tail)
    for learner, each in before.items():  # many keys are rewarded once, and then not for long
        if learner in checkpoints and isinstance(each, StoredLearner) and not (each.checkpoint or each.tail):
            kept.pop(learner, None)
    letters = [dead[entry.entry_id] for entry, _ in entries if entry.entry_id in dead] if dead else []
    # What is a dead letter now has taught nothing.
    taught = {
        forget: [each for each in own if each.entry.entry_id not in dead]
        for forget, own in arms.taught.items()
    }
    sums = fold_arms(arms.sums, sound, spaces.folded, taught) if arms.sums else {}
    return Folded(states, checkpoints, tails, letters, kept, counts, moves_of(entries), sums)


def _is_carried(before: CheckpointedLearner, state: LearnerState, new: Sequence[Item]) -> bool:
    """Whether folding its tail into its checkpoint would need to know of moves."""
    if not state.space:
        return False
    was = before.state
    return (was is not None and was.space != state.space) or any(
        reward.space != state.space for _, reward in new
    )


def _added(
    entries: Sequence[DecodedEntry],
) -> tuple[Mapping[LearnerId, Sequence[Item]], Mapping[str, FoldedCounts]]:
    """The rewards that were folded into each learner; nothing for those that were forgotten, or given a
    state. And how many entries, but for those of moves, were folded for each bandit.

    The entries of a forgotten learner are going to be erased: no tail may need them.
    """
    added: dict[LearnerId, list[Item]] = {}
    whole, folded, replaced = set[LearnerId](), Counter[str](), Counter[str]()
    for entry, content in entries:
        # Whoever moves a bandit fits its prior. To fit it again for each entry of a move, in each partition,
        # would make every process read every learner once more.
        if isinstance(content, MoveEntry):
            continue
        folded[entry.learner.bandit_uid] += 1
        if isinstance(content, RewardEntry):
            added.setdefault(entry.learner, []).append((entry, content))
        else:  # it forgets its learner, or gives it a state
            whole.add(entry.learner)
            replaced[entry.learner.bandit_uid] += 1
    counts = {uid: FoldedCounts(count, replaced[uid]) for uid, count in folded.items()}
    return {learner: items for learner, items in added.items() if learner not in whole}, counts


def _restored(before: Before) -> tuple[dict[LearnerId, CheckpointedLearner], dict[LearnerId, str]]:
    """The learners, and the reason for each that cannot be read."""
    readable: dict[LearnerId, CheckpointedLearner] = {}
    broken: dict[LearnerId, str] = {}
    for learner, stored_learner in before.items():
        try:
            if not isinstance(stored_learner, CheckpointedLearner):
                tail = tail_bytes(stored_learner.tail) if stored_learner.tail else 0
                readable[learner] = CheckpointedLearner(restored(learner, stored_learner), tail)
            else:
                readable[learner] = stored_learner
        except Exception as error:
            broken[learner] = f"the learner's state cannot be read: {reason_of(error)}"
    return readable, broken
