"""Quotas over HTTP: what counts, what is used up, and what is refused. Several processes: tests/processes."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from api_client import Api, Json
from app.exposure_limits.rules import MAX_QUOTAS, BanditQuota, QuotaRule
from waiting import wait_until

pytestmark = pytest.mark.anyio

QUOTA = "/v1/bandits/b/quotas/q"
ARMS = {f"a{n}": n % 3 for n in range(12)}  # arm -> campaign
DAY = 86_400
DECADE = 3_650 * DAY  # a window of which none ends while a test runs


async def build(api: Api, **bandit: Any) -> None:
    await api.ok("PUT", "/v1/catalogues/c", {"dim": 2}, 201)
    rows = [
        {
            "id": arm,
            "features": [1.0 + n / 10, 1.0],
            "tags": ["new"] if n < 6 else [],
            "metadata": {"campaign": campaign, "price": n},
        }
        for n, (arm, campaign) in enumerate(ARMS.items())
    ]
    await api.ok("PUT", "/v1/catalogues/c/arms", {"arms": rows})
    await api.bandit("b", "c", **bandit)


async def quota(api: Api, name: str = "q", status: int = 201, **body: Any) -> Json:
    answer: Json = await api.ok("PUT", f"/v1/bandits/b/quotas/{name}", body, status)
    return answer


def campaigns(choice: Json) -> list[int]:
    return [ARMS[arm["id"]] for arm in choice["arms"]]


async def state(api: Api, name: str = "q") -> Json:
    answer: Json = await api.ok("GET", f"/v1/bandits/b/quotas/{name}")
    return answer


# Ways to choose that differ from a policy's own; one policy stands for all.
WAYS: dict[str, Json] = {
    "softmax": {"policy": "softmax"},
    "adaptive": {"policy": "sub_ts", "solver": "adaptive"},
    "holdout": {"policy": "sub_ts", "holdout": {"share": 1.0}},
    "named": {"policy": "sub_ts", "holdout": {"share": 1.0, "serve": {"arms": ["a0", "a3", "a1"]}}},
}


@pytest.mark.parametrize("name", WAYS)
async def test_never_more_than_most_whatever_chooses(api: Api, name: str):
    await build(api, **WAYS[name])
    await quota(api, filter={"campaign": 0}, most=7, per_s=DECADE)
    await quota(api, "one", arm="a1", most=2)
    shown = Counter[str]()
    for k in (1, 4, 2, 3, 5, 6, 4, 1, 7, 12, 12, 12):
        answer = await api.call("POST", "/v1/bandits/b/choose", {"k": k})
        if answer.status_code == 409:
            assert answer.json()["code"] == "no_arms"
            break
        shown.update(arm["id"] for arm in answer.json()["arms"])
    of_campaign = sum(count for arm, count in shown.items() if ARMS[arm] == 0)
    assert of_campaign <= 7
    assert shown["a1"] <= 2
    if name != "named":
        assert (of_campaign, shown["a1"]) == (7, 2)
    found = await state(api)
    assert (found["used"], found["left"]) == (of_campaign, 7 - of_campaign)
    await quota(api, filter={"campaign": 0}, most=of_campaign - 1, per_s=DECADE, status=200)
    assert (await state(api))["left"] == 0, "more was shown than may be by now"


@pytest.mark.rest
async def test_many_callers_at_once(api: Api):
    await build(api)
    await quota(api, filter={"campaign": 0}, most=50)
    await quota(api, "tagged", filter={"tags": "new"}, most=20)
    answers = await asyncio.gather(*(api.choose("b", k=1 + n % 4) for n in range(120)))
    shown = Counter(arm["id"] for answer in answers for arm in answer["arms"])
    assert sum(count for arm, count in shown.items() if ARMS[arm] == 0) == 50
    assert sum(count for arm, count in shown.items() if int(arm[1:]) < 6) == 20


@pytest.mark.rest
async def test_what_each_kind_of_choice_counts(api: Api):
    await build(api)
    await quota(api, filter={"campaign": 0}, most=100)

    async def used() -> int:
        found = await state(api)
        return int(found["used"])

    first = await api.choose("b", k=12, event_id="e")
    assert await used() == 4  # each arm of a list
    assert await api.choose("b", k=12, event_id="e") == first
    assert await used() == 4  # an answer that is given again
    await api.choose("b", k=12, dry_run=True)
    assert await used() == 4
    requests = [{"k": 12}, {"k": 12, "event_id": "e"}, {"k": 12, "event_id": "f"}]
    await api.ok("POST", "/v1/bandits/b/choose/batch", {"requests": requests})
    assert await used() == 12  # each new choice of a batch
    bad = {"requests": [{"k": 12}, {"k": 12, "event_id": "g"}, {"filter": {"campaign": 9}}]}
    await api.refused("POST", "/v1/bandits/b/choose/batch", bad, status=409, code="no_arms")
    assert await used() == 16  # what is kept for its event will be answered, the others will not
    pins = {"pin": [{"arm": "a0", "place": 1}]}
    await api.choose("b", k=1, rules=pins)
    assert await used() == 17
    answers = await asyncio.gather(*(api.choose("b", k=12, event_id="h") for _ in range(8)))
    assert len({answer["decision"] for answer in answers}) == 1
    assert await used() == 21


@pytest.mark.rest
async def test_a_quota_limits_and_counts_nothing_outside_of_its_times(api: Api):
    await build(api)
    await quota(api, arm="a0", most=0, to="2901-01-01T00:00:00Z")
    ended = {"arm": "a0", "most": 0, "to": "2001-01-01T00:00:00Z"}
    await api.ok("PUT", QUOTA, ended, 200)
    await quota(api, "later", arm="a1", most=0, **{"from": "2901-01-01T00:00:00Z"})
    assert len((await api.choose("b", k=12))["arms"]) == 12
    for name in ("q", "later"):
        found = await state(api, name)
        assert (found["window"], found["used"]) == (None, 0)


async def test_used_up_pins_are_left_out_and_others_stand(api: Api):
    await build(api)
    await quota(api, filter={"campaign": 0}, most=1)
    pins = {"pin": [{"arm": "a0", "place": 1}, {"arm": "a3", "place": 2}, {"arm": "a1", "place": 3}]}
    choice = await api.choose("b", k=4, rules=pins)
    assert campaigns(choice).count(0) == 1
    assert [arm["id"] for arm in choice["arms"] if arm.get("pinned")] == ["a0", "a1"]
    choice = await api.choose("b", k=4, rules=pins)
    assert len(choice["arms"]) == 4
    assert 0 not in campaigns(choice)
    assert [arm["id"] for arm in choice["arms"] if arm.get("pinned")] == ["a1"]


async def test_propensities_are_given_the_arms_that_took_part(api: Api):
    await build(api, policy="softmax", temperature=0.5)
    await quota(api, filter={"campaign": 0}, most=0)
    for k in (1, 3, 8):
        choice = await api.choose("b", k=k)
        left = {arm: 0.0 for arm, campaign in ARMS.items() if campaign}
        for arm in choice["arms"]:
            assert arm["propensity"] == pytest.approx(1 / len(left))  # nothing was learned
            del left[arm["id"]]


@pytest.mark.rest
async def test_with_filters_rules_and_arms_that_come_and_change(api: Api):
    await build(api)
    await quota(api, filter={"campaign": 0}, most=0)
    found = await api.choose("b", k=12, filter={"price": {"$lt": 6}}, exclude=["a1"])
    assert {arm["id"] for arm in found["arms"]} == {"a2", "a4", "a5"}
    one_each = {"at_most": [{"field": "campaign", "count": 1}]}
    assert sorted(campaigns(await api.choose("b", k=12, rules=one_each))) == [1, 2]
    rows = [
        {"id": "new", "features": [9.0, 9.0], "metadata": {"campaign": 0}},
        {"id": "a1", "features": [1.1, 1.0], "metadata": {"campaign": 0}},
        {"id": "a0", "features": [1.0, 1.0], "metadata": {"campaign": 5}},
    ]
    await api.ok("PUT", "/v1/catalogues/c/arms", {"arms": rows})
    names = {arm["id"] for arm in (await api.choose("b", k=20))["arms"]}
    assert names == {arm for arm, campaign in ARMS.items() if campaign or arm == "a0"} - {"a1"}


async def test_changes_count_on_and_a_new_one_begins_again(api: Api):
    await build(api)
    made = await quota(api, arm="a0", most=2, per_s=DECADE)
    assert (made["used"], made["left"]) == (0, 2)
    assert made["window"][1] - made["window"][0] == DECADE * 1_000
    assert made["window"][0] % (DECADE * 1_000) == 0
    for _ in range(3):
        await api.choose("b", k=12)
    assert (await state(api))["used"] == 2
    again = await quota(api, arm="a0", most=3, per_s=DECADE, status=200)
    assert (again["used"], again["left"]) == (2, 1)
    assert "a0" in {arm["id"] for arm in (await api.choose("b", k=12))["arms"]}
    assert "a0" not in {arm["id"] for arm in (await api.choose("b", k=12))["arms"]}
    body = {"arm": "a1", "most": 3, "per_s": DECADE}
    await api.refused("PUT", QUOTA, body, status=409, code="conflict", loc=["body", "arm"])
    await api.ok("DELETE", QUOTA, status=204)
    await api.refused("GET", QUOTA, status=404, code="not_found")
    await api.refused("DELETE", QUOTA, status=404, code="not_found")
    assert "a0" in {arm["id"] for arm in (await api.choose("b", k=12))["arms"]}
    await quota(api, arm="a0", most=1)
    assert "a0" in {arm["id"] for arm in (await api.choose("b", k=12))["arms"]}
    assert "a0" not in {arm["id"] for arm in (await api.choose("b", k=12))["arms"]}


@pytest.mark.rest
async def test_the_list_and_a_deleted_bandit(api: Api):
    await build(api)
    assert await api.listed("/v1/bandits/b/quotas") == []
    for n in range(5):
        await quota(api, f"q{n}", filter={"campaign": n % 3}, most=n)
    assert [each["id"] for each in await api.listed("/v1/bandits/b/quotas", limit=2)] == [
        f"q{n}" for n in range(5)
    ]
    await api.ok("DELETE", "/v1/bandits/b", status=204)
    await api.bandit("b", "c")
    assert await api.listed("/v1/bandits/b/quotas") == []
    await api.choose("b", k=12)


@pytest.mark.rest
@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"most": 1}, ["arm"]),
        ({"most": 1, "arm": "a0", "filter": {"campaign": 0}}, ["arm"]),
        ({"arm": "a0"}, ["most"]),
        ({"arm": "a0", "most": -1}, ["most"]),
        ({"arm": "a0", "most": 1.5}, ["most"]),
        ({"arm": "nobody", "most": 1}, ["arm"]),
        ({"filter": {"colour": 1}, "most": 1}, ["filter", "colour"]),
        ({"filter": {"campaign": {"$near": 1}}, "most": 1}, ["filter", "campaign", "?"]),
        ({"filter": {"price": {"$lt": 6}}, "most": 1}, ["filter"]),
        ({"filter": {"campaign": {"$in": [0, 1]}}, "most": 1}, ["filter"]),
        ({"filter": {"campaign": 0, "price": 1}, "most": 1}, ["filter"]),
        ({"filter": {"campaign": {"$ne": 0}}, "most": 1}, ["filter"]),
        ({"filter": {}, "most": 1}, ["filter"]),
        ({"arm": "a0", "most": 1, "per_s": 0}, ["per_s"]),
        ({"arm": "a0", "most": 1, "per_s": -5}, ["per_s"]),
        ({"arm": "a0", "most": 1, "per_s": 0.05}, ["per_s"]),
        ({"arm": "a0", "most": 1, "signal": "click"}, ["signal"]),
        ({"arm": "a0", "most": 1, "counts": "rewarded", "signal": "click"}, ["signal"]),
        ({"arm": "a0", "most": 1, "pace": "even"}, ["pace"]),
        ({"arm": "a0", "most": 1, "pace": "even", "from": "2026-01-01T00:00:00Z"}, ["pace"]),
        ({"arm": "a0", "most": 1, "pace": "even", "per_s": 60, "counts": "rewarded"}, ["pace"]),
        ({"arm": "a0", "most": 1, "pace": "odd"}, ["pace"]),
        ({"arm": "a0", "most": 1, "counts": "clicked"}, ["counts"]),
        ({"arm": "a0", "most": 1, "from": "2026-02-01T00:00:00Z", "to": "2026-01-01T00:00:00Z"}, ["from"]),
        ({"arm": "a0", "most": 1, "from": "2026-02-01T00:00:00Z", "to": "2026-02-01T00:00:00Z"}, ["to"]),
        ({"arm": "a0", "most": 1, "to": "2020-01-01T00:00:00Z"}, ["to"]),
        ({"arm": "a0", "most": 1, "to": "9999-12-31T23:59:59-01:00"}, ["to"]),
        ({"arm": "a0", "most": 1, "from": "1969-12-31T23:59:59Z"}, ["from"]),
        ({"arm": "a0", "most": 1, "by": "x"}, ["by"]),
    ],
)
async def test_bad_quotas_are_refused(api: Api, body: Json, field: list[str]):
    await build(api)
    await api.refused("PUT", QUOTA, body, loc=["body", *field])
    assert await api.listed("/v1/bandits/b/quotas") == []


@pytest.mark.rest
async def test_rewards_end_eligibility_when_enough_have_come(api: Api):
    await build(api)
    await quota(api, filter={"campaign": 0}, most=3, counts="rewarded")
    await quota(api, "other", filter={"campaign": 1}, most=3, counts="rewarded")
    choices = [await api.choose("b", k=12) for _ in range(3)]
    found = await state(api)
    assert (found["used"], found["left"], found["outstanding"]) == (0, 3, 12)
    tokens = [choice["decision"] for choice in choices]
    rewards = [
        {"decision": tokens[0], "arm": "a0", "value": 1},
        {"decision": tokens[0], "arm": "a3", "value": 0},  # nothing was won
        {"decision": tokens[0], "arm": "a1", "value": 1},
        {"decision": tokens[1], "arm": "a6", "value": 0.5},
        {"decision": tokens[1], "arm": "a2", "value": 1},
    ]
    await api.reward(*rewards)
    await api.reward(*rewards)  # duplicates
    found = await state(api)
    assert (found["used"], found["left"], found["outstanding"]) == (2, 1, 10)
    assert campaigns(await api.choose("b", k=12)).count(0) == 4
    await api.reward({"decision": tokens[2], "arm": "a9", "value": 1})
    assert campaigns(await api.choose("b", k=12)).count(0) == 0
    await api.reward({"decision": tokens[2], "arm": "a0", "value": 1})  # it was outstanding
    assert (await state(api))["used"] == 4
    assert (await state(api))["left"] == 0


async def test_a_quota_counts_the_rewards_of_one_signal(api: Api):
    await build(api, signals={"click": {}, "buy": {"weight": 5.0}})
    of_arms = {"filter": {"campaign": 0}, "counts": "rewarded"}
    await quota(api, "clicks", most=2, signal="click", **of_arms)
    await quota(api, "buys", most=1, signal="buy", **of_arms)
    await quota(api, "all", most=9, **of_arms)
    await api.refused("PUT", QUOTA, {**of_arms, "most": 1, "signal": "open"}, loc=["body", "signal"])
    body = {**of_arms, "most": 2, "signal": "buy"}
    await api.refused("PUT", "/v1/bandits/b/quotas/clicks", body, status=409, code="conflict")
    token = (await api.choose("b", k=12))["decision"]
    click = {"decision": token, "arm": "a0", "signal": "click", "value": 1}
    await api.reward(click, {**click, "arm": "a1"}, {**click, "arm": "a3", "value": 0})
    await api.reward(click)  # a duplicate
    assert [(await state(api, name))["used"] for name in ("clicks", "buys", "all")] == [1, 0, 1]
    assert campaigns(await api.choose("b", k=12)).count(0) == 4
    await api.reward({**click, "signal": "buy"})
    assert [(await state(api, name))["used"] for name in ("clicks", "buys", "all")] == [1, 1, 2]
    assert (await state(api, "buys"))["signal"] == "buy"
    assert campaigns(await api.choose("b", k=12)).count(0) == 0


async def activate(api: Api, *choices: Json) -> Json:
    tokens = [choice["decision"] for choice in choices]
    answer: Json = await api.ok("POST", "/v1/decisions/activate", {"decisions": tokens})
    return answer


async def test_a_deferred_choice_counts_when_it_is_activated(api: Api):
    await build(api)
    await quota(api, arm="a0", most=2)
    waiting = [await api.choose("b", k=12, activate=False) for _ in range(4)]
    assert (await state(api))["used"] == 0
    found = await activate(api, waiting[0], waiting[0])
    assert (found["activated"], found["duplicate"]) == (1, 1)
    assert (await state(api))["used"] == 1
    assert "a0" in {arm["id"] for arm in (await api.choose("b", k=12))["arms"]}
    found = await activate(api, waiting[0], waiting[1], waiting[0])
    assert (found["activated"], found["duplicate"]) == (0, 2)
    assert [each["code"] for each in found["rejected"]] == ["used_up"]
    assert (await state(api))["used"] == 2
    assert "a0" not in {arm["id"] for arm in (await api.choose("b", k=12, activate=False))["arms"]}
    await api.reward({"decision": waiting[0]["decision"], "arm": "a0", "value": 1})


async def test_an_even_pace_holds_back_no_activation(api: Api):
    await build(api)
    began = datetime.now(UTC) - timedelta(seconds=1)
    of_days = {"from": began.isoformat(), "to": (began + timedelta(days=9)).isoformat()}
    await quota(api, arm="a0", most=5, pace="even", **of_days)
    waiting = [await api.choose("b", k=12, activate=False) for _ in range(3)]
    assert "a0" in {arm["id"] for arm in (await api.choose("b", k=12))["arms"]}
    assert "a0" not in {arm["id"] for arm in (await api.choose("b", k=12))["arms"]}
    assert (await activate(api, *waiting))["activated"] == 3
    assert (await state(api))["used"] == 4


@pytest.mark.rest
async def test_an_activation_counts_all_its_arms_or_none(api: Api):
    await build(api)
    await quota(api, filter={"campaign": 0}, most=8)
    await quota(api, "one", arm="a1", most=1)
    first, second = [await api.choose("b", k=12, activate=False) for _ in range(2)]
    assert await activate(api, first, first) == {"activated": 1, "duplicate": 1, "rejected": []}
    assert [each["code"] for each in (await activate(api, second))["rejected"]] == ["used_up"]
    assert [(await state(api, name))["used"] for name in ("q", "one")] == [4, 1]
    await quota(api, "one", arm="a1", most=2, status=200)
    assert (await activate(api, second))["activated"] == 1
    assert [(await state(api, name))["used"] for name in ("q", "one")] == [8, 2]


@pytest.mark.rest
async def test_the_log_says_what_was_barred_and_explanations_choose_without_it(api: Api):
    await build(api, policy="softmax", temperature=0.3, log={}, repeats={"most": 1, "within_s": DAY})
    await quota(api, filter={"campaign": 0}, most=0)
    await quota(api, "one", arm="a1", most=0)
    first = await api.choose("b", visitor="ann")
    second = await api.choose("b", visitor="ann")
    several = await api.choose("b", visitor="bob", k=3)
    await quota(api, "scarce", filter={"campaign": 1}, most=1)
    scarce = await api.choose("b", k=12)
    wanted = {
        first["decision"]: {"filters": [{"campaign": 0}], "arms": ["a1"]},
        second["decision"]: {"filters": [{"campaign": 0}], "arms": ["a1", first["arms"][0]["id"]]},
        several["decision"]: {"filters": [{"campaign": 0}], "arms": ["a1"]},
        scarce["decision"]: None,
    }

    async def logged() -> dict[str, Json] | None:
        rows = {row["decision"]: row["barred"] for row in await api.listed("/v1/bandits/b/log")}
        return rows if len(rows) == len(wanted) else None

    assert await wait_until(logged, what="all rows are written") == wanted
    for token, barred in wanted.items():
        found = await api.ok("GET", f"/v1/bandits/b/log/{token}")
        if barred is None:
            assert (found["changed"], found["repeated"]) == (["barred"], None)
        else:
            assert (found["changed"], found["repeated"]) == ([], True)


async def barred_of(api: Api, count: int) -> dict[str, Json | None]:
    """What each row of the log says was barred, once there are so many."""

    async def logged() -> dict[str, Json | None] | None:
        rows = {row["decision"]: row.get("barred", {}) for row in await api.listed("/v1/bandits/b/log")}
        return rows if len(rows) == count else None

    return await wait_until(logged, what="all rows are written")


@pytest.mark.rest
async def test_whether_a_list_is_evaluated_does_not_depend_on_what_was_drawn(api: Api):
    """Of a fresh quota one show is left, and a list may take two of its arms: whichever it takes, its
    propensities do not hold. The one after that is drawn without them, and says so.
    """
    await build(api, policy="softmax", temperature=1.0, log={})
    firsts, seconds = list[str](), list[str]()
    for number in range(30):
        await quota(api, f"q{number}", filter={"campaign": 0}, most=1)
        before = await api.choose("b", k=2, seed=number)
        firsts.append(before["decision"])
        if 0 in campaigns(before):
            seconds.append((await api.choose("b", k=2))["decision"])
        await api.ok("DELETE", f"/v1/bandits/b/quotas/q{number}", status=204)
    barred = await barred_of(api, len(firsts) + len(seconds))
    assert [barred[decision] for decision in firsts] == [None] * 30
    assert 5 < len(seconds) < 30
    assert [barred[decision] for decision in seconds] == [{"filters": [{"campaign": 0}], "arms": []}] * len(
        seconds
    )


@pytest.mark.rest
async def test_a_quota_of_which_there_is_plenty_leaves_no_list_out(api: Api):
    """It is known before a list is drawn; and a list takes an arm once."""
    await build(api, policy="softmax", temperature=1.0, log={})
    await quota(api, filter={"campaign": 0}, most=100_000)
    await quota(api, "one", arm="a1", most=100)
    for _ in range(10):
        assert (await api.choose("b", k=6))["arms"]
    assert [*(await barred_of(api, 10)).values()] == [{}] * 10


@pytest.mark.rest
async def test_a_bandit_has_so_many_quotas_and_no_more(api: Api):
    await build(api)
    service = api.app.service
    bandit = await service.bandits.get("b")
    # As other processes write them; over HTTP it takes a minute.
    rule = QuotaRule(5, filter={"campaign": 0})
    stored = [BanditQuota.of_rule(f"f{number}", f"{number:016x}", rule) for number in range(MAX_QUOTAS - 2)]
    for start in range(0, len(stored), 500):
        puts = (
            service.store.quotas.put(
                bandit.uid, each.id, each.record, b"", rule.terms(each.uid), most=MAX_QUOTAS
            )
            for each in stored[start : start + 500]
        )
        assert all(await asyncio.gather(*puts))
    await quota(api, "value", filter={"campaign": {"$in": [1]}}, most=10)
    await quota(api, "arm", arm="a3", most=1)
    body = {"filter": {"campaign": 2}, "most": 1}
    await api.refused("PUT", QUOTA, body, status=422, code="too_many_quotas", loc=["body", "filter"])
    body = {"arm": "a1", "most": 1}
    await api.refused("PUT", QUOTA, body, status=422, code="too_many_quotas", loc=["body", "arm"])
    await quota(api, "arm", arm="a3", most=2, status=200)
    await api.ok("DELETE", "/v1/bandits/b/quotas/f7", status=204)
    await quota(api, arm="a1", most=9)
    assert len((await api.choose("b", k=20))["arms"]) == 12
    assert [(await state(api, name))["used"] for name in ("q", "value", "arm", "f9")] == [1, 4, 1, 4]


async def findings(api: Api) -> list[str]:
    status = await api.ok("GET", "/v1/status")
    return [found["text"] for found in status["findings"] if found["name"] == "quotas"]


@pytest.mark.rest
async def test_quotas_that_no_arm_counts_for_are_a_finding(api: Api):
    await build(api)
    await quota(api, "value", filter={"campaign": 7}, most=1)
    await quota(api, "price", filter={"price": 101}, most=1)
    await quota(api, "arm", arm="a3", most=1)
    await quota(api, "some", filter={"campaign": 1}, most=1)

    async def found(texts: list[str]) -> bool:
        return await findings(api) == texts

    empty = "the bandit b has quotas that no arm counts for: "
    await wait_until(lambda: found([empty + "price, value"]), what="both are found")
    rows = [{"id": "new", "features": [1.0, 1.0], "metadata": {"campaign": 7, "price": 101}}]
    await api.ok("PUT", "/v1/catalogues/c/arms", {"arms": rows})
    await api.ok("POST", "/v1/catalogues/c/arms/delete", {"ids": ["a3"]})
    await wait_until(lambda: found([empty + "arm"]), what="the arms of now count")
