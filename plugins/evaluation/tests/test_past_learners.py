"""What learners knew before each block, against the fold of exactly those entries that had come by then."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from operator import itemgetter
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.bandits.bandit import GLOBAL_LEARNER, Bandit, bandit_of
from app.bandits.settings import BanditRecord, PositionRule, RewardRule
from app.bandits.versions import BanditVersion, version_to_bytes
from app.catalogues.catalogue import Catalogue
from app.decision_log.rows import Row
from app.indexes.live import IndexOptions, LiveIndex
from app.learning.fold import States, fold
from app.platform.errors import TooLarge
from app.policies.registry import POLICIES
from app.records.encoding import ContextRule
from app.records.log_entries import DecodedEntry, RewardEntry
from app.records.records import CatalogueRecord, LearnerState, vector_to_bytes
from app.storage.types import LearnerId
from log_entries import entry_of
from logged_rows import reward_of, row
from shortlist.evaluation import blocks
from shortlist.linear import ridge, ridge_sums
from shortlist_evaluation.past_learners import PastLearners
from shortlist_evaluation.sources import HeldSource

pytestmark = pytest.mark.anyio

UID, DIM, ARMS = "0" * 16, 3, 12
FEATURES = np.random.default_rng(3).normal(size=(ARMS, DIM))
CASES: Mapping[str, dict[str, Any]] = {
    "plain": {},
    "keys": {"scope": "per_key"},
    "contexts": {"context": ContextRule(dim=2), "interactions": "all"},
    "intercept": {"context": ContextRule(dim=2), "interactions": "all", "intercept": True, "constant": 0.7},
    "places": {"scope": "per_key", "position": PositionRule([1.0, 0.4])},
    "late": {"reward": RewardRule(wait_s=5.0, default=0.5)},
    "sums": {"scope": "per_key", "reward": RewardRule(wait_s=5.0, default=0.5, aggregate="sum")},
    "noise": {
        "scope": "per_key", "exploration": "auto", "ridge": "auto",
        "reward": RewardRule(wait_s=5.0, default=0.5, aggregate="sum"),
    },
    "fading": {"scope": "per_key", "half_life_s": 0.02},
}  # fmt: skip


def bandit(**settings_: Any) -> Bandit:
    options = IndexOptions(kind="exact")
    index = LiveIndex(DIM, options)
    index.upsert([f"a{number}" for number in range(ARMS)], FEATURES, range(ARMS))
    fields: dict[str, Any] = {
        "catalogue": "c", "policy": "softmax", "scope": "global", "ridge": 0.7, "exploration": 1.0,
        "delta": 0.05, "horizon": 100, "shortlist": 3, "eta": None,
        "reward": RewardRule(), "temperature": 1.0,
    }  # fmt: skip
    record = BanditRecord(**{**fields, **settings_})
    catalogue = Catalogue("c", UID, CatalogueRecord(DIM, asdict(options)), index)
    return bandit_of("b", version_to_bytes(UID, BanditVersion(record)), catalogue, POLICIES)


@dataclass
class LogWithEntries:
    """A log and its entries, with the time at which each came."""

    bandit: Bandit
    rows: list[Row] = field(default_factory=list)
    entries: list[tuple[int, DecodedEntry]] = field(default_factory=list)

    def learner(self, key: str | None) -> LearnerId:
        return LearnerId(UID, GLOBAL_LEARNER if key is None else key)

    def append(self, key: str | None, context: Any, arm: int, value: float, at: int, **entry: Any) -> None:
        numbers = None if context is None else np.array(context, np.float32)
        features = self.bandit.learned_features(FEATURES[arm], numbers, entry.pop("place", 0))
        decided = entry.pop("decided", at)
        record = self.bandit.record
        content = RewardEntry(
            vector_to_bytes(features),
            value,
            decided_ms=decided,
            half_life_s=record.half_life_s or 0.0,
            sums=True,
            defaults=record.defaults(),
        )
        number = f"{at}-{len(self.entries)}"
        self.entries.append((at, entry_of(number, self.learner(key), content, **entry)))

    def states_at(self, at: float) -> States:
        """What the service's fold makes of the entries that came before."""
        entries = [entry for at_ms, entry in sorted(self.entries, key=itemgetter(0)) if at_ms < at]
        return fold(dict.fromkeys(entry.learner for entry, _ in entries), entries)

    def posterior(self, states: States, key: str | None) -> ridge.Posterior:
        own = states.get(self.learner(key))
        return self.bandit.posterior(ridge_sums.empty(self.bandit.learner_dim) if own is None else own.sums)


def simulate(case: str, count: int, seed: int, **more: Any) -> LogWithEntries:
    """Decisions of one or two arms at 1,000, 1,010, ..., whose rewards come soon, late, or never."""
    log, rng = LogWithEntries(bandit(**{**CASES[case], **more})), np.random.default_rng(seed)
    record, versions = log.bandit.record, dict[str | None, int]()
    for number in range(count):
        key = None if record.scope == "global" else f"k{rng.integers(3)}"
        context = rng.normal(size=2).round(2).tolist() if log.bandit.context is not None else None
        at, arms = 1_000 + 10 * number, rng.permutation(ARMS)[: rng.integers(1, 3)].tolist()
        rewards = []
        for place, arm in enumerate(arms):
            first, after, before = True, at, 0.0
            if record.reward.wait_s is not None and rng.random() < 0.6:
                after = at + 25
                default = record.reward.default or 0.0
                rewards.append(reward_of(default, f"a{arm}", time=after, default=True))
                log.append(key, context, arm, default, after, first=True, decided=at, place=place)
                first = False
            times = rng.integers(0, 3 if record.reward.aggregate == "sum" else 2)
            for again in range(times):
                after += int(rng.integers(0, 200))
                value = float(rng.normal())
                rewards.append(reward_of(value, f"a{arm}", time=after))
                came = ((0, before),) if again else ()
                how = {"first": first, "came": came, "decided": at, "place": place}
                log.append(key, context, arm, value, after, **how)
                first, before = False, before + value
        shown = [f"a{arm}" for arm in arms]
        log.rows.append(row(arms=shown, time=at, key=key, context=context, rewards=rewards))
        versions[key] = 0
    return log


async def pages(rows: Sequence[Row], size: int = 7) -> AsyncIterator[Sequence[Row]]:
    for start in range(0, len(rows), size):
        yield rows[start : start + size]


@dataclass
class FixedStates:
    states: States

    async def __call__(self, learner: LearnerId) -> LearnerState | None:
        return self.states.get(learner)


async def check(log: LogWithEntries, past: PastLearners, before: LogWithEntries | None = None) -> None:
    """Every posterior of every block. ``before``: what came before the log."""
    keys = sorted({each.key for each in log.rows}, key=str)
    first = [*past.blocks.first.tolist(), len(log.rows)]
    for block, border in enumerate(past.blocks.times.tolist()):
        await past.begin(block)
        states = log.states_at(border)
        for key in keys:
            expected, posterior = log.posterior(states, key), await past.posterior(key)
            np.testing.assert_allclose(posterior.theta, expected.theta, rtol=1e-7, atol=1e-9)
            np.testing.assert_allclose(posterior.root, expected.root, rtol=1e-7, atol=1e-9)
            assert posterior.sigma == pytest.approx(expected.sigma)
        await past.learn(log.rows[first[block] : first[block + 1]])


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("count", [0, 1, 7, 60])
async def test_from_nothing_learners_know_what_had_come_before_each_block(case: str, count: int):
    log = simulate(case, count, seed=count)
    past = PastLearners(log.bandit, HeldSource())
    await past.survey(pages(log.rows), from_ms=None, to_ms=None)
    assert (past.beginning, past.why, len(past.blocks)) == ("log", None, min(count, blocks.BLOCKS))
    assert not past.weighs(0)
    assert past.weighs(1)
    await check(log, past)


KNOWING = [case for case in CASES if case != "fading"]


def teach_before(log: LogWithEntries, count: int = 5, at: int = 500) -> None:
    """What came before the log, of every key."""
    rng = np.random.default_rng(count + at)
    for key in {each.key for each in log.rows}:
        for number in range(count):
            context = [0.5, -0.5] if log.bandit.context is not None else None
            log.append(key, context, number, float(rng.normal()), at, first=True)


def note_versions(log: LogWithEntries) -> None:
    """Each row says how many entries its learner had when it was decided."""
    for place, each in enumerate(log.rows):
        state = log.states_at(each.time).get(log.learner(each.key))
        version = 0 if state is None else state.version
        log.rows[place] = msgspec.structs.replace(each, learner_version=version)


@pytest.mark.parametrize("case", KNOWING)
async def test_what_was_known_is_what_is_known_less_what_came(case: str):
    log = simulate(case, 60, seed=9)
    teach_before(log)
    note_versions(log)
    past = PastLearners(log.bandit, HeldSource(), FixedStates(log.states_at(np.inf)))
    await past.survey(pages(log.rows), from_ms=None, to_ms=None)
    assert (past.beginning, past.why) == ("known", None)
    assert past.weighs(0)
    await check(log, past)


@pytest.mark.parametrize(("from_ms", "beginning"), [(None, "known"), (1_300, "log")])
async def test_revised_rewards_are_taken_back_where_their_decisions_are_asked_for(
    from_ms: int | None, beginning: str
):
    """Its learner counted each value. Of earlier decisions it is unknown when which value came."""
    log = simulate("plain", 60, seed=9)
    teach_before(log)
    note_versions(log)
    late = [
        place for place, each in enumerate(log.rows[:30]) if each.rewards and each.rewards[-1].time > 1_300
    ]
    today = log.states_at(np.inf)
    for place in late:
        *earlier, last = log.rows[place].rewards
        rewards = [*earlier, msgspec.structs.replace(last, revised=1)]
        log.rows[place] = msgspec.structs.replace(log.rows[place], rewards=rewards)
        today = {name: replace(state, version=state.version + 1) for name, state in today.items() if state}
    past = PastLearners(log.bandit, HeldSource(), FixedStates(today))
    await past.survey(pages(log.rows), from_ms=from_ms, to_ms=None)
    assert len(late) > 3
    assert past.beginning == beginning


@pytest.mark.rest
async def test_rewards_of_decisions_after_the_time_are_taken_back_too():
    log = simulate("keys", 60, seed=9)
    teach_before(log)
    note_versions(log)
    past = PastLearners(log.bandit, HeldSource(), FixedStates(log.states_at(np.inf)))
    await past.survey(pages(log.rows), from_ms=None, to_ms=1_300)
    assert past.beginning == "known"
    assert past.blocks.first[-1] < 30
    log.rows = log.rows[:30]
    await check(log, past)


@pytest.mark.rest
@pytest.mark.parametrize("case", KNOWING)
async def test_late_rewards_of_earlier_decisions_are_known_when_they_came(case: str):
    """The time asked for begins at the thirtieth decision, whose learners had many rewards still to come."""
    log = simulate(case, 90, seed=4)
    teach_before(log)
    note_versions(log)
    today = FixedStates(log.states_at(np.inf))
    for start, from_ms in ((0, 1_300), (5, 1_300)):  # with all rows before, and without some
        past = PastLearners(log.bandit, HeldSource(), today)
        await past.survey(pages(log.rows[start * 5 :]), from_ms=from_ms, to_ms=None)
        assert past.beginning == ("known" if not start else "log")
        if not start:
            later = LogWithEntries(log.bandit, log.rows[30:], log.entries)
            await check(later, past)
    assert past.why is not None


@pytest.mark.rest
async def test_rewards_that_had_just_come_need_not_have_been_known():
    """Every decision was log with what was known 40 ms before."""
    log = simulate("plain", 90, seed=4)
    teach_before(log)
    for place, each in enumerate(log.rows):
        version = log.states_at(each.time - 40)[log.learner(None)].version
        log.rows[place] = msgspec.structs.replace(each, learner_version=version)
    today = FixedStates(log.states_at(np.inf))
    for under_way_ms, begin in ((50, "known"), (0, "log")):
        past = PastLearners(log.bandit, HeldSource(), today, under_way_ms=under_way_ms)
        await past.survey(pages(log.rows), from_ms=1_300, to_ms=None)
        assert past.beginning == begin


@pytest.mark.rest
@pytest.mark.parametrize("case", ["fading", "given", "lost", "forgotten", "unlike", "tiny"])
async def test_what_cannot_be_taken_back_is_fitted_from_the_log_alone(case: str):
    """Observations or a state since, rows that are gone, a learner that began again, nothing but rounding."""
    more = {"ridge": 1e-13} if case == "tiny" else {}
    log = simulate(case if case in CASES else "keys", 60, seed=9, **more)
    teach_before(log)
    note_versions(log)
    rows, today = log.rows, dict(log.states_at(np.inf))
    if case == "given":
        later = LogWithEntries(log.bandit, log.rows, list(log.entries))
        teach_before(later, count=11, at=1_500)
        today = dict(later.states_at(np.inf))
    elif case == "lost":
        rows = rows[:10] + rows[40:]
    elif case == "forgotten":
        today[log.learner("k0")] = None
    elif case == "unlike":
        rows = [msgspec.structs.replace(each, learner_version=each.learner_version + 1) for each in rows]
    past = PastLearners(log.bandit, HeldSource(), FixedStates(today))
    await past.survey(pages(rows), from_ms=None, to_ms=None)
    assert past.beginning == "log"
    assert past.why is not None
    log.rows, log.entries = rows, [each for each in log.entries if each[0] != 500]
    if case not in {"lost", "tiny"}:
        await check(log, past)


@pytest.mark.rest
async def test_learners_that_would_take_too_much_memory_are_refused():
    log = simulate("keys", 60, seed=9)
    past = PastLearners(log.bandit, HeldSource(), most_bytes=300)
    await past.survey(pages(log.rows), from_ms=None, to_ms=None)
    with pytest.raises(TooLarge, match="less time"):
        await check(log, past)


@pytest.mark.rest
@given(st.lists(st.integers(0, 400), max_size=5), st.integers(1, 50))
@settings(max_examples=60)
def test_blocks_are_even_whatever_the_pieces(sizes: list[int], gap: int):
    clock, count = blocks.start(), sum(sizes)
    times = np.arange(count, dtype=float) * gap
    for part in np.split(times, np.cumsum(sizes)[:-1] if sizes else []):
        clock = blocks.add(clock, part)
    found = blocks.of(clock)
    assert len(found) == min(count, blocks.BLOCKS)
    np.testing.assert_array_equal(found.times, found.first * gap)
    if count:
        lengths = np.diff([*found.first, count])
        assert found.first[0] == 0
        assert lengths.max() - lengths.min() <= 2 * clock.step
        known = found.known_to(times)
        own = np.searchsorted(found.first, np.arange(count), side="right") - 1
        assert (known > own).all()  # nobody knows its own block
        assert (known == own + 1).all()


@pytest.mark.rest
def test_many_decisions_are_counted_in_bounded_memory():
    clock = blocks.start()
    for part in np.array_split(np.arange(100_003.0), 501):
        clock = blocks.add(clock, part)
    found = blocks.of(clock)
    assert len(clock.times) <= 2_048
    assert np.diff([*found.first, 100_003]) == pytest.approx(100_003 / 20, rel=0.03)
    np.testing.assert_array_equal(found.first, found.times)
