"""The fold of the reward log into the sums of arms: what an arm has beyond its features, by partition.

As ``fold`` it is pure, and the same to the bit however the log is cut into batches. An entry teaches its arm
if its decision had arm effects, and its features are those of the newest move and revision of the arm that
the log has named: a later one begins anew, since an effect is what the features do not say.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from app.learning.entry_rows import NO_TERMS, changes_of, signal_changes_of, signals_of
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
    return sorted({arm for entry in entries if (arm := _arm_of(entry)) is not None})


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
            arm = ArmId(uid, payload.effect.arm)
            before = now.get(arm)
            now[arm] = add_entry(before, entry, payload, payload.effect, spaces.get(uid, 0))
            if now[arm] is not before:
                changed[arm] = None
        for past in taught.get(entry.entry_id, ()):
            if (arm_of := _arm_of(past)) is not None and (standing := now.get(arm_of)) is not None:
                now[arm_of] = _take_back(standing, past)
                changed[arm_of] = None
    return {arm: now[arm] for arm in changed}


def forgets(entry: LogEntry) -> bool:
    """Whether an entry forgets its learner; False of one that cannot be read."""
    try:
        payload = unpack(entry.payload, RewardPayload)
    except msgspec.DecodeError:
        return False
    return not payload.features and not payload.state and entry.learner.name != MOVED


async def taught_by(store: Store, partition: int, forget: LogEntry) -> Sequence[LogEntry]:
    """What the log still has of arms from a learner before an entry that forgets it, since the last such one.

    Cost: reads all of the log of the partition, twice. Raises Unavailable.
    """
    found = list[LogEntry]()
    async for page in counted_pages(store, partition, forget.entry_id):
        for entry in page:
            if entry.learner != forget.learner or entry.entry_id == forget.entry_id:
                continue
            if forgets(entry):
                found.clear()
            elif _arm_of(entry) is not None:
                found.append(entry)
    return found


def _arm_of(entry: LogEntry) -> ArmId | None:
    try:
        effect = unpack(entry.payload, RewardPayload).effect
    except msgspec.DecodeError:
        return None
    return ArmId(entry.learner.bandit_uid, effect.arm) if effect is not None and effect.arm else None


def add_entry(
    before: ArmSums | None, entry: LogEntry, payload: RewardPayload, effect: EffectTerms, moved: int = 0
) -> ArmSums | None:
    """The sums of an arm after an entry; the same object where that is of earlier features."""
    standing = before or ArmSums()
    is_of, now = (payload.space, effect.revision), (standing.space, standing.revision)
    if payload.space < moved or is_of < now:
        return before
    if is_of > now:
        standing = ArmSums(standing.version, space=payload.space, revision=effect.revision)
    terms, time_ms = payload.terms or NO_TERMS, standing.time_ms
    if terms.half_life_s and terms.decided_ms > time_ms:
        factor, time_ms = weight(terms.decided_ms - time_ms, terms.half_life_s), terms.decided_ms
        standing = msgspec.structs.replace(
            standing,
            time_ms=time_ms,
            n=factor * standing.n,
            F=factor**2 * standing.F,
            R=tuple(factor * each for each in standing.R),
            Q=tuple(factor**2 * each for each in standing.Q),
        )
    return _changed(standing, entry, payload, effect, 1.0, version=standing.version + 1)


def _take_back(standing: ArmSums, entry: LogEntry) -> ArmSums | None:
    """The sums without an entry that is in them; None: no decision is left."""
    payload = unpack(entry.payload, RewardPayload)
    effect = payload.effect
    if effect is None or (payload.space, effect.revision) != (standing.space, standing.revision):
        return standing  # of earlier features: it is not in them any more
    left = _changed(standing, entry, payload, effect, -1.0, version=standing.version)
    return left if left.decisions > 0 else None


def _changed(
    standing: ArmSums,
    entry: LogEntry,
    payload: RewardPayload,
    effect: EffectTerms,
    sign: float,
    *,
    version: int,
) -> ArmSums:
    """The sums with what an entry adds, ``sign`` times, discounted to their time."""
    place, terms = effect.examined, payload.terms or NO_TERMS
    w = 1.0
    if terms.half_life_s:
        w = weight(standing.time_ms - terms.decided_ms, terms.half_life_s)
    expected = [place * each for each in numbers_of(effect.expected)]
    count = max(len(expected), len(standing.R))
    if payload.signal is None:
        rows = [((value,), (had,), begins) for value, had, begins in changes_of(entry, payload)]
    else:
        count = max(count, signals_of((entry, payload)))
        rows = [
            (tuple(value.tolist()), tuple(had.tolist()), begins)
            for value, had, begins in signal_changes_of(entry, payload, count)
        ]
    R, Q = list(standing.R), list(standing.Q)
    if len(R) < count:
        R, Q = ([*each, *(0.0,) * (count - len(each))] for each in (R, Q))
    n, F, decisions = standing.n, standing.F, standing.decisions
    for value, had, begins in rows:
        if begins:
            n += sign * w * place**2
            F += sign * w**2 * place**4
            decisions += int(sign)
        for signal, (taken, own, before) in enumerate(zip(expected, value, had, strict=False)):
            # What is expected is taken off once: with the first value of the decision.
            rho = 0.0 if begins else before - taken
            change = own - taken if begins else own
            R[signal] += sign * w * place * change
            Q[signal] += sign * (w * place) ** 2 * ((rho + change) ** 2 - rho**2)
    space, revision, time_ms = standing.space, standing.revision, standing.time_ms
    return ArmSums(version, decisions, space, revision, time_ms, n, F, tuple(R), tuple(Q))
