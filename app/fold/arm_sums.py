"""The fold of the reward log into the sums of arms, by partition: rewards beyond the arm's features.

Pure, and equal to the bit however the log is cut into batches, as ``fold``. An entry teaches its arm
if its decision had arm effects, and its features are those of the newest move of the bandit. Sums are of one
revision of the features of an arm: the learned prior says what a change of features means, so fits join the
sums of an arm (``effect_chains``). After a move they begin anew.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, cast

import msgspec

from app.fold import ages, places
from app.fold.entry_rows import changes_of, signals_of
from app.records.age_sums import AgeSums
from app.records.arm_sums import ArmSums, ArmTime
from app.records.log_entries import DecodedEntry, ForgetEntry, MoveEntry, RewardEntry, decoded_all
from app.records.place_sums import PlaceSums
from app.records.records import unpack
from app.storage.arm_effects import AGES, PLACES
from app.storage.store import Store
from app.storage.types import ArmId, LearnerId, LogEntry
from shortlist.linear.discounted_sums import exact_sum, weight

AnySums = ArmSums | PlaceSums | AgeSums
ArmStates = dict[ArmId, AnySums | None]
Taught = Mapping[str, Sequence[DecodedEntry]]
"""By the id of an entry that forgets a learner: what the log still has of it, without dead letters."""
NOTHING_TAUGHT: Taught = {}


def arms_of(entries: Iterable[DecodedEntry]) -> list[ArmId]:
    """The arms whose sums ``fold_arms`` needs for these entries, in order; also those of places and ages."""
    arms = set[ArmId]()
    for decoded in entries:
        if (arm := arm_of(decoded)) is not None:
            arms |= {arm, *_tables_of(decoded.entry, cast("RewardEntry", decoded.content))}
    return sorted(arms)


def folded_sums(revision: int, data: bytes) -> AnySums:
    """The stored sums of a revision, made by ``fold_arms``."""
    if revision == AGES:
        return unpack(data, AgeSums)
    return unpack(data, PlaceSums) if revision == PLACES else unpack(data, ArmSums)


def _tables_of(entry: LogEntry, reward: RewardEntry) -> Sequence[ArmId]:
    """The tables taught by an entry beside its arm: places and ages, whose sums stand among those of arms."""
    uid, places, ages = entry.learner.bandit_uid, reward.at_place, reward.at_age
    return [places_of(uid)] * (places is not None) + [ages_of(uid)] * (ages is not None)


def places_of(bandit_uid: str) -> ArmId:
    """In whose place the sums of the places of lists stand among those of arms."""
    return ArmId(bandit_uid, "", PLACES)


def ages_of(bandit_uid: str) -> ArmId:
    """In whose place the sums of ages stand."""
    return ArmId(bandit_uid, "", AGES)


def arm_of(decoded: DecodedEntry) -> ArmId | None:
    """The arm taught by an entry."""
    entry, content = decoded
    if isinstance(content, RewardEntry) and content.expected:
        return ArmId(entry.learner.bandit_uid, content.arm, content.revision)
    return None


def fold_arms(
    sums: Mapping[ArmId, AnySums | None],
    entries: Sequence[DecodedEntry],
    moved: Mapping[str, int],
    taught: Taught,
) -> ArmStates:
    """Return the sums after ``entries`` of the changed arms; None: of no decision.

    ``sums``     before, at least of all ``arms_of`` the entries and of the ``taught``
    ``entries``  after their fold into learners, of one partition, in the order of the log
    ``moved``    by the uid of a bandit, the last move before them
    """
    current, changed, spaces = dict(sums), dict[ArmId, None](), dict(moved)
    for decoded in entries:
        entry, content = decoded
        uid = entry.learner.bandit_uid
        if isinstance(content, MoveEntry):
            spaces[uid] = max(content.space, spaces.get(uid, 0))
        elif isinstance(content, RewardEntry) and (arm := arm_of(decoded)) is not None:
            before = current.get(arm)
            current[arm] = add_entry(cast("ArmSums | None", before), entry, content, spaces.get(uid, 0))
            if current[arm] is not before:
                changed[arm] = None
            for table in _tables_of(entry, content):
                current[table] = _with_entry(current.get(table), table.revision, entry, content)
                changed[table] = None
        for past in taught.get(entry.entry_id, ()):
            arm, reward = arm_of(past), past.content
            if arm is None or not isinstance(reward, RewardEntry):
                continue
            if (sums_before := current.get(arm)) is not None:
                current[arm] = _take_back(cast("ArmSums", sums_before), past.entry, reward)
                changed[arm] = None
            for table in _tables_of(past.entry, reward):
                if (before_it := current.get(table)) is not None:
                    current[table] = _with_entry(before_it, table.revision, past.entry, reward, sign=-1)
                    changed[table] = None
    return {arm: current[arm] for arm in changed}


def _with_entry(
    before: AnySums | None, table: int, entry: LogEntry, reward: RewardEntry, *, sign: Literal[1, -1] = 1
) -> AnySums:
    """The sums of places, or of ages, with what an entry says, or without it."""
    if table == AGES:
        return ages.with_entry(cast("AgeSums | None", before) or AgeSums(), entry, reward, sign=sign)
    return places.with_entry(cast("PlaceSums | None", before) or PlaceSums(), entry, reward, sign=sign)


def forgets(decoded: DecodedEntry) -> bool:
    """Return whether an entry forgets its learner."""
    return isinstance(decoded.content, ForgetEntry)


async def taught_by(store: Store, partition: int, forgetting: Sequence[DecodedEntry]) -> Taught:
    """Return the entries the log still has of learners, before each of these entries that forget them, in
    order, since the last such one. A dead letter put back counts at its new position.

    Cost: the store looks once at all of the log of the partition, up to the last of these entries, and
    answers the entries of these learners. Raises Unavailable.
    """
    if not forgetting:
        return {}
    learners = list(dict.fromkeys(entry.learner for entry, _ in forgetting))
    asked, taught = {entry.entry_id for entry, _ in forgetting}, dict[str, Sequence[DecodedEntry]]()
    since = dict[LearnerId, dict[str, DecodedEntry]]()
    async for page in store.rewards.of_learners(partition, learners, forgetting[-1].entry.entry_id):
        for decoded in decoded_all(page):
            entry = decoded.entry
            if forgets(decoded):
                entries = since.pop(entry.learner, {})
                if entry.entry_id in asked:
                    taught[entry.entry_id] = list(entries.values())
            else:
                entries = since.setdefault(entry.learner, {})
                entries.pop(entry.origin, None)
                entries[entry.entry_id] = decoded
    return taught


def add_entry(before: ArmSums | None, entry: LogEntry, reward: RewardEntry, moved: int = 0) -> ArmSums | None:
    """The sums of an arm after an entry; the same object if the entry is of earlier features."""
    current = before or ArmSums()
    is_of, current_of = (reward.space, reward.revision), (current.space, current.revision)
    if reward.space < moved or is_of < current_of:
        return before
    if is_of > current_of:  # counted anew: those of earlier features may have been dropped before
        current = ArmSums(space=reward.space, revision=reward.revision)
    half_life_s, at_ms = _arm_time(current, reward)
    if reward.arm_time is not None and half_life_s and half_life_s != current.half_life_s:
        # Entries from before the clock are to be taken back by the clock, too.
        current = msgspec.structs.replace(current, half_life_s=half_life_s)
    if half_life_s and at_ms > current.time_ms:
        factor = weight(at_ms - current.time_ms, half_life_s)
        current = msgspec.structs.replace(
            current,
            time_ms=at_ms,
            n=factor * current.n,
            F=factor**2 * current.F,
            R=_scaled(current.R, factor),
            Q=_scaled(current.Q, factor**2),
            R_error=_scaled(current.R_error, factor),
            Q_error=_scaled(current.Q_error, factor**2),
        )
    return _changed(current, entry, reward, 1.0, version=current.version + 1)


def _arm_time(current: ArmSums, reward: RewardEntry) -> ArmTime:
    """The clock an entry fades by in these sums."""
    half_life_s, at_ms = reward.arm_time or ArmTime(reward.half_life_s, reward.decided_ms)
    if not half_life_s:  # decided while nothing faded: when the clock showed 0
        return ArmTime(current.half_life_s or 0.0, 0)
    return ArmTime(half_life_s, at_ms)


Numbers = tuple[float, ...]


def _scaled(numbers: Numbers, factor: float) -> Numbers:
    return tuple(factor * number for number in numbers)


def _take_back(current: ArmSums, entry: LogEntry, reward: RewardEntry) -> ArmSums | None:
    """The sums of an arm without one of their entries; None: no decision is left."""
    if (reward.space, reward.revision) != (current.space, current.revision):
        return current  # of earlier features: it is not in them any more
    left = _changed(current, entry, reward, -1.0, version=current.version)
    return left if left.decisions > 0 else None


def _changed(current: ArmSums, entry: LogEntry, reward: RewardEntry, sign: float, *, version: int) -> ArmSums:
    """The sums with what an entry adds, ``sign`` times, discounted to their time."""
    root, w = math.sqrt(reward.weight), 1.0
    examined = root * (1.0 if reward.examined is None else reward.examined)
    half_life_s, at_ms = _arm_time(current, reward)
    if half_life_s:
        w = weight(current.time_ms - at_ms, half_life_s)
    age = 0.0 if reward.at_age is None else reward.at_age.effect
    expected = [examined * (number + age) for number in reward.expected]
    count = max(len(current.R), signals_of((entry, reward)))
    R, Q, R_error, Q_error = (
        [*numbers, *(0.0,) * (count - len(numbers))]
        for numbers in (current.R, current.Q, current.R_error, current.Q_error)
    )
    n, F, decisions = current.n, current.F, current.decisions
    for value, values_before, begins in changes_of(entry, reward, count):
        if begins:
            n += sign * w * examined**2
            F += sign * w**2 * examined**4
            decisions += int(sign)
        for signal, (expected_value, signal_value, before) in enumerate(
            zip(expected, value, values_before, strict=False)
        ):
            # What is expected is taken off once: with the first value of the decision.
            rho = 0.0 if begins else root * before - expected_value
            change = root * signal_value - expected_value if begins else root * signal_value
            more = sign * w * examined * change
            R[signal], R_error[signal] = exact_sum(R[signal], R_error[signal], more, 0.0)
            more = sign * (w * examined) ** 2 * ((rho + change) ** 2 - rho**2)
            Q[signal], Q_error[signal] = exact_sum(Q[signal], Q_error[signal], more, 0.0)
    return msgspec.structs.replace(
        current,
        version=version,
        decisions=decisions,
        n=n,
        F=F,
        R=tuple(R),
        Q=tuple(Q),
        R_error=tuple(R_error),
        Q_error=tuple(Q_error),
    )
