"""Repeats over HTTP: nobody has the same arm more often than the bandit says, whatever is asked."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from api_client import Api, Json
from waiting import wait_until

pytestmark = pytest.mark.anyio

ARMS = {f"a{n}": [1.0 + n / 10, 1.0] for n in range(8)}
DAY = 86_400


async def build(api: Api, rule: Json, **bandit: Any) -> None:
    await api.catalogue("c", ARMS)
    await api.bandit("b", "c", **{"scope": "per_key", "repeats": rule, **bandit})


def ids(choice: Json) -> list[str]:
    return [arm["id"] for arm in choice["arms"]]


@pytest.mark.parametrize("policy", ["sub_ts", "linear_ts", "softmax", "igw", "sub_elim", "linear_elim"])
async def test_nobody_has_an_arm_more_often(api: Api, policy: str):
    await build(api, {"most": 2, "within_s": DAY}, policy=policy)
    shown = Counter[str]()
    for k in (1, 3, 5, 2):
        shown.update(ids(await api.choose("b", key="ann", k=k)))
    while shown.total() < 16:
        shown.update(ids(await api.choose("b", key="ann", k=8)))
    assert set(shown.values()) == {2}
    await api.refused("POST", "/v1/bandits/b/choose", {"key": "ann"}, status=409, code="no_arms")
    assert len(ids(await api.choose("b", key="bob", k=8))) == 8


@pytest.mark.rest
async def test_callers_at_once_events_dry_runs_pins_and_batches(api: Api):
    await build(api, {"most": 1, "within_s": DAY})
    first = await api.choose("b", key="ann", k=2, event_id="e")
    assert await api.choose("b", key="ann", k=2, event_id="e") == first
    dry = await api.choose("b", key="ann", k=8, dry_run=True)
    assert set(ids(dry)) == ARMS.keys() - set(ids(first))
    pins = {"pin": [{"arm": ids(first)[0], "place": 1}, {"arm": ids(dry)[0], "place": 2}]}
    pinned = await api.choose("b", key="ann", k=1 + 1, rules=pins)
    assert [arm["id"] for arm in pinned["arms"] if arm.get("pinned")] == ids(dry)[:1]
    answers = await asyncio.gather(
        *(api.call("POST", "/v1/bandits/b/choose", {"key": "ann", "k": 1}) for _ in range(10))
    )
    rest = [arm for answer in answers if answer.status_code == 200 for arm in ids(answer.json())]
    everything = [*ids(first), *ids(pinned), *rest]
    assert sorted(everything) == sorted(ARMS)
    requests = [{"key": "cyd", "k": 3}, {"key": "cyd", "k": 3}]
    batch = await api.ok("POST", "/v1/bandits/b/choose/batch", {"requests": requests})
    assert not set(ids(batch["results"][0])) & set(ids(batch["results"][1]))
    same = await asyncio.gather(*(api.choose("b", key="dan", k=2, event_id="f") for _ in range(3)))
    assert len({answer["decision"] for answer in same}) == 1
    assert len(ids(await api.choose("b", key="dan", k=8))) == 6  # the others were given back


@pytest.mark.rest
async def test_a_forgotten_key_has_had_nothing_and_time_passes(api: Api):
    """However long a call takes: of the short time it is only asked that it ends."""
    await build(api, {"most": 1, "within_s": 3_600})
    await api.choose("b", key="ann", k=8)
    await api.refused("POST", "/v1/bandits/b/choose", {"key": "ann"}, status=409, code="no_arms")
    await api.ok("DELETE", "/v1/bandits/b/learners/ann", status=204)
    assert [key async for key in api.store.scan_iter(match="*:had:*")] == []
    await api.bandit("short", "c", scope="per_key", repeats={"most": 1, "within_s": 1})
    await api.choose("short", key="ann", k=8)

    async def all_again() -> bool:
        answer = await api.call("POST", "/v1/bandits/short/choose", {"key": "ann", "k": 8})
        return answer.status_code == 200 and len(ids(answer.json())) == 8

    await wait_until(all_again, what="what was shown a second ago counts no more")


async def test_all_choices_of_a_key_at_once_are_answered_with_different_arms(api: Api):
    await build(api, {"most": 1, "within_s": DAY})
    more = [{"id": f"more{number}", "features": [1.0, number / 64]} for number in range(40)]
    await api.ok("PUT", "/v1/catalogues/c/arms", {"arms": more})
    answers = await asyncio.gather(*(api.choose("b", key="ann") for _ in range(40)))
    assert len({arm for answer in answers for arm in ids(answer)}) == 40


async def test_a_forgotten_key_is_shown_everything_again_at_once(api: Api):
    await build(api, {"most": 1, "within_s": DAY})
    await api.choose("b", key="ann", k=8)
    await api.ok("DELETE", "/v1/bandits/b/learners/ann", status=204)
    assert len(ids(await api.choose("b", key="ann", k=8))) == 8


async def test_visitors_of_a_global_bandit(api: Api):
    await build(api, {"most": 1, "within_s": DAY}, scope="global")
    assert len(ids(await api.choose("b", visitor="ann", k=5))) == 5
    assert len(ids(await api.choose("b", visitor="ann", k=8))) == 3
    assert len(ids(await api.choose("b", visitor="bob", k=8))) == 8
    assert len(ids(await api.choose("b", k=8))) == 8
    await api.bandit("plain", "c")
    await api.bandit("keyed", "c", scope="per_key", repeats={"most": 1, "within_s": DAY})
    for name, more in (("plain", {}), ("keyed", {"key": "ann"})):
        body = {"visitor": "ann", **more}
        refused = await api.refused("POST", f"/v1/bandits/{name}/choose", body, loc=["body", "visitor"])
        assert "a bandit of scope global that has repeats" in str(refused)


@pytest.mark.rest
@pytest.mark.parametrize("who", [{"key": "ann"}, {"visitor": "ann"}])
async def test_what_was_rewarded_does_not_come_again(api: Api, who: Json):
    scope = "per_key" if "key" in who else "global"
    await build(api, {"most": 1, "within_s": DAY, "counts": "rewarded"}, scope=scope)
    choice = await api.choose("b", k=8, **who)
    one, other = ids(choice)[:2]
    await api.reward(
        {"decision": choice["decision"], "arm": one, "value": 1},
        {"decision": choice["decision"], "arm": other, "value": 0},
    )
    assert set(ids(await api.choose("b", k=8, **who))) == ARMS.keys() - {one}
    assert set(ids(await api.choose("b", k=8, **who))) == ARMS.keys() - {one}


BAD_RULES: list[Any] = [
    ({}, "most"),
    ({"most": 0, "within_s": 60}, "most"),
    ({"most": 101, "within_s": 60}, "most"),
    ({"most": 1}, "within_s"),
    ({"most": 1, "within_s": 0}, "within_s"),
    ({"most": 1, "within_s": 60, "counts": "seen"}, "counts"),
    ({"most": 1, "within_s": 60, "by": ""}, "by"),
    ({"most": 1, "within_s": 60, "by": 5}, "by"),
]


@pytest.mark.rest
async def test_bad_rules_are_refused(api: Api):
    await api.catalogue("c", ARMS)
    for rule, field in BAD_RULES:
        body = {"catalogue": "c", "policy": "sub_ts", "scope": "per_key", "repeats": rule}
        await api.refused("PUT", "/v1/bandits/b", body, loc=["body", "repeats", field])


async def test_propensities_are_given_what_was_left(api: Api):
    await build(api, {"most": 1, "within_s": DAY}, policy="softmax", temperature=0.5, log={})
    left = len(ARMS)
    for _ in range(4):
        (arm,) = (await api.choose("b", key="ann"))["arms"]
        assert arm["propensity"] == pytest.approx(1 / left)
        left -= 1


@pytest.mark.rest
async def test_with_quotas_each_counts_what_is_shown(api: Api):
    await build(api, {"most": 1, "within_s": DAY})
    await api.ok("PUT", "/v1/bandits/b/quotas/q", {"arm": "a7", "most": 3}, 201)
    answers = await asyncio.gather(*(api.choose("b", key=f"k{n % 5}", k=4) for n in range(10)))
    shown = Counter((n % 5, arm) for n, answer in enumerate(answers) for arm in ids(answer))
    assert set(shown.values()) == {1}
    of_quota = sum(arm == "a7" for _, arm in shown)
    assert of_quota <= 3
    assert (await api.ok("GET", "/v1/bandits/b/quotas/q"))["used"] == of_quota


MAKERS = ("ann", "bob", "cyd", True, 7, ["ann", "eve"])
OF = {f"a{n}": MAKERS[n % len(MAKERS)] for n in range(12)}  # two arms of each


async def build_by_maker(api: Api, **bandit: Any) -> None:
    await api.ok("PUT", "/v1/catalogues/c", {"dim": 2}, 201)
    rows = [
        {"id": arm, "features": [1.0 + n / 10, 1.0], "metadata": {"maker": maker}}
        for n, (arm, maker) in enumerate(OF.items())
    ]
    rows.append({"id": "plain", "features": [9.0, 1.0]})
    await api.ok("PUT", "/v1/catalogues/c/arms", {"arms": rows})
    rule = {"most": 1, "within_s": DAY, "by": "maker", **bandit.pop("rule", {})}
    await api.bandit("b", "c", **{"scope": "per_key", "repeats": rule, **bandit})


def makers(choices: list[Json]) -> Counter[str]:
    """How many arms of each maker."""
    found = Counter[str]()
    for arm in (arm for choice in choices for arm in ids(choice) if arm in OF):
        maker = OF[arm]
        found.update(map(repr, maker if isinstance(maker, list) else [maker]))
    return found


@pytest.mark.rest
@pytest.mark.parametrize(
    ("policy", "most"),
    [
        ("sub_ts", 1), ("sub_ts", 2), ("linear_ts", 1), ("softmax", 2), ("igw", 1), ("igw", 2),
        ("sub_elim", 2), ("linear_elim", 1),
    ],
)  # fmt: skip
async def test_by_a_field_nobody_has_a_value_more_often(api: Api, policy: str, most: int):
    await build_by_maker(api, policy=policy, rule={"most": most})
    choices = [await api.choose("b", key="k", k=k) for k in (1, 3, 2, 13, 13)]
    found = makers(choices)
    assert max(found.values()) == most
    assert found["'bob'"] == found["True"] == found["7"] == most
    assert ids(choices[-1]) == ["plain"]  # it has no maker
    assert max(makers([await api.choose("b", key="other", k=13)]).values()) == most


@pytest.mark.rest
async def test_by_a_field_pins_events_callers_at_once_and_dry_runs(api: Api):
    await build_by_maker(api)
    pins = {"pin": [{"arm": "a0", "place": 1}, {"arm": "a6", "place": 2}, {"arm": "a1", "place": 3}]}
    choice = await api.choose("b", key="k", k=4, rules=pins, event_id="e")  # a0 and a6 are ann's
    assert [arm["id"] for arm in choice["arms"] if arm.get("pinned")] == ["a0", "a1"]
    assert len(choice["arms"]) == 4
    assert await api.choose("b", key="k", k=4, rules=pins, event_id="e") == choice
    dry = await api.choose("b", key="k", k=13, dry_run=True)
    assert not makers([choice]).keys() & makers([dry]).keys()
    many = await asyncio.gather(*(api.choose("b", key="other", k=2) for _ in range(10)))
    assert set(makers(many).values()) == {1}


async def test_by_a_field_a_pinned_arm_leaves_no_place_for_another_of_its_value(api: Api):
    """Pinned or not: a0 and a6 are both ann's."""
    await build_by_maker(api)
    one, other = {"arm": "a0", "place": 1}, {"arm": "a6", "place": 2}
    exclude = [arm for arm in (*OF, "plain") if arm not in {"a0", "a6"}]
    for key, pins in (("k", [one]), ("l", [one, other])):
        assert ids(await api.choose("b", key=key, k=2, rules={"pin": pins}, exclude=exclude)) == ["a0"]


@pytest.mark.rest
async def test_by_a_field_what_was_rewarded_does_not_come_again(api: Api):
    await build_by_maker(api, rule={"counts": "rewarded"})
    choice = await api.choose("b", key="k", k=13)
    assert len(ids(choice)) == 13  # all of them, for none was rewarded
    arms = [{"decision": choice["decision"], "arm": arm, "value": 1} for arm in ("a1", "plain")]
    await api.reward(*arms, {"decision": choice["decision"], "arm": "a2", "value": 0})
    for _ in range(2):
        left = ids(await api.choose("b", key="k", k=13))
        assert set(left) == {*OF, "plain"} - {"a1", "a7"}  # all of bob's are gone


async def test_by_a_field_two_rewarded_arms_of_one_list_count_twice(api: Api):
    await build_by_maker(api, rule={"counts": "rewarded", "most": 2})
    choice = await api.choose("b", key="k", k=13)
    await api.reward(*({"decision": choice["decision"], "arm": arm, "value": 1} for arm in ("a1", "a7")))
    assert set(ids(await api.choose("b", key="k", k=13))) == {*OF, "plain"} - {"a1", "a7"}  # bob's


async def test_a_choice_is_made_again_without_what_its_key_had_had(api: Api):
    """Of eight arms one is left. With the others, this seed would draw another one."""
    await build(api, {"most": 1, "within_s": DAY}, policy="softmax", temperature=0.5, log={})
    had = ids(await api.choose("b", key="ann", k=7))
    choice = await api.choose("b", key="ann", seed=7)
    assert {*had, *ids(choice)} == ARMS.keys()

    async def explained() -> Json | None:
        answer = await api.call("GET", f"/v1/bandits/b/log/{choice['decision']}")
        return answer.json() if answer.status_code == 200 else None

    explanation = await wait_until(explained, what="the row is written")
    assert (explanation["changed"], explanation["repeated"]) == ([], True)
