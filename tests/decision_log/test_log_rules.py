"""How long rows stay after a change of the bandit, which decisions are logged, the same choice once more."""

import msgspec
import pytest

from app.bandits.bandit import Bandit
from app.bandits.settings import BanditRecord, LogRule
from app.bandits.versions import BanditVersion
from app.decision_log.reading import LoggedChoice
from app.decision_log.rows import counted_of
from app.filters.filter import parse
from app.platform.ids import is_logged
from app.platform.metrics import Metrics
from app.records.logged import LEFT_OUT, MOST_ASKED, LoggedRequest, asked_bytes, asked_of
from app.rewards.tokens import decision_of, new_decision_id, raw_of, text_of
from app.selection.request import ChooseRequest
from app.storage.types import LearnerId
from headless_service import HeadlessService
from logged_rows import reward_of, row
from workers.log_retention import LogRetention

pytestmark = pytest.mark.anyio

HOUR_S = 3_600.0


async def log_by(service: HeadlessService, rule: LogRule | None) -> Bandit:
    def changed(uid: str, version: BanditVersion) -> BanditRecord:
        return msgspec.structs.replace(version.record, log=rule)

    return await service.parts.bandits.change("b", changed)


async def found(service: HeadlessService, bandit: Bandit, token: str) -> LoggedChoice | None:
    await service.parts.rows.flush()
    return await service.parts.decision_log.find(bandit, token)


@pytest.mark.parametrize(
    ("rule", "hours", "stays"),
    [(LogRule(HOUR_S), 2, False), (LogRule(9 * HOUR_S), 2, True), (None, 2, True), (None, 6, False)],
    ids=["shorter", "longer", "off", "off for long"],
)
async def test_rows_stay_as_long_as_the_bandit_says_now(
    service: HeadlessService, rule: LogRule | None, hours: int, stays: bool
):
    """Without a log: as long as it said last."""
    bandit = await service.bandit(log=LogRule(7 * HOUR_S))
    retention = LogRetention(service.store, Metrics(), most_bytes=2**40)  # type: ignore[arg-type]
    token = (await service.choose(bandit)).decision
    logged = await found(service, bandit, token)
    assert logged is not None
    await log_by(service, LogRule(5 * HOUR_S))
    await retention.sweep(logged.row.time)
    await log_by(service, rule)
    await retention.sweep(logged.row.time + round(1_000 * hours * HOUR_S))
    assert (await found(service, bandit, token) is not None) == stays


def test_a_share_is_a_sample_and_a_smaller_one_is_part_of_it():
    """Of 20,000 decisions: within 7 sigma, since the ids are random."""
    ids = [new_decision_id() for _ in range(20_000)]
    shares = (0.01, 0.1, 0.5, 1.0)
    samples = [{name for name in ids if is_logged(name, share)} for share in shares]
    for share, sample in zip(shares, samples, strict=True):
        assert abs(len(sample) - 20_000 * share) <= 7 * (20_000 * share * (1 - share)) ** 0.5
    assert samples[0] < samples[1] < samples[2] < samples[3]
    assert is_logged("AAAAAAAAAAAAAAAA", 0.5) == is_logged("AAAAAAAAAAAAAAAA", 0.5)


@pytest.mark.parametrize("policy", ["linear_ts", "softmax", "igw"])
async def test_the_seed_of_a_choice_gives_it_again(service: HeadlessService, policy: str):
    """The one that was drawn gives the same arms and propensities, for the same learner and catalogue."""
    await service.catalogue("d", dim=3, arms=40)
    options = {"softmax": {"temperature": 1.0}, "igw": {"gamma": 5.0}}.get(policy, {"exploration": 2.0})
    bandit = await service.bandit(catalogue="d", policy=policy, log=LogRule(), **options)
    shown = set()
    for _ in range(12):
        choice = await service.choose(bandit, k=3)
        logged = await found(service, bandit, choice.decision)
        assert logged is not None
        assert not logged.part.seeded
        again = await service.choose(bandit, k=3, seed=logged.part.seed)
        assert again.arms == choice.arms
        shown.add(tuple(arm.id for arm in choice.arms))
    assert len(shown) > 1, "the choices differ, so the seed matters"


async def test_what_a_request_asked_for_is_kept_unless_it_is_large(service: HeadlessService):
    bandit = await service.bandit(log=LogRule(), filter={"no": {"$exists": False}})
    wanted = {"price": {"$exists": False}}
    many = [f"arm-{n * 7919 % 100_003}" for n in range(3_000)]
    for exclude in (["a1", "a2"], many):
        request = ChooseRequest(
            key="ann",
            k=2,
            exclude=exclude,
            event_id=f"e{len(exclude)}",
            seed=7,
            arm_filter=parse(dict(wanted)),
        )
        choice = await service.parts.choosing.choose(bandit, request)
        logged = await found(service, bandit, choice.decision)
        assert logged is not None
        assert (logged.part.seed, logged.part.seeded, logged.row.eligible) == (7, True, 4)
        if exclude is many:
            assert logged.asked is None
            assert logged.row.filter is None
            assert len(raw_of(choice.decision)) < 300
        else:
            assert logged.asked == LoggedRequest(2, exclude, "e2", None, wanted)
            assert logged.row.filter == {"$and": [{"no": {"$exists": False}}, wanted]}


@pytest.mark.rest
@pytest.mark.parametrize("count", [0, 1, 20, 200, 2_000, 100_000])
def test_what_was_asked_is_packed_within_its_bound(count: int):
    asked = LoggedRequest(k=2, exclude=[f"arm-{n}" for n in range(count)])
    data = asked_bytes(asked)
    assert data is not None
    assert len(data) <= MOST_ASKED + 1
    assert asked_of(data) == (None if data == LEFT_OUT else asked)
    assert (data == LEFT_OUT) == (count > 1_000)
    assert asked_bytes(LoggedRequest()) is None
    assert asked_of(None) == LoggedRequest()


@pytest.mark.rest
async def test_a_token_of_a_decision_that_is_not_logged_is_as_long_as_before(service: HeadlessService):
    bandit = await service.bandit()
    choice = await service.choose(bandit)
    assert decision_of(raw_of(choice.decision)).logged is None
    assert await found(service, bandit, choice.decision) is None
    for token in ("", "no", "\u00fc", choice.decision[:-9], choice.decision + "A"):
        assert await found(service, bandit, token) is None


async def test_a_token_that_was_changed_has_no_row(service: HeadlessService):
    """Its signature alone: what it names is the same decision."""
    bandit = await service.bandit(log=LogRule())
    token = (await service.choose(bandit)).decision
    raw = raw_of(token)
    assert await found(service, bandit, token) is not None
    assert await found(service, bandit, text_of(raw[:-1] + bytes([raw[-1] ^ 1]))) is None


async def test_few_late_rows_of_a_partition_stand_behind_many_of_another(service: HeadlessService):
    """They are read at once, and wait for rows of the other one that are not read yet."""
    service.parts.decision_log.together = 3
    bandit = await service.bandit(log=LogRule())
    partitions = {
        bandit.learner_for(key).partition(service.store.partitions): key for key in map(str, range(9))
    }
    first, second, *_ = partitions.values()
    tokens = [(await service.choose(bandit, key)).decision for key in [first] * 8 + [second] * 2]
    await service.parts.rows.flush()
    pages = service.parts.decision_log.pages(bandit, from_ms=None, to_ms=None)
    rows = [row.decision async for page in pages for row in page]
    assert sorted(rows) == sorted(tokens)


@pytest.mark.rest
async def test_rows_as_they_are_stored_come_in_pages_from_either_end(service: HeadlessService):
    bandit = await service.bandit(log=LogRule())
    tokens = {(await service.choose(bandit, f"k{number % 7}")).decision for number in range(40)}
    await service.parts.rows.flush()
    orders = list[list[str]]()
    for newest_first in (False, True):
        pages = service.parts.decision_log.stored_pages(
            bandit, from_ms=None, together=3, newest_first=newest_first
        )
        rows = [row async for page in pages for row in page]
        assert sorted(text_of(row.record) for row in rows) == sorted(tokens)
        orders.append([row.position for row in rows])
    assert orders == [sorted(orders[0]), sorted(orders[0], reverse=True)]


async def test_of_several_rewards_the_first_alone_replaces_the_default():
    rewards = [reward_of(2.0, default=True), reward_of(3.0), reward_of(4.0)]
    counted = counted_of(row(rewards=rewards), LearnerId("u" * 16, "k"), ())
    assert [replaced for _, replaced, _ in counted] == [None, 2.0, None]
