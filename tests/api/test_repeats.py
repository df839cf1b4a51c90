"""Repeats over HTTP: nobody has the same arm more often than the bandit says, whatever is asked."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from api_client import Api, Json

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


async def test_a_forgotten_key_has_had_nothing_and_time_passes(api: Api):
    await build(api, {"most": 1, "within_s": 1})
    await api.choose("b", key="ann", k=8)
    await api.refused("POST", "/v1/bandits/b/choose", {"key": "ann"}, status=409, code="no_arms")
    await api.ok("DELETE", "/v1/bandits/b/learners/ann", status=204)
    assert [key async for key in api.store.scan_iter(match="*:had:*")] == []
    await asyncio.sleep(1.05)
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
        await api.refused("POST", f"/v1/bandits/{name}/choose", body, loc=["body", "visitor"])


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


@pytest.mark.parametrize(
    ("rule", "field"),
    [
        ({}, "most"),
        ({"most": 0, "within_s": 60}, "most"),
        ({"most": 101, "within_s": 60}, "most"),
        ({"most": 1}, "within_s"),
        ({"most": 1, "within_s": 0}, "within_s"),
        ({"most": 1, "within_s": 60, "counts": "seen"}, "counts"),
        ({"most": 1, "within_s": 60, "by": "maker"}, "by"),
    ],
)
async def test_bad_rules_are_refused(api: Api, rule: Json, field: str):
    await api.catalogue("c", ARMS)
    body = {"catalogue": "c", "policy": "sub_ts", "scope": "per_key", "repeats": rule}
    await api.refused("PUT", "/v1/bandits/b", body, loc=["body", "repeats", field])


async def test_propensities_are_given_what_was_left(api: Api):
    await build(api, {"most": 1, "within_s": DAY}, policy="softmax", temperature=0.5, log={})
    left = len(ARMS)
    for _ in range(4):
        (arm,) = (await api.choose("b", key="ann"))["arms"]
        assert arm["propensity"] == pytest.approx(1 / left)
        left -= 1


async def test_with_quotas_each_counts_what_is_shown(api: Api):
    await build(api, {"most": 1, "within_s": DAY})
    await api.ok("PUT", "/v1/bandits/b/quotas/q", {"arm": "a7", "most": 3}, 201)
    answers = await asyncio.gather(*(api.choose("b", key=f"k{n % 5}", k=4) for n in range(10)))
    shown = Counter((n % 5, arm) for n, answer in enumerate(answers) for arm in ids(answer))
    assert set(shown.values()) == {1}
    of_quota = sum(arm == "a7" for _, arm in shown)
    assert of_quota <= 3
    assert (await api.ok("GET", "/v1/bandits/b/quotas/q"))["used"] == of_quota
