"""The states that learners of a moved bandit start from when their sums are computed again.

log     from all rows of the decision log, where it holds everything that learners know
kept    from the states before the last move, and what came since: for a bandit that goes back
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from app.bandits.bandit import Bandit
from app.bandits.registry import Bandits
from app.bandits.settings import BanditRecord, SignalRef, reward_payload
from app.catalogues.catalogues import Catalogues
from app.decision_log.reading import row_of
from app.decision_log.rows import counted_of
from app.learning.entry_rows import Item, source_of
from app.learning.fold import learned, merged
from app.learning.tokens import Decision, decision_of
from app.moving.recomputed_arms import RecomputedArms, RewardedArm
from app.platform.background import Pace
from app.platform.deadlines import yield_to_others
from app.platform.errors import ShortlistError
from app.platform.pools import MEASURING
from app.records.arm_sums import EffectTerms, teaches
from app.records.records import (
    LearnerState,
    RewardPayload,
    bytes_to_state,
    unpack,
)
from app.storage import redis_keys
from app.storage.store import Store
from app.storage.types import (
    LearnerId,
    LogEntry,
    StoredRow,
    entry_order,
)
from shortlist.types import Vector

MOST_ROWS = 200_000  # of the decision log, of all partitions: some tens of seconds
MOST_ENTRIES = 200_000  # of the reward log that are read, of all bandits
MOST_BYTES = 256 << 20  # of the learners of one partition
ROWS_TOGETHER = 200
ROW_BYTES = 1 << 20
LAST_POSITION = "~"  # after that of every row
SHARE = 0.5  # of the time that is spent on it: meanwhile choices come in

ArmFeatures = Mapping[str, tuple[Vector, int]]  # by the ids of arms, with the revisions of these features


class NotWhole(ShortlistError):
    """The sums cannot be computed again. ``detail`` says what is missing."""


@dataclass(slots=True)
class Budget:
    """How many rows and entries may still be read, of all partitions."""

    rows: int = MOST_ROWS
    entries: int = MOST_ENTRIES

    def take(self, *, rows: int = 0, entries: int = 0) -> None:
        self.rows, self.entries = self.rows - rows, self.entries - entries
        if self.rows < 0:
            raise NotWhole(f"the decision log has more than {MOST_ROWS:,} rows")
        if self.entries < 0:
            raise NotWhole(f"more than {MOST_ENTRIES:,} rewards have come since")


@dataclass(frozen=True, slots=True)
class StartingStates:
    """What learners of one partition should know before the entries of its log that are read.

    ``after``     the entry from which on they are read
    ``spaces``    of entries whose features are those of the target
    ``pages``     of rows of the decision log: the position of the last row of each, and the number of the
                  newest entry that it had; none: each learner lacks as many entries as its version tells
    ``arms``      what learners taught arms; None: nothing of that is made again
    """

    states: Mapping[str, LearnerState]
    after: str
    spaces: frozenset[int]
    pages: Sequence[tuple[str, int]] = ()
    arms: RecomputedArms | None = None

    def since(self, name: str, entries: Sequence[LogEntry], now: LearnerState) -> Sequence[LogEntry]:
        """Those of the rewards of a learner that its state of the beginning has not.

        Raises NotWhole: the log has fewer.
        """
        if self.pages:
            return [entry for entry in entries if entry_order(entry.entry_id)[1] > self._newest_at(entry)]
        had = self.states.get(name)
        count = now.version - (0 if had is None else had.version)
        if not 0 <= count <= len(entries):
            raise NotWhole("the reward log lacks some of what a learner has learned since")
        return entries[len(entries) - count :]

    def _newest_at(self, entry: LogEntry) -> int:
        """The number of the newest entry that the page had which has the decision of this one."""
        source = source_of(entry)
        if source is None or source.kind == "observation":
            return self.pages[0][1]
        position = redis_keys.row_field(source.decided_ms, source.id)
        return self.pages[bisect_left(self.pages, (position, 0))][1]


async def kept_states(
    store: Store, moved: Bandit, partition: int, batches: Sequence[Sequence[LearnerId]]
) -> StartingStates:
    """What learners knew before the last move. Raises NotWhole, Unavailable."""
    space, states = moved.record.space, dict[str, LearnerState]()
    after = await store.moves.kept_from(partition, moved.uid, space - 2)
    if after is None:
        raise NotWhole("what learners knew before the move is not kept any more")
    for learners in batches:
        names = [learner.name for learner in learners]
        kept = await store.moves.kept(partition, moved.uid, space - 2, names)
        for name, data in zip(names, kept, strict=True):
            if data is not None and (state := bytes_to_state(data)).space == space - 2:
                states[name] = replace(state, space=space)
    return StartingStates(states, after, frozenset((space - 2, space)))


async def logged_states(
    store: Store,
    moved: Bandit,
    partition: int,
    budget: Budget,
    *,
    catalogues: Catalogues,
    bandits: Bandits,
) -> StartingStates:
    """What learners know of the decision log, which holds everything. Raises NotWhole, Unavailable."""
    # before any row is read: the rows of a page have at least the rewards up to here
    after = await store.learners.watermark(partition)
    states, records, pages = dict[str, LearnerState](), dict[int, BanditRecord](), list[tuple[str, int]]()
    pace, arms = Pace(SHARE), RecomputedArms(moved) if moved.learns_effects else None
    position = ""
    while position != LAST_POSITION:
        page = await store.rows.read(
            partition, moved.uid, after=position, before="", count=ROWS_TOGETHER, most_bytes=ROW_BYTES
        )
        budget.take(rows=len(page.rows))
        decisions = [decision_of(row.record) for row in page.rows]
        for number in {decision.bandit_version for decision in decisions} - records.keys():
            version = await bandits.find(moved.uid, number)
            if version is None:
                raise NotWhole(f"version {number} of the bandit is not kept any more")
            records[number] = version.record
        rewarded = [pair for pair in zip(page.rows, decisions, strict=True) if pair[0].rewards]
        await yield_to_others()
        arm_ids = {arm for _, decision in rewarded for arm in decision.arms}
        features = await catalogues.features(moved.catalogue, arm_ids)
        learn = partial(_of_rows, moved, rewarded, records, features, arms)
        for name, state in (await MEASURING.run(learn)).items():
            states[name] = merged(states.get(name), state)
        if arms is not None:
            await pace.rest()
        if len(states) * moved.state_bytes > MOST_BYTES:
            raise NotWhole(f"learners take more than {16 * MOST_BYTES >> 20:,} MB")
        position = page.following or LAST_POSITION
        pages.append((position, page.newest))
    return StartingStates(states, after, frozenset((moved.record.space,)), pages, arms)


def _of_rows(
    moved: Bandit,
    rewarded: Sequence[tuple[StoredRow, Decision]],
    records: Mapping[int, BanditRecord],
    features: ArmFeatures,
    recomputed_arms: RecomputedArms | None,
) -> Mapping[str, LearnerState]:
    """What learners know of rows and no others. Raises NotWhole: an arm is not in the catalogue.

    ``recomputed_arms`` are taught by the rows.
    """
    items, revised = list[Item](), Counter[str]()
    for stored, decision in rewarded:
        taught, first_item = list[RewardedArm](), len(items)
        row, record = row_of(decision, "", stored.rewards, None), records[decision.bandit_version]
        context, learner = decision.encoded_context, LearnerId(moved.uid, decision.learner)
        for reward, _, entry in counted_of(row, learner, list(record.signals or ())):
            if reward.arm not in features:
                raise NotWhole(f"{moved.record.catalogue} lacks the arm {reward.arm}, which was rewarded")
            vector, revision = features[reward.arm]
            joint = moved.joint_features(vector, context)
            judged = None if reward.signal is None else SignalRef.of(record.signals or {}, reward.signal)
            position = decision.arms.index(reward.arm)
            examined = 1.0 if record.position is None else record.position.at(position)
            pair = decision.effect_at(position)
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
            items.append((entry, unpack(data, RewardPayload)))
            if pair is not None and teaches(pair):
                taught.append(RewardedArm(items[-1], reward.arm, revision, joint))
            revised[decision.learner] += reward.revised
        if recomputed_arms is not None and len(items) > first_item:
            recomputed_arms.add(decision.learner, items[first_item:], taught)
    return {
        learner.name: replace(state, version=state.version + revised[learner.name])
        for learner, state in learned(items).items()
        if state is not None
    }
