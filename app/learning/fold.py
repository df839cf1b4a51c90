"""The fold of the reward log: the one function that decides what a log says about learners.

It is pure, and the same to the bit however the log is cut into batches. So a replay of the log from its
start gives the stored states again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby

import msgspec
import numpy as np
from numpy.typing import NDArray

from app.platform.errors import ShortlistError
from app.records.records import (
    POOLED,
    LearnerState,
    RewardPayload,
    RewardTerms,
    SignalTerms,
    bytes_to_state,
    bytes_to_vector,
    unpack,
)
from app.storage.types import LearnerId, LogEntry
from shortlist.errors import InvalidShape
from shortlist.linear import ridge_sums
from shortlist.linear.shifted_rewards import shift_features
from shortlist.linear.sum_algebra import minus, plus, scaled, weight
from shortlist.types import Matrix, Rows, Vector

log = logging.getLogger("shortlist.fold")

States = dict[LearnerId, LearnerState | None]
Item = tuple[LogEntry, RewardPayload]
LeaveOut = Callable[[LogEntry, str], None]
Act = Callable[[States, Sequence[Item], LeaveOut], Iterator[LearnerId]]
NO_TERMS = RewardTerms()
NO_SIGNAL = SignalTerms(None)
SHORT_FOLD = 4_000_000  # sum of squared payload bytes: about 55 entries of dimension 32, or 4 of 128


def pooled_of(learner: LearnerId) -> LearnerId:
    """The learner that sums all learners of the bandit in the partition: a part of the pooled prior."""
    return LearnerId(learner.bandit_uid, POOLED)


def learners_of(entries: Sequence[LogEntry]) -> list[LearnerId]:
    """The learners whose states ``fold`` needs: those that are named, and their parts of the pooled prior."""
    return sorted({each for entry in entries for each in (entry.learner, pooled_of(entry.learner))})


def is_short(entries: Iterable[LogEntry]) -> bool:
    """Whether folding takes about a millisecond: then handing it to a thread would cost more."""
    return sum(len(entry.payload) ** 2 for entry in entries) <= SHORT_FOLD


def log_only(entry: LogEntry, reason: str) -> None:
    """Leave an entry out, and say so in the process's log."""
    log.error("entry %s is left out: %s", entry.entry_id, reason)


def fold(
    states: Mapping[LearnerId, LearnerState | None],
    entries: Sequence[LogEntry],
    leave_out: LeaveOut = log_only,
) -> States:
    """Return the states after ``entries`` of the learners that they change.

    An entry may also forget its learner, or give a state to one that has none (``RewardPayload``), both also
    in the pooled prior. One that cannot be folded is left out, for any mistake in it.

    ``states``      before, at least of all ``learners_of`` the entries; None: without rewards
    ``entries``     of one partition, in the order of the log
    ``leave_out``   is called with each entry that is left out, and the reason
    """
    now, changed = dict(states), dict[LearnerId, None]()
    # Only neighbours of one kind are folded together: an entry that forgets or restores a learner must see
    # all that came before it, and nothing that came after.
    for act, group in groupby(_readable(entries, leave_out), key=lambda item: _act(item[1])):
        changed.update(dict.fromkeys(act(now, list(group), leave_out)))
    return {learner: now[learner] for learner in changed}


def continued(
    learner: LearnerId, state: LearnerState | None, tail: Sequence[LogEntry]
) -> LearnerState | None:
    """Return the state of a learner after the entries of its tail, which ``fold`` has folded into it before.

    Bit-identical to what ``fold`` made of them. What was left out of the pooled prior is left out again.
    Raises ValueError when an entry cannot be folded: it was once, so the store is damaged.
    """
    is_pooled = learner.name == POOLED
    items = [item for item in _readable(tail, _refuse) if not is_pooled or (item[1].terms or NO_TERMS).pooled]
    now = {learner: state}
    for _ in _add_to(now, items, lambda entry: learner, _ignore if is_pooled else _refuse):  # noqa: ARG005
        pass
    return now[learner]


def learned(items: Sequence[Item]) -> States:
    """What learners know that know nothing but these rewards, and the pooled prior of them if they have one.

    As ``fold`` would make it, but for rounding: the rewards of a learner are one product of matrices. States
    can be ``merged``. Cost: D^2 for each reward. Raises InvalidShape, NonFinite.
    """
    by_learner, result = dict[LearnerId, list[Item]](), States()
    for item in items:
        by_learner.setdefault(item[0].learner, []).append(item)
    for learner, own in by_learner.items():
        state = _state_of(own)
        result[learner] = state
        if (own[0][1].terms or NO_TERMS).pooled:
            result[pooled_of(learner)] = merged(result.get(pooled_of(learner)), state)
    return result


def _state_of(items: Sequence[Item]) -> LearnerState:
    """The state of a learner with these rewards alone."""
    features, values, first, before, positions = _rows(items)
    terms, time_ms, weights = items[0][1].terms or NO_TERMS, 0, None
    if terms.half_life_s:
        decided = [(payload.terms or NO_TERMS).decided_ms for _, payload in items]
        time_ms = max(decided)
        weights = np.array([weight(time_ms - each, terms.half_life_s) for each in decided])[positions]
    sums = ridge_sums.of(features, values, first, weights, before=before)
    return LearnerState(len(items), sums, time_ms, terms.half_life_s)


def _refuse(entry: LogEntry, reason: str) -> None:
    raise ValueError(f"entry {entry.entry_id} of its tail cannot be folded: {reason}")


def _ignore(entry: LogEntry, reason: str) -> None:
    pass


def replaces_state(entry: LogEntry) -> bool:
    """Whether the entry, which can be folded, forgets its learner or gives it a state."""
    return not unpack(entry.payload, RewardPayload).features


def reason_of(error: Exception) -> str:
    """What went wrong, in words that repeat nothing of the entry."""
    return f"{type(error).__name__}: {error.detail if isinstance(error, ShortlistError) else error}"[:200]


def _readable(entries: Sequence[LogEntry], leave_out: LeaveOut) -> Iterator[Item]:
    for entry in entries:
        try:
            payload = unpack(entry.payload, RewardPayload)
        except msgspec.DecodeError as error:
            leave_out(entry, reason_of(error))
        else:
            yield entry, payload


def replaced_by(entry: LogEntry, payload: RewardPayload) -> float | None:
    """The value that an entry of a bandit without signals replaces: a default or, where only the last reward
    counts, the earlier one of the same decision and arm. None: it replaces none, and is added.
    """
    if entry.came:
        return entry.came[0][1]
    return (payload.terms or NO_TERMS).default if entry.replaces else None


def signals_before(entry: LogEntry, payload: RewardPayload, count: int) -> tuple[Vector, bool]:
    """The values that the signals of its decision and arm had before an entry: received ones, and defaults.

    And whether the entry replaces the value of its own signal. Shape: (count,).
    """
    terms, had = payload.signal or NO_SIGNAL, np.zeros(count)
    had[: len(terms.defaults) // 8] = bytes_to_vector(terms.defaults)
    came = dict(entry.came)
    for signal, value in came.items():
        had[signal] = value
    own = terms.place
    is_added = entry.first or own is None or (terms.sums and own in came)
    return had, not is_added and bool(had[own or 0])


def _act(payload: RewardPayload) -> Act:
    if payload.features:
        return _learn
    return _restore if payload.state else _forget


def _learn(now: States, items: Sequence[Item], leave_out: LeaveOut) -> Iterator[LearnerId]:
    """Add rewards to their learners, and to the pooled prior those that were not left out there."""
    left_out: set[str] = set()

    def note(entry: LogEntry, reason: str) -> None:
        left_out.add(entry.entry_id)
        leave_out(entry, reason)

    yield from _add_to(now, items, lambda entry: entry.learner, note)
    pooled = [i for i in items if i[1].terms and i[1].terms.pooled and i[0].entry_id not in left_out]
    if pooled:
        # Not ``leave_out``: the entry has counted for its learner. As a dead letter it could be put back, and
        # count twice.
        yield from _add_to(now, pooled, lambda entry: pooled_of(entry.learner), log_only)


def _add_to(
    now: States, items: Sequence[Item], learner_of: Callable[[LogEntry], LearnerId], leave_out: LeaveOut
) -> Iterator[LearnerId]:
    """Add each item to the learner that ``learner_of`` names; items of one kind together."""
    by_learner: dict[LearnerId, list[Item]] = {}
    for entry, payload in items:
        by_learner.setdefault(learner_of(entry), []).append((entry, payload))
    by_kind: dict[object, dict[LearnerId, list[Item]]] = {}
    for learner, own in by_learner.items():
        by_kind.setdefault(_kind(own[0][1]), {})[learner] = own
    for group in by_kind.values():
        _add(now, group, leave_out)
    yield from by_learner


def _kind(payload: RewardPayload) -> object:
    """Learners whose items are of one kind are folded together."""
    terms = payload.terms or NO_TERMS
    # one call of ridge_sums takes rows of one length, all shifted or none, all discounted or none
    return len(payload.features), terms.shifted, bool(terms.half_life_s), payload.signal is not None


def _forget(now: States, items: Sequence[Item], leave_out: LeaveOut) -> Iterator[LearnerId]:  # noqa: ARG001
    for entry, _ in items:
        learner, pooled = entry.learner, pooled_of(entry.learner)
        own, total = now.get(learner), now.get(pooled)
        if own is not None and total is not None:
            now[pooled] = _without(total, own)
            yield pooled
        now[learner] = None
        yield learner


def _restore(now: States, items: Sequence[Item], leave_out: LeaveOut) -> Iterator[LearnerId]:
    """Only a learner without any reward takes a state: what it has learned is never replaced."""
    for entry, payload in items:
        learner, pooled = entry.learner, pooled_of(entry.learner)
        if now.get(learner) is not None:
            continue
        try:
            state = bytes_to_state(payload.state)
            total = merged(now.get(pooled), state) if payload.terms and payload.terms.pooled else None
        except Exception as error:  # as in ``_add``
            leave_out(entry, reason_of(error))
            continue
        now[learner] = state
        yield learner
        if total is not None:
            now[pooled] = total
            yield pooled


def merged(one: LearnerState | None, other: LearnerState) -> LearnerState:
    """What a learner knows that has learned what both have; as of the later of their times."""
    if one is None:
        return other
    time_ms, half_life_s = max(one.time_ms, other.time_ms), other.half_life_s
    sums = one.sums, other.sums
    if half_life_s:
        weights = (weight(time_ms - each.time_ms, half_life_s) for each in (one, other))
        sums = scaled(one.sums, next(weights)), scaled(other.sums, next(weights))
    return LearnerState(one.version + other.version, plus(*sums), time_ms, half_life_s)


def _without(pooled: LearnerState, learner: LearnerState) -> LearnerState:
    sums = learner.sums
    if learner.half_life_s:
        sums = scaled(sums, weight(pooled.time_ms - learner.time_ms, learner.half_life_s))
    left = minus(pooled.sums, sums)
    # forgetting counts as a change: by the version processes see that what they have is old
    return LearnerState(pooled.version + 1, left, pooled.time_ms, pooled.half_life_s)


def _add(now: States, group: Mapping[LearnerId, list[Item]], leave_out: LeaveOut) -> None:
    """All learners together; if that fails each by itself, and then each of its items."""
    try:
        now.update(_added(now, group))
    except Exception as error:  # an entry may be wrong in any way; the others are folded
        parts = _parts(group)
        for part in parts:
            _add(now, part, leave_out)
        if not parts:
            ((learner, [(entry, _)]),) = group.items()
            # ``fold`` looks up every learner that was tried, also one of which this was the only entry
            now.setdefault(learner, None)
            leave_out(entry, reason_of(error))


def _parts(group: Mapping[LearnerId, list[Item]]) -> list[dict[LearnerId, list[Item]]]:
    """The learners, or the items of the only one; nothing if there is but one item."""
    if len(group) > 1:
        return [{learner: items} for learner, items in group.items()]
    ((learner, items),) = group.items()
    return [{learner: [item]} for item in items] if len(items) > 1 else []


def _added(
    now: Mapping[LearnerId, LearnerState | None], group: Mapping[LearnerId, list[Item]]
) -> dict[LearnerId, LearnerState]:
    """The states after the items of a group, which are of one kind."""
    items = [item for own in group.values() for item in own]
    features, values, first, before, positions = _rows(items)
    nothing = ridge_sums.empty(features.shape[1])
    states = [now.get(learner) or LearnerState(0, nothing) for learner in group]
    if (items[0][1].terms or NO_TERMS).half_life_s:
        discounted = map(_add_discounted, states, group.values())
        return dict(zip(group, discounted, strict=True))
    counts = [len(own) for own in group.values()]
    owners = np.repeat(np.arange(len(group)), counts)[positions]
    known = [state.sums for state in states]
    sums = ridge_sums.add_each(known, owners, features, values, first, before=before)
    if items[0][1].signal is not None:  # how many a learner has must not depend on who is folded with it
        least = [max(map(signals_of, own)) for own in group.values()]
        trimmed = zip(sums, known, least, strict=True)
        sums = [each.without_signals(max(had.signals, count)) for each, had, count in trimmed]
    added = (LearnerState(s.version + n, each) for s, n, each in zip(states, counts, sums, strict=True))
    return dict(zip(group, added, strict=True))


def _add_discounted(state: LearnerState, items: Sequence[Item]) -> LearnerState:
    """The newest decision sets the time of the state, and what is older weighs less."""
    features, values, first, before, positions = _rows(items)
    factors, weights = np.ones(len(positions)), np.ones(len(items))
    time_ms, half_life_s = state.time_ms, state.half_life_s
    for place, row in enumerate(np.unique(positions, return_index=True)[1].tolist()):
        terms = items[place][1].terms or NO_TERMS
        before_ms, half_life_s = time_ms, terms.half_life_s
        time_ms = max(time_ms, terms.decided_ms)
        factors[row] = weight(time_ms - before_ms, half_life_s)
        weights[place] = weight(time_ms - terms.decided_ms, half_life_s)
    discounts = factors, weights[positions]
    sums = ridge_sums.add(state.sums, features, values, first, discounts, before=before)
    return LearnerState(state.version + len(items), sums, time_ms, half_life_s)


def _rows(items: Sequence[Item]) -> tuple[Matrix, Vector, NDArray[np.bool_], Vector, Rows]:
    """What the items add: features, values, whether the first of a decision, the sum of its rewards before,
    and of which item each row is. Values and sums are of each signal, if there are signals.

    An entry that replaces a value is two rows: one that subtracts that value, and its own. Shifted, all
    rewards R of a decision together count as R / 2 + 1 / 2 for [x']: the first of them adds the 1 / 2.

    Shapes: n rows of m items -> (n, d), (n,), (n,), (n,), (n,); m <= n <= 2 m. Of J signals (n, J) each.
    """
    if items[0][1].signal is not None:
        return _signal_rows(items)
    rows, values, first, positions = list[bytes](), list[float](), list[bool](), list[int]()
    before = list[float]()
    for place, (entry, payload) in enumerate(items):
        if (replaced := replaced_by(entry, payload)) is not None:
            rows.append(payload.features)
            # ``first`` is False for both rows: the features were added to V with the value that goes
            values.append(-replaced)
            before.append(replaced)
            first.append(False)
            positions.append(place)
        rows.append(payload.features)
        values.append(payload.value)
        before.append(entry.before)
        first.append(entry.first)
        positions.append(place)
    features = _features(rows)
    begins, added, had = np.array(first), np.array(values), np.array(before)
    if (items[0][1].terms or NO_TERMS).shifted:
        features, added, had = shift_features(features), added / 2 + begins / 2, had / 2 + ~begins / 2
    return features, added, begins, had, np.array(positions)


def _features(rows: Sequence[bytes]) -> Matrix:
    if len(set(map(len, rows))) > 1:
        raise InvalidShape("features must have the same length as in the other rewards", argument="features")
    return bytes_to_vector(b"".join(rows)).reshape(len(rows), -1)


def signals_of(item: Item) -> int:
    """How many signals an item names: those after the last of them are 0."""
    entry, payload = item
    terms = payload.signal or NO_SIGNAL
    places = [place for place, _ in entry.came]
    return max(1, len(terms.defaults) // 8, *(place + 1 for place in (*places, terms.place or 0)))


def _signal_rows(items: Sequence[Item]) -> tuple[Matrix, Vector, NDArray[np.bool_], Vector, Rows]:
    """As ``_rows``. The first item of a decision and arm brings the defaults of all signals but its own.

    A later item changes its own signal alone: one row subtracts the value that it replaces, the default or
    an earlier one, and one adds its own.
    """
    count = max(map(signals_of, items))
    rows, first, positions = list[bytes](), list[bool](), list[int]()
    values, before = list[Vector](), list[Vector]()

    def add(place: int, added: Vector, had: Vector, *, begins: bool) -> None:
        rows.append(items[place][1].features)
        values.append(added)
        before.append(had)
        first.append(begins)
        positions.append(place)

    for place, (entry, payload) in enumerate(items):
        had, replaces = signals_before(entry, payload, count)
        own, added = (payload.signal or NO_SIGNAL).place, np.zeros(count)
        if entry.first:
            added[:] = had
            if own is not None:
                added[own] = payload.value
            add(place, added, np.zeros(count), begins=True)
        elif own is not None:
            if replaces:
                taken = np.zeros(count)
                taken[own] = -had[own]
                add(place, taken, had, begins=False)
                had = had + taken
            added[own] = payload.value
            add(place, added, had, begins=False)
    return _features(rows), np.array(values), np.array(first), np.array(before), np.array(positions)
