"""What learners knew before each block, against the fold of exactly those entries that had come by then."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import zip_longest
from operator import itemgetter
from typing import Any

import msgspec
import numpy as np
import pytest

from app.bandits.bandit import GLOBAL_LEARNER, Bandit, bandit_of
from app.bandits.settings import BanditRecord, PositionRule, RewardRule
from app.bandits.versions import BanditVersion, version_to_bytes
from app.catalogues.catalogue import Catalogue
from app.decision_log.rows import LoggedCandidate, Row
from app.fold.fold import States, fold
from app.indexes.live import IndexOptions, LiveIndex
from app.platform.errors import TooLarge
from app.policies.registry import POLICIES
from app.records.encoding import ContextRule, EncodedField, MatchRule
from app.records.log_entries import DecodedEntry, RewardEntry
from app.records.records import CatalogueRecord, vector_to_bytes
from app.rewards.tokens import Decision, TokenSigner
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
    "match": {"intercept": True, "constant": 0.7, "match": MatchRule([EncodedField("km", "number")])},
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
        vector = entry.pop("said", FEATURES[arm])
        features = self.bandit.examination_at(entry.pop("place", 0)) * self.bandit.joint_features(
            vector, numbers
        )
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
        rewards, carried = [], list[bytes]()
        # a request brought some arms, and said numbers of all
        if log.bandit.match is not None and number % 3:
            is_own = rng.random(len(arms)) < 0.4
            carried = [rng.normal(size=DIM * own + 1).astype("<f4").tobytes() for own in is_own]
        said = [_with_said(arm, numbers) for arm, numbers in zip_longest(arms, carried, fillvalue=b"")]
        for place, arm in enumerate(arms):
            first, after, before = True, at, 0.0
            if record.reward.wait_s is not None and rng.random() < 0.6:
                after = at + 25
                default = record.reward.default or 0.0
                rewards.append(reward_of(default, f"a{arm}", time=after, default=True))
                log.append(
                    key, context, arm, default, after, first=True, decided=at, place=place, said=said[place]
                )
                first = False
            times = rng.integers(0, 3 if record.reward.aggregate == "sum" else 2)
            for again in range(times):
                after += int(rng.integers(0, 200))
                value = float(rng.normal())
                rewards.append(reward_of(value, f"a{arm}", time=after))
                came = ((0, before),) if again else ()
                how = {"first": first, "came": came, "decided": at, "place": place, "said": said[place]}
                log.append(key, context, arm, value, after, **how)
                first, before = False, before + value
        shown = [f"a{arm}" for arm in arms]
        more_of_row: dict[str, Any] = {}
        if carried:
            more_of_row = {"decision": _token(shown, carried), "candidates": [*map(LoggedCandidate, shown)]}
        log.rows.append(row(arms=shown, time=at, key=key, context=context, rewards=rewards, **more_of_row))
        versions[key] = 0
    return log


def _with_said(arm: int, carried: bytes) -> np.ndarray:
    """The numbers of an arm as a request brought it, and what it said: those that a token carries."""
    numbers = np.frombuffer(carried, "<f4").astype(float)
    return numbers if len(numbers) > 1 else np.append(FEATURES[arm], numbers)


def _token(arms: list[str], carried: list[bytes]) -> str:
    decision = Decision(UID, GLOBAL_LEARNER, "d", 0, 1, arms, [1] * len(arms), carried=carried)
    signer = TokenSigner()
    signer.use({1: b"secret"}, current=1)
    return signer.sign(decision)


async def pages(rows: Sequence[Row], size: int = 7) -> AsyncIterator[Sequence[Row]]:
    for start in range(0, len(rows), size):
        yield rows[start : start + size]


async def check(log: LogWithEntries, past: PastLearners) -> None:
    """Every posterior of every block."""
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
    await past.survey(pages(log.rows))
    assert (past.beginning, len(past.blocks)) == ("log", min(count, blocks.BLOCKS))
    assert not past.weighs(0)
    assert past.weighs(1)
    await check(log, past)


FROM_MS = 1_300  # the thirtieth decision, whose learners have many rewards still to come


def teach_before(log: LogWithEntries, count: int = 5, at: int = 500) -> None:
    """What came before the log, of every key."""
    rng = np.random.default_rng(count + at)
    for key in {each.key for each in log.rows}:
        for number in range(count):
            context = [0.5, -0.5] if log.bandit.context is not None else None
            log.append(key, context, number, float(rng.normal()), at, first=True)


def note_versions(log: LogWithEntries, delay_ms: int = 0) -> None:
    """Each row says how many entries its learner had when it was decided, or some time before."""
    for place, each in enumerate(log.rows):
        state = log.states_at(each.time - delay_ms).get(log.learner(each.key))
        version = 0 if state is None else state.version
        log.rows[place] = msgspec.structs.replace(each, learner_version=version)


def held(states: States) -> HeldSource:
    return HeldSource(learners={learner.name: state for learner, state in states.items() if state})


async def surveyed(
    log: LogWithEntries, source: HeldSource | None = None, *, to_ms: int = 10_000, **options: Any
) -> PastLearners:
    """Of the decisions from ``FROM_MS`` on. Those before are in the log."""
    past = PastLearners(log.bandit, source or HeldSource(), **options)
    earlier = [each for each in log.rows if each.time < FROM_MS]
    asked = [each for each in log.rows if FROM_MS <= each.time < to_ms]
    await past.survey(pages(asked), pages(earlier))
    return past


@pytest.mark.parametrize("case", CASES)
async def test_what_earlier_rows_say_was_known(case: str):
    """Also what came of earlier decisions only after the first that is asked for, and what fades."""
    log = simulate(case, 90, seed=4)
    note_versions(log)
    for to_ms in (10_000, 1_600):
        past = await surveyed(log, to_ms=to_ms)
        assert (past.beginning, past.unknown) == ("known", set())
        assert past.weighs(0)
        asked = [each for each in log.rows if FROM_MS <= each.time < to_ms]
        await check(LogWithEntries(log.bandit, asked, log.entries), past)
        assert past.lacking() == 0


@pytest.mark.rest
@pytest.mark.parametrize("case", CASES)
async def test_what_the_source_says_was_known_before_the_log(case: str):
    log = simulate(case, 60, seed=9)
    teach_before(log)
    note_versions(log)
    source = held(log.states_at(log.rows[0].time))
    past = PastLearners(log.bandit, source)
    await past.survey(pages(log.rows))
    assert past.beginning == "known"
    await check(log, past)
    past = await surveyed(log, source)
    assert past.beginning == "known"
    await check(LogWithEntries(log.bandit, log.rows[30:], log.entries), past)


@pytest.mark.rest
@pytest.mark.parametrize("case", ["given", "lost", "forgotten", "unlike", "too new"])
async def test_where_rows_do_not_say_all_learners_begin_with_nothing(case: str):
    """Observations, rows that are gone, a learner that began again, a state that knows the log already."""
    log = simulate("keys", 90, seed=4)
    if case == "given":
        teach_before(log)
    note_versions(log)
    source = held(log.states_at(np.inf)) if case == "too new" else HeldSource()
    rows = log.rows
    if case == "lost":
        log.rows = rows[:10] + rows[20:]
    elif case == "forgotten":
        less = [max(each.learner_version - 3, 0) for each in rows]
        log.rows = [
            msgspec.structs.replace(each, learner_version=version)
            for each, version in zip(rows, less, strict=True)
        ]
    elif case == "unlike":
        log.rows = [msgspec.structs.replace(each, learner_version=each.learner_version + 1) for each in rows]
    past = await surveyed(log, source, under_way_ms=0)
    assert past.beginning == "log"
    alone = PastLearners(log.bandit, HeldSource())
    asked = [each for each in log.rows if each.time >= FROM_MS]
    firsts = {each.key: each.learner_version for each in reversed(asked)}
    assert past.unknown == {log.learner(key) for key, version in firsts.items() if version}
    await alone.survey(pages(asked))
    for block in range(len(past.blocks)):
        await past.begin(block)
        await alone.begin(block)
        for key in ("k0", "k1", "k2"):
            ours, theirs = await past.posterior(key), await alone.posterior(key)
            np.testing.assert_array_equal(ours.theta, theirs.theta)
        first, *following = [*past.blocks.first.tolist()[block:], len(asked)]
        for each in (past, alone):
            await each.learn(asked[first : following[0]])


@pytest.mark.rest
async def test_learners_that_would_take_too_much_memory_are_refused():
    log = simulate("keys", 60, seed=9)
    past = PastLearners(log.bandit, HeldSource(), most_bytes=300)
    await past.survey(pages(log.rows))
    with pytest.raises(TooLarge, match="less time"):
        await check(log, past)
