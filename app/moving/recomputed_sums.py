"""Sums of learners computed again, with the features that arms have in another catalogue.

    log     from all rows of the decision log, where it holds everything that learners know
    kept    from the states before the last move, and what came since: for a bandit that goes back

The map carries a learner first, so nobody waits. Then the difference of the sums that it should have and of
those that it has is appended to the reward log, as an entry that the fold adds. Sums are linear, so it does
not matter what comes in between, and a process that does it once more adds nothing.

What a learner should have is told as of a watermark. Rows are read page by page, while rewards come in: a
page has the rewards up to the entry that was the newest then. What the log has after it is added.
"""

from __future__ import annotations

import asyncio
import math
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import msgspec
from msgspec.structs import replace as replace_fields

from app.bandits.bandit import Bandit
from app.bandits.registry import Bandits
from app.bandits.settings import BanditRecord, SignalRef, reward_payload
from app.bandits.spaces import Moves, Spaces
from app.catalogues.catalogues import Catalogues
from app.decision_log.reading import row_of
from app.decision_log.rows import counted_of
from app.learning.checkpoints import Workers, read_together, restored
from app.learning.entry_rows import Item, source_of
from app.learning.fold import fold, learned, merged
from app.learning.tokens import Decision, decision_of
from app.moving.recomputed_arms import RecomputedArms, RewardedArm
from app.platform.background import Pace
from app.platform.errors import ShortlistError, StoreFull, Unavailable
from app.platform.long_work import MEASURING
from app.records.arm_sums import ArmSums, EffectTerms, teaches
from app.records.records import (
    POOLED,
    LearnerState,
    RewardPayload,
    bytes_to_context,
    bytes_to_state,
    correction_payload,
    pack,
    state_to_bytes,
    unpack,
    vector_to_bytes,
)
from app.storage import redis_keys
from app.storage.store import Store
from app.storage.types import (
    CarriedWrite,
    LearnerId,
    LogEntry,
    RewardWrite,
    StoredLearner,
    StoredRow,
    entry_order,
)
from shortlist.linear.sum_algebra import minus
from shortlist.types import Vector

MOST_ROWS = 200_000  # of the decision log, of all partitions: some tens of seconds
MOST_ENTRIES = 200_000  # of the reward log that are read, of all bandits
MOST_BYTES = 256 << 20  # of the learners of one partition
ROWS_TOGETHER = 500
ROW_BYTES = 1 << 20
ENTRIES_TOGETHER = 1_000
TOLERANCE = 1e-9  # by which counts that do not depend on features may differ: they are rounded
MOST_EXAMINED = 300
TRIES = 100  # to read learners between two steps of the worker
DEDUPE_MS = 3_600_000
SHARE = 0.5  # of the time that is spent on it: meanwhile choices come in
WAIT_S = 0.05
# Of the states that are read together, at least one. The store syncs as much to disk in one step, and whoever
# reads a learner waits for that.
AT_ONCE_BYTES = 1 << 17


class NotWhole(ShortlistError):
    """The sums cannot be computed again. ``detail`` says what is missing."""


@dataclass(slots=True)
class Budget:
    """How many rows and entries may still be read, of all partitions."""

    rows: int = MOST_ROWS
    entries: int = MOST_ENTRIES

    def take_rows(self, count: int) -> None:
        self.rows -= count
        if self.rows < 0:
            raise NotWhole(f"the decision log has more than {MOST_ROWS:,} rows")

    def take_entries(self, count: int) -> None:
        self.entries -= count
        if self.entries < 0:
            raise NotWhole(f"more than {MOST_ENTRIES:,} rewards have come since")


@dataclass(frozen=True, slots=True)
class Recomputed:
    """A learner as it is at a watermark, in any space, and as it should be, in that of the target.

    ``taught``: what it has taught the arms, by their ids; None: that would take too long.
    """

    learner: LearnerId
    watermark: str
    now: LearnerState
    wanted: LearnerState
    taught: Mapping[str, ArmSums] | None


@dataclass(frozen=True, slots=True)
class Corrected:
    """``left``: learners that could not be corrected. ``has_arms``: whether what arms had learned was."""

    left: int
    has_arms: bool


@dataclass(slots=True)
class _Beginning:
    """What learners of one partition should know before the entries of its log that are read.

    ``after``     the entry from which on they are
    ``known_to``  the number of the newest entry that a page of rows had, by an entry whose decision is on
                  it; None: each learner lacks as many as its version tells
    ``spaces``    of entries whose features are those of the target
    ``newest``    the number of the newest entry that ``states`` have
    ``arms``      what learners taught arms; None: nothing of that is made again
    """

    states: dict[str, LearnerState]
    after: str
    known_to: Callable[[LogEntry], int] | None
    spaces: frozenset[int]
    newest: int = 0
    arms: RecomputedArms | None = None

    def since(self, name: str, entries: Sequence[LogEntry], now: LearnerState) -> Sequence[LogEntry]:
        """Those of the rewards of a learner that its state of the beginning has not.

        Raises NotWhole: the log has fewer.
        """
        if self.known_to is not None:
            return [entry for entry in entries if entry_order(entry.entry_id)[1] > self.known_to(entry)]
        had = self.states.get(name)
        count = now.version - (0 if had is None else had.version)
        if not 0 <= count <= len(entries):
            raise NotWhole("the reward log lacks some of what a learner has learned since")
        return entries[len(entries) - count :]


class RecomputedSums:
    """Recomputes sums of learners. ``moved``: the bandit in its new catalogue, maybe before it is moved."""

    def __init__(
        self, store: Store, catalogues: Catalogues, bandits: Bandits, *, moves: Moves, workers: Workers
    ) -> None:
        self._store = store
        self._catalogues = catalogues
        self._bandits = bandits
        self._moves = moves
        self._workers = workers

    async def keep(self, bandit: Bandit, until_ms: int) -> bool:
        """Keep what learners know, until then. False: there is no space, and nothing is kept.

        Cost: each state is read and written once.
        """
        try:
            await self._keep(bandit, until_ms)
        except StoreFull:  # others have taken it since the move was planned
            for partition in range(self._store.partitions):
                await self._store.moves.drop_kept(partition, bandit.uid, bandit.record.space)
            return False
        return True

    async def _keep(self, bandit: Bandit, until_ms: int) -> None:
        uid = bandit.uid
        for partition in range(self._store.partitions):
            watermark = await self._store.learners.watermark(partition)
            await self._store.moves.begin_keeping(partition, uid, bandit.record.space, watermark, until_ms)
            names = [each for each in await self._store.learners.names(partition, uid) if each != POOLED]
            for some in by_step(names, bandit):
                stored = await self._store.learners.stored(partition, [LearnerId(uid, each) for each in some])
                writes = await MEASURING.run(partial(_kept_writes, uid, some, stored))
                await self._store.moves.keep(partition, uid, bandit.record.space, writes, until_ms=until_ms)

    async def examine(self, moved: Bandit, spaces: Spaces, *, restores: bool) -> Mapping[str, LearnerState]:
        """Of at most ``MOST_EXAMINED`` learners what they would know. Raises NotWhole, Unavailable."""
        found, budget, pace = dict[str, LearnerState](), Budget(), Pace(SHARE)
        for partition in range(self._store.partitions):
            async for learner in self._learners(moved, partition, spaces, budget, restores=restores):
                await pace.rest()
                for each in learner:
                    if not isinstance(each, Recomputed):
                        raise NotWhole(each)
                    if len(found) < MOST_EXAMINED:
                        found[each.learner.name] = each.wanted
        return found

    async def correct(self, moved: Bandit, *, restores: bool) -> Corrected:
        """Correct the learners of a bandit that was moved, and its arms if it is given with a learned prior.

        Repeated, it changes nothing. Raises Unavailable.
        """
        uid, number, left, has_arms = moved.uid, moved.record.space, 0, True
        spaces, budget, pace = Spaces({}, await self._moves.maps({uid: number})), Budget(), Pace(SHARE)
        progress = await self._store.moves.progress(uid)
        for partition, each in enumerate(progress):
            if each.made >= number:
                continue
            try:
                is_applied = True
                async for learner in self._learners(moved, partition, spaces, budget, restores=restores):
                    made = [one for one in learner if isinstance(one, Recomputed)]
                    left += len(learner) - len(made)
                    has_arms &= all(one.taught is not None for one in made)
                    last = await self._append(moved, partition, made, spaces)
                    self._workers.wake(partition)
                    if last and is_applied:  # what no worker folds in time is in the log
                        is_applied = await self._workers.wait_applied(partition, last)
                    await pace.rest()
            except NotWhole:
                left += len(await self._store.learners.names(partition, uid))
            await self._store.moves.all_made(partition, uid, number)
        return Corrected(left, has_arms)

    async def _append(self, moved: Bandit, partition: int, made: Sequence[Recomputed], spaces: Spaces) -> str:
        """Append what is to be added to learners; the id of the last entry, or ""."""
        now_ms, pooled = time.time_ns() // 1_000_000, moved.record.prior == "pooled"

        def writes() -> list[RewardWrite]:
            found = list[RewardWrite]()
            carried = spaces.carried_each(moved.uid, [each.now for each in made], moved.record.space)
            for each, now in zip(made, carried, strict=True):
                if now is None:
                    continue
                sums = minus(each.wanted.sums, now.sums)
                # these do not depend on features: what is left of them is rounding
                sums = replace(sums, observations=0, weight=0.0, squares=0.0, squares_error=0.0)
                change = LearnerState(0, sums, now.time_ms, now.half_life_s, moved.record.space)
                payload = correction_payload(change, pooled=pooled, taught=each.taught)
                number = entry_order(each.watermark)[1]
                name = f"m/{moved.record.space}"
                found.append(
                    RewardWrite(each.learner, name, None, now_ms, DEDUPE_MS, payload, known_entry=number)
                )
            return found

        done = await self._store.rewards.append(partition, await MEASURING.run(writes))
        return next((each.entry_id for each in reversed(done) if each.entry_id), "")

    async def _learners(
        self, moved: Bandit, partition: int, spaces: Spaces, budget: Budget, *, restores: bool
    ) -> AsyncIterator[Sequence[Recomputed | str]]:
        """All learners of a partition; in place of one that cannot be computed again the reason."""
        uid = moved.uid
        names = [each for each in await self._store.learners.names(partition, uid) if each != POOLED]
        if not names:
            return
        if restores:
            beginning = await self._kept(moved, partition, names)
        else:
            beginning = await self._logged(moved, partition, budget)
        log = _LogOf(self._store, partition, uid, beginning.after)
        for some in by_step(names, moved):
            learners = [LearnerId(uid, name) for name in some]
            watermark, stored = await self._at_watermark(partition, learners, beginning.newest)
            own = await log.up_to(watermark, learners, budget)
            arms = {source.arm for each in own.values() for entry in each if (source := source_of(entry))}
            features = await self._catalogues.features(moved.catalogue, arms)
            known = {arm: vector for arm, (vector, _) in features.items()}
            make = partial(_made, moved, spaces, beginning, learners, stored, own, known, watermark)
            yield await MEASURING.run(make)

    async def _at_watermark(
        self, partition: int, learners: Sequence[LearnerId], least: int
    ) -> tuple[str, Sequence[StoredLearner]]:
        """Learners, and the watermark that they are of, which is not before the entry of number ``least``."""
        self._workers.wake(partition)
        for _ in range(TRIES):
            watermark = await self._store.learners.watermark(partition)
            # rows of the decision log have rewards before a worker has folded them
            if entry_order(watermark)[1] >= least:
                stored = await self._store.learners.stored(partition, learners)
                if watermark == await self._store.learners.watermark(partition):
                    return watermark, stored
            await asyncio.sleep(WAIT_S)
        raise Unavailable("rewards come faster than learners can be read; safe to try again")

    async def _kept(self, moved: Bandit, partition: int, names: Sequence[str]) -> _Beginning:
        space, states = moved.record.space, dict[str, LearnerState]()
        after = await self._store.moves.kept_from(partition, moved.uid, space - 2)
        if after is None:
            raise NotWhole("what learners knew before the move is not kept any more")
        for some in by_step(names, moved):
            found = await self._store.moves.kept(partition, moved.uid, space - 2, some)
            for name, data in zip(some, found, strict=True):
                if data is not None and (state := bytes_to_state(data)).space == space - 2:
                    states[name] = replace(state, space=space)
        return _Beginning(states, after, None, frozenset((space - 2, space)))

    async def _logged(self, moved: Bandit, partition: int, budget: Budget) -> _Beginning:
        states, ends, newest, position = dict[str, LearnerState](), list[str](), list[int](), ""
        size, records, pace = moved.state_bytes, dict[int, BanditRecord](), Pace(SHARE)
        recomputed_arms = RecomputedArms(moved) if moved.learns_effects else None
        while True:
            page = await self._store.rows.read(
                partition, moved.uid, after=position, before="", count=ROWS_TOGETHER, most_bytes=ROW_BYTES
            )
            budget.take_rows(len(page.rows))
            decisions = [decision_of(row.record) for row in page.rows]
            for version in {each.bandit_version for each in decisions} - records.keys():
                then = await self._bandits.find(moved.uid, version)
                if then is None:
                    raise NotWhole(f"version {version} of the bandit is not kept any more")
                records[version] = then.record
            rewarded = [pair for pair in zip(page.rows, decisions, strict=True) if pair[0].rewards]
            arms = {arm for _, decision in rewarded for arm in decision.arms}
            features = await self._catalogues.features(moved.catalogue, arms)
            learn = partial(_of_rows, moved, rewarded, records, features, recomputed_arms)
            for name, state in (await MEASURING.run(learn)).items():
                states[name] = merged(states.get(name), state)
            if recomputed_arms is not None:
                await pace.rest()
            if len(states) * size > MOST_BYTES:
                raise NotWhole(f"learners take more than {16 * MOST_BYTES >> 20:,} MB")
            ends.append(page.following or "~")
            newest.append(page.newest)
            if not page.following:
                break
            position = page.following

        def known_to(entry: LogEntry) -> int:
            source = source_of(entry)
            if source is None or source.kind == "observation":
                return newest[0]
            return newest[bisect_left(ends, redis_keys.row_field(source.decided_ms, source.id))]

        return _Beginning(
            states, f"0-{newest[0]}", known_to, frozenset((moved.record.space,)), newest[-1], recomputed_arms
        )


class _LogOf:
    """The rewards of a bandit in the log of a partition, from an entry on, as far as they were read."""

    def __init__(self, store: Store, partition: int, uid: str, after: str) -> None:
        self._store = store
        self._partition = partition
        self._uid = uid
        self._after = after
        self._first = entry_order(after)[1] if after else 0
        self._by_learner: dict[LearnerId, list[LogEntry]] = {}

    async def up_to(
        self, watermark: str, learners: Sequence[LearnerId], budget: Budget
    ) -> Mapping[LearnerId, Sequence[LogEntry]]:
        """The rewards of learners since they last began, up to a watermark. Raises NotWhole: too many."""
        last = entry_order(watermark)[1]
        while entry_order(self._after)[1] < last:
            page = await self._store.rewards.read(self._partition, self._after, ENTRIES_TOGETHER)
            budget.take_entries(sum(map(self._add, page)))
            if not page:
                break
            self._after = page[-1].entry_id
        return {
            learner: [
                entry
                for entry in self._by_learner.get(learner, ())
                if self._first < entry_order(entry.entry_id)[1] <= last
            ]
            for learner in learners
        }

    def _add(self, entry: LogEntry) -> bool:
        """Whether it is anything but a correction, which is no reward that has come since."""
        if entry.learner.bandit_uid != self._uid:
            return True
        try:
            payload = unpack(entry.payload, RewardPayload)
        except msgspec.DecodeError:
            return True  # it was left out
        if payload.features:
            self._by_learner.setdefault(entry.learner, []).append(entry)
        elif not payload.state:
            self._by_learner.pop(entry.learner, None)
        return not payload.corrects


def by_step(names: Sequence[str], bandit: Bandit) -> Sequence[Sequence[str]]:
    """The names of learners, by as many as are read together."""
    count = read_together(bandit.state_bytes, most_bytes=AT_ONCE_BYTES)
    return [names[start : start + count] for start in range(0, len(names), count)]


def _kept_writes(uid: str, names: Sequence[str], stored: Sequence[StoredLearner]) -> list[CarriedWrite]:
    writes = list[CarriedWrite]()
    for name, each in zip(names, stored, strict=True):
        try:
            state = restored(LearnerId(uid, name), each)
        except ValueError:
            continue  # it cannot be read, before and after
        if state is not None:
            writes.append(CarriedWrite(name, each.checkpoint, len(each.tail), state_to_bytes(state)))
    return writes


def _of_rows(
    moved: Bandit,
    rewarded: Sequence[tuple[StoredRow, Decision]],
    records: Mapping[int, BanditRecord],
    features: Mapping[str, tuple[Vector, int]],
    recomputed_arms: RecomputedArms | None,
) -> Mapping[str, LearnerState]:
    """What learners know of rows and no others. Raises NotWhole: an arm is not in the catalogue.

    ``features``: of arms, and their revisions. ``recomputed_arms`` are taught by the rows.
    """
    items, revised = list[Item](), Counter[str]()
    for stored, decision in rewarded:
        taught, first_item = list[RewardedArm](), len(items)
        row, record = row_of(decision, "", stored.rewards, None), records[decision.bandit_version]
        names, context = list(record.signals or ()), decision.encoded_context
        for reward, is_first, default, before, had in counted_of(row):
            if reward.arm not in features:
                raise NotWhole(f"{moved.record.catalogue} lacks the arm {reward.arm}, which was rewarded")
            vector, revision = features[reward.arm]
            joint = moved.joint_features(vector, context)
            judged = None if reward.signal is None else SignalRef.of(record.signals or {}, reward.signal)
            place = decision.arms.index(reward.arm)
            examined = 1.0 if record.position is None else record.position.at(place)
            pair = decision.effect_at(place)
            data = reward_payload(
                record,
                examined * joint,
                reward.value,
                decision.issued_ms,
                judged=judged,
                space=moved.record.space,
                # Here the key alone learns: what it teaches its arm is known once all rows before are.
                effect=None if pair is None else EffectTerms(pair.served, examined=examined),
            )
            came = tuple((names.index(name), value) for name, value in had.items() if name in names)
            learner = LearnerId(moved.uid, decision.learner)
            entry = LogEntry(
                "", learner, is_first, b"", replaces=default is not None, before=before, came=came
            )
            items.append((entry, unpack(data, RewardPayload)))
            if pair is not None and teaches(pair):
                taught.append(RewardedArm(items[-1], reward.arm, revision, joint))
            revised[learner.name] += reward.revised
        if recomputed_arms is not None and len(items) > first_item:
            recomputed_arms.add(decision.learner, items[first_item:], taught)
    states = {learner.name: state for learner, state in learned(items).items() if learner.name != POOLED}
    return {
        name: replace(state, version=state.version + revised[name])
        for name, state in states.items()
        if state is not None
    }


def _made(  # noqa: PLR0917 - one call, in a thread
    moved: Bandit,
    spaces: Spaces,
    beginning: _Beginning,
    learners: Sequence[LearnerId],
    stored: Sequence[StoredLearner],
    log: Mapping[LearnerId, Sequence[LogEntry]],
    features: Mapping[str, Vector],
    watermark: str,
) -> Sequence[Recomputed | str]:
    """The learners that are there, as they are and as they should be, or why that is not known."""
    found, after = list[Recomputed | str](), Spaces({moved.uid: moved.record.space}, spaces.maps)
    for learner, each in zip(learners, stored, strict=True):
        try:
            now = restored(learner, each)
            if now is None:
                continue
            since = beginning.since(learner.name, log[learner], now)
            entries = [_with_features(entry, moved, beginning.spaces, features) for entry in since]
            begins = {learner: beginning.states.get(learner.name)}
            # a dead letter was one before too: it is passed over
            wanted = fold(begins, entries, lambda *_: None, after).get(learner, begins[learner])
        except NotWhole as error:
            found.append(error.detail)
            continue
        reason = _difference(now, wanted)
        taught = {} if beginning.arms is None else beginning.arms.of(learner.name)
        found.append(
            reason if wanted is None or reason else Recomputed(learner, watermark, now, wanted, taught)
        )
    return found


def _with_features(
    entry: LogEntry, moved: Bandit, own: frozenset[int], features: Mapping[str, Vector]
) -> LogEntry:
    """An entry with the features that its arm has in the catalogue; as it is where that lacks the arm.

    Then the fold maps it as it maps states.
    """
    payload, source, space = unpack(entry.payload, RewardPayload), source_of(entry), moved.record.space
    if payload.space in own:
        payload = replace_fields(payload, space=space)
    elif source is not None and source.arm in features:
        context = None if source.context is None else bytes_to_context(source.context)
        joint = moved.joint_features(features[source.arm], context)
        if source.examined is not None:
            joint = source.examined * joint
        payload = replace_fields(payload, features=vector_to_bytes(joint), space=space)
    return replace(entry, payload=pack(payload), source=b"")


def _difference(now: LearnerState, wanted: LearnerState | None) -> str:
    """Why the sums computed again are not of the same rewards; "": they are."""
    count = 0 if wanted is None else wanted.version
    if wanted is None or count != now.version:
        return (
            f"of the {now.version:,} rewards of a learner {count:,} are there; the others are observations, "
            "an imported state, or of decisions that were not logged"
        )
    pairs = [(now.sums.observations, wanted.sums.observations), (now.sums.weight, wanted.sums.weight)]
    if now.sums.has_squares and wanted.sums.has_squares:
        pairs.append((now.sums.squares, wanted.sums.squares))
    if now.time_ms != wanted.time_ms or not all(
        math.isclose(one, other, rel_tol=TOLERANCE, abs_tol=TOLERANCE) for one, other in pairs
    ):
        return "the rewards of a learner are not those that it has learned from"
    return ""
