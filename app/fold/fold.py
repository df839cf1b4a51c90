"""The fold of the reward log: the one function from a log to learners.

Pure, and equal to the bit however the log is cut into batches. So a replay of the log from its
start gives the stored states again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, cast

from app.bandits.spaces import Spaces
from app.fold.entry_rows import rows_of
from app.fold.learner_sums import merged, state_of, states_after
from app.platform.errors import ShortlistError
from app.records.log_entries import (
    DecodedEntry,
    ForgetEntry,
    Item,
    MoveEntry,
    RewardEntry,
    StateEntry,
    Unreadable,
    dim_of,
)
from app.records.records import LearnerState, bytes_to_state
from app.storage.types import LearnerId, LogEntry

log = logging.getLogger("shortlist.fold")

States = dict[LearnerId, LearnerState | None]
LeaveOut = Callable[[LogEntry, str], None]
Act = Callable[[States, Sequence[Any], LeaveOut, Spaces], Iterable[LearnerId]]
SHORT_FOLD = 62_500  # sum of squared dimensions: about 55 entries of dimension 32, or 4 of 128
STATE_STEPS = 12  # so many times as long takes an entry with a state, which is carried and merged


def is_short(entries: Iterable[DecodedEntry]) -> bool:
    """Return whether a fold takes about a millisecond: a thread would cost more.

    Stops at the first entry beyond, so a decoding iterator decodes no further.
    """
    steps = 0
    for _, content in entries:
        steps += dim_of(content) ** 2 * (STATE_STEPS if isinstance(content, StateEntry) else 1)
        if steps > SHORT_FOLD:
            return False
    return True


def log_only(entry: LogEntry, reason: str) -> None:
    """Leave an entry out, and say so in the process's log."""
    log.error("entry %s is left out: %s", entry.entry_id, reason)


def fold(
    states: Mapping[LearnerId, LearnerState | None],
    entries: Iterable[DecodedEntry],
    leave_out: LeaveOut = log_only,
    spaces: Spaces = Spaces(),
) -> States:
    """Return the states after ``entries`` of the changed learners.

    An entry may also forget its learner, or give a state to a learner without one (``records.log_entries``).
    An entry with any mistake is left out.

    ``states``      before, at least of all learners of the entries; None: without rewards
    ``entries``     of one partition, in the order of the log
    ``leave_out``   called with each entry left out, and the reason
    ``spaces``      of moved bandits. After the entry of a move a learner is carried before its next entry is
                    added, and entries of earlier spaces are mapped
    """
    # Copies: the caller may have the states in a cache, and folds again if the store refuses them.
    # ``changed`` is a dictionary for its order, which does not depend on hashes, unlike a set's.
    current, changed = dict(states), dict[LearnerId, None]()
    # ``_move`` writes to it.
    spaces = Spaces(dict(spaces.folded), spaces.maps)
    # Only neighbours of one kind are folded together: the entry of a forgotten or restored learner must see
    # all earlier entries, and no later ones.
    for kind, group in groupby(entries, key=lambda decoded: type(decoded.content)):
        changed.update(dict.fromkeys(_ACTS[kind](current, list(group), leave_out, spaces)))
    return {learner: current[learner] for learner in changed}


def continued(
    learner: LearnerId, state: LearnerState | None, tail: Iterable[DecodedEntry]
) -> LearnerState | None:
    """Return the state of a learner after the entries of its tail, which ``fold`` has folded before.

    Bit-identical to the result of ``fold``. Raises ValueError (an entry ``fold`` took before is refused now:
    the store is damaged).
    """
    return fold({learner: state}, tail, _refuse).get(learner, state)


def learned(items: Sequence[Item]) -> States:
    """Make learners of nothing but these rewards.

    As ``fold``, but for rounding: the rewards of a learner are one product of matrices. States
    can be ``merged``. Cost: D^2 for each reward. Raises InvalidShape, NonFinite.
    """
    return {learner: state_of(rows_of(rewards)) for learner, rewards in _by_learner(items).items()}


def _by_learner(items: Sequence[Item]) -> dict[LearnerId, list[Item]]:
    by_learner: dict[LearnerId, list[Item]] = {}
    for item in items:
        by_learner.setdefault(item[0].learner, []).append(item)
    return by_learner


def _refuse(entry: LogEntry, reason: str) -> None:
    raise ValueError(f"entry {entry.entry_id} of its tail cannot be folded: {reason}")


def moves_of(entries: Iterable[DecodedEntry]) -> dict[str, int]:
    """The last move of each bandit among these entries."""
    return spaces_of(decoded for decoded in entries if isinstance(decoded.content, MoveEntry))


def spaces_of(entries: Iterable[DecodedEntry]) -> dict[str, int]:
    """The latest space of each bandit named by its entries; none of entries without a space."""
    spaces = dict[str, int]()
    for entry, content in entries:
        if isinstance(content, RewardEntry | MoveEntry) and content.space:
            uid = entry.learner.bandit_uid
            spaces[uid] = max(content.space, spaces.get(uid, 0))
    return spaces


def reason_of(error: Exception) -> str:
    """The reason of an error, in words without any content of the entry."""
    return f"{type(error).__name__}: {error.detail if isinstance(error, ShortlistError) else error}"[:200]


def _leave_out(
    current: States, items: Iterable[tuple[LogEntry, Unreadable]], leave_out: LeaveOut, spaces: Spaces
) -> Iterable[LearnerId]:
    for entry, content in items:
        leave_out(entry, content.reason)
    return ()


def _move(
    current: States, items: Iterable[tuple[LogEntry, MoveEntry]], leave_out: LeaveOut, spaces: Spaces
) -> Iterable[LearnerId]:
    """All learners of the bandit are of another space from here on; each is carried with its next entry."""
    # A copy made by ``fold``.
    folded = cast("dict[str, int]", spaces.folded)
    for entry, move in items:
        uid = entry.learner.bandit_uid
        folded[uid] = max(folded.get(uid, 0), move.space)
    return ()


def _learn(
    current: States, items: Sequence[Item], leave_out: LeaveOut, spaces: Spaces
) -> Iterable[LearnerId]:
    """Add rewards to their learners; those of one kind together."""
    by_learner = _by_learner(items)
    by_kind: dict[object, dict[LearnerId, list[Item]]] = {}
    for learner, added_items in by_learner.items():
        # Nearly always. Only around a move each entry has to be looked at by itself.
        state, (_, reward) = current.get(learner), added_items[0]
        space = reward.space if state is None else state.space
        is_moved = spaces.folded.get(learner.bandit_uid, 0) > space
        if not is_moved and all(each.space == space for _, each in added_items):
            # one call of ridge_sums takes rows of one length, all discounted or none
            kind = len(reward.features), bool(reward.half_life_s), space
            by_kind.setdefault(kind, {})[learner] = added_items
        else:
            _add_across(current, learner, added_items, leave_out, spaces)
    for group in by_kind.values():
        _add(current, group, leave_out)
    return by_learner


def _add_across(
    current: States, learner: LearnerId, items: Sequence[Item], leave_out: LeaveOut, spaces: Spaces
) -> None:
    """Add items one after the other, each in the latest of the spaces of the state, the log and the item."""
    uid = learner.bandit_uid
    for entry, reward in items:
        state = current.setdefault(learner, None)
        # Never back: a map between spaces has no inverse.
        to = max(reward.space, spaces.folded.get(uid, 0), 0 if state is None else state.space)
        try:
            current[learner] = spaces.carried(uid, state, to)
            # As if the reward had been in the carried state: the order does not matter.
            alone = None if reward.space == to else state_of(rows_of([(entry, reward)]))
            later = spaces.carried(uid, alone, to)
        except Exception as error:  # as in ``_add``
            leave_out(entry, reason_of(error))
            continue
        if alone is None:
            _add(current, {learner: [(entry, reward)]}, leave_out)
        elif later is not None:
            current[learner] = merged(current[learner], later)


def _forget(
    current: States, items: Sequence[tuple[LogEntry, ForgetEntry]], leave_out: LeaveOut, spaces: Spaces
) -> Iterator[LearnerId]:
    for entry, _ in items:
        current[entry.learner] = None
        yield entry.learner


def _give(
    current: States, items: Iterable[tuple[LogEntry, StateEntry]], leave_out: LeaveOut, spaces: Spaces
) -> Iterator[LearnerId]:
    """Give learners states, which only those without any reward take: what was learned is never replaced."""
    for entry, given_state in items:
        learner = entry.learner
        if current.get(learner) is not None:
            continue
        try:
            state, uid = bytes_to_state(given_state.state), learner.bandit_uid
            carried = spaces.carried(uid, state, max(spaces.folded.get(uid, 0), state.space))
        except Exception as error:  # as in ``_add``
            leave_out(entry, reason_of(error))
            continue
        if carried is not None:  # else nothing of its space is
            current[learner] = carried
            yield learner


_ACTS: Mapping[type, Act] = {
    RewardEntry: _learn,
    StateEntry: _give,
    ForgetEntry: _forget,
    MoveEntry: _move,
    Unreadable: _leave_out,
}


def _add(current: States, group: Mapping[LearnerId, list[Item]], leave_out: LeaveOut) -> None:
    """Add all learners together; after a failure each item by itself."""
    try:
        # One product of matrices for all learners of a kind is several times as fast as one for each.
        rows = rows_of([item for items in group.values() for item in items])
        states = states_after(
            [current.get(learner) for learner in group], list(map(len, group.values())), rows
        )
        current.update(zip(group, states, strict=True))
    except Exception as error:  # an entry may be wrong in any way; the others are folded
        alone = [(learner, item) for learner, items in group.items() for item in items]
        if len(alone) > 1:
            for learner, item in alone:
                _add(current, {learner: [item]}, leave_out)
        else:
            ((learner, (entry, _)),) = alone
            # ``fold`` looks up every learner that was tried, also one of which this was the only entry
            current.setdefault(learner, None)
            leave_out(entry, reason_of(error))
