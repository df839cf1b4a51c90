"""The fold of the reward log into the sums of arms: what an arm has beyond its features, by partition.

As ``fold`` it is pure, and the same to the bit however the log is cut into batches. An entry teaches its arm
if its decision had arm effects, and its features are those of the newest move of the bandit. Sums are of one
revision of the features of an arm: what a change of them means depends on a learned prior, so that fits add
those of an arm (``effect_chains``). After a move that makes sums again from the decision log, the entry that
corrects a learner has the sums of what it taught.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest

import msgspec

from app.learning.entry_rows import NO_TERMS, changes_of, payload_of, signals_of
from app.learning.log_pages import counted_pages
from app.records.arm_sums import ArmSums, EffectTerms, numbers_of
from app.records.records import MOVED, RewardPayload, unpack
from app.storage.store import Store
from app.storage.types import ArmId, LogEntry
from shortlist.linear.sum_algebra import weight

ArmStates = dict[ArmId, ArmSums | None]
Taught = Mapping[str, Sequence[LogEntry]]
"""By the id of an entry that forgets a learner: what the log still has of it, without dead letters."""


def arms_of(entries: Iterable[LogEntry]) -> list[ArmId]:
    """The arms whose sums ``fold_arms`` needs for these entries, in order."""
    return sorted({arm for entry in entries for arm in _arms_of(entry)})


def fold_arms(
    sums: Mapping[ArmId, ArmSums | None],
    entries: Sequence[LogEntry],
    moved: Mapping[str, int],
    taught: Taught,
) -> ArmStates:
    """Return the sums after ``entries`` of the arms that they change; None: of no decision.

    ``sums``     before, at least of all ``arms_of`` the entries and those that are ``taught``
    ``entries``  that were folded into learners, of one partition, in the order of the log
    ``moved``    by the uid of a bandit, the last move before them
    """
    now, changed, spaces = dict(sums), dict[ArmId, None](), dict(moved)
    for entry in entries:
        payload = unpack(entry.payload, RewardPayload)
        uid = entry.learner.bandit_uid
        if entry.learner.name == MOVED:
            spaces[uid] = max(payload.space, spaces.get(uid, 0))
        elif payload.effect is not None and payload.effect.arm:
            arm = ArmId(uid, payload.effect.arm, payload.effect.revision)
            before = now.get(arm)
            now[arm] = add_entry(before, entry, payload, payload.effect, spaces.get(uid, 0))
            if now[arm] is not before:
                changed[arm] = None
        elif payload.taught and payload.space >= spaces.get(uid, 0):
            half_life_s = (payload.terms or NO_TERMS).half_life_s
            for name, more in payload.taught.items():
                arm = ArmId(uid, name, more.revision)
                before = now.get(arm)
                now[arm] = merged_sums(before, more, half_life_s)
                if now[arm] is not before:
                    changed[arm] = None
        for past in taught.get(entry.entry_id, ()):
            for arm in _arms_of(past):
                if (sums_of_arm := now.get(arm)) is not None:
                    now[arm] = _take_back(sums_of_arm, past, arm.arm)
                    changed[arm] = None
    return {arm: now[arm] for arm in changed}


def forgets(entry: LogEntry) -> bool:
    """Whether an entry forgets its learner; False of one that cannot be read."""
    payload = payload_of(entry)
    return payload is not None and not payload.features and not payload.state and entry.learner.name != MOVED


async def taught_by(store: Store, partition: int, forget: LogEntry) -> Sequence[LogEntry]:
    """What the log still has of arms from a learner before an entry that forgets it, since the last such one.

    Cost: reads all of the log of the partition, twice. Raises Unavailable.
    """
    teaching_entries = list[LogEntry]()
    async for page in counted_pages(store, partition, forget.entry_id):
        for entry in page:
            if entry.learner != forget.learner or entry.entry_id == forget.entry_id:
                continue
            if forgets(entry):
                teaching_entries.clear()
            elif _arms_of(entry):
                teaching_entries.append(entry)
    return teaching_entries


def _arms_of(entry: LogEntry) -> Sequence[ArmId]:
    if (payload := payload_of(entry)) is None:
        return ()
    uid, effect = entry.learner.bandit_uid, payload.effect
    if effect is not None and effect.arm:
        return (ArmId(uid, effect.arm, effect.revision),)
    return [ArmId(uid, arm, sums.revision) for arm, sums in payload.taught.items()]


def add_entry(
    before: ArmSums | None, entry: LogEntry, payload: RewardPayload, effect: EffectTerms, moved: int = 0
) -> ArmSums | None:
    """The sums of an arm after an entry; the same object where that is of earlier features."""
    current = before or ArmSums()
    is_of, now = (payload.space, effect.revision), (current.space, current.revision)
    if payload.space < moved or is_of < now:
        return before
    if is_of > now:
        current = ArmSums(current.version, space=payload.space, revision=effect.revision)
    terms, time_ms = payload.terms or NO_TERMS, current.time_ms
    if terms.half_life_s and terms.decided_ms > time_ms:
        factor, time_ms = weight(terms.decided_ms - time_ms, terms.half_life_s), terms.decided_ms
        current = msgspec.structs.replace(
            current,
            time_ms=time_ms,
            n=factor * current.n,
            F=factor**2 * current.F,
            R=tuple(factor * number for number in current.R),
            Q=tuple(factor**2 * number for number in current.Q),
        )
    return _changed(current, entry, payload, effect, 1.0, version=current.version + 1)


def merged_sums(before: ArmSums | None, more: ArmSums, half_life_s: float, sign: float = 1.0) -> ArmSums:
    """The sums of an arm with others added, ``sign`` times; the same object where those are of earlier
    features. Discounted to the later of their times.
    """
    current = before or ArmSums()
    is_of, now = (more.space, more.revision), (current.space, current.revision)
    if is_of < now:
        return current
    if is_of > now:
        current = ArmSums(current.version, space=more.space, revision=more.revision, time_ms=more.time_ms)
    time_ms, old, new = max(current.time_ms, more.time_ms), 1.0, 1.0
    if half_life_s:
        old, new = (weight(time_ms - part.time_ms, half_life_s) for part in (current, more))
    return ArmSums(
        current.version + int(sign > 0.0),
        current.decisions + int(sign) * more.decisions,
        current.space,
        current.revision,
        time_ms,
        old * current.n + sign * new * more.n,
        old**2 * current.F + sign * new**2 * more.F,
        _added(current.R, more.R, old, sign * new),
        _added(current.Q, more.Q, old**2, sign * new**2),
    )


def _added(one: Sequence[float], other: Sequence[float], old: float, new: float) -> tuple[float, ...]:
    """Of signals: one that came later has no numbers in older sums."""
    return tuple(old * mine + new * theirs for mine, theirs in zip_longest(one, other, fillvalue=0.0))


def _take_back(current: ArmSums, entry: LogEntry, arm: str) -> ArmSums | None:
    """The sums of an arm without an entry that is in them; None: no decision is left."""
    payload = unpack(entry.payload, RewardPayload)
    if (more := payload.taught.get(arm)) is not None:
        if (more.space, more.revision) != (current.space, current.revision):
            return current
        left = merged_sums(current, more, (payload.terms or NO_TERMS).half_life_s, -1.0)
        return left if left.decisions > 0 else None
    effect = payload.effect
    if effect is None or (payload.space, effect.revision) != (current.space, current.revision):
        return current  # of earlier features: it is not in them any more
    left = _changed(current, entry, payload, effect, -1.0, version=current.version)
    return left if left.decisions > 0 else None


def _changed(
    current: ArmSums,
    entry: LogEntry,
    payload: RewardPayload,
    effect: EffectTerms,
    sign: float,
    *,
    version: int,
) -> ArmSums:
    """The sums with what an entry adds, ``sign`` times, discounted to their time."""
    examined, terms = effect.examined, payload.terms or NO_TERMS
    w = 1.0
    if terms.half_life_s:
        w = weight(current.time_ms - terms.decided_ms, terms.half_life_s)
    expected = [examined * number for number in numbers_of(effect.expected)]
    count = max(len(expected), len(current.R))
    if payload.signal is not None:
        count = max(count, signals_of((entry, payload)))
    R, Q = list(current.R), list(current.Q)
    if len(R) < count:
        R, Q = ([*by_signal, *(0.0,) * (count - len(by_signal))] for by_signal in (R, Q))
    n, F, decisions = current.n, current.F, current.decisions
    for value, values_before, begins in changes_of(entry, payload, count):
        if begins:
            n += sign * w * examined**2
            F += sign * w**2 * examined**4
            decisions += int(sign)
        for signal, (expected_value, signal_value, before) in enumerate(
            zip(expected, value, values_before, strict=False)
        ):
            # What is expected is taken off once: with the first value of the decision.
            rho = 0.0 if begins else before - expected_value
            change = signal_value - expected_value if begins else signal_value
            R[signal] += sign * w * examined * change
            Q[signal] += sign * (w * examined) ** 2 * ((rho + change) ** 2 - rho**2)
    space, revision, time_ms = current.space, current.revision, current.time_ms
    return ArmSums(version, decisions, space, revision, time_ms, n, F, tuple(R), tuple(Q))
