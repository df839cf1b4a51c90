"""The contract of policies over HTTP, for one of them; `tests/policies/test_each_policy.py` has them all.

What is of HTTP itself, options and the list of policies, is tested for each.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from api_client import Api, Json
from app.bandits.completion import PolicyNeeds
from app.indexes.snapshot import Snapshot
from app.policies.registry import POLICIES
from shortlist.types import NO_ROWS
from waiting import wait_until

pytestmark = pytest.mark.anyio

ARMS = {f"a{i}": row.tolist() for i, row in enumerate(np.random.default_rng(8).normal(size=(12, 3)))}
THETA = np.array([0.8, -0.5, 0.6])
EVERY = pytest.mark.parametrize("policy", POLICIES)


async def build(api: Api, name: str, policy: str, *, rewards: int = 20, **rest: Any) -> None:
    """A bandit that has learned a little of ``THETA``; half of the arms are even, a third of each maker."""
    await api.ok("PUT", f"/v1/catalogues/{name}", {"dim": 3}, 201)
    arms = [
        {"id": arm, "features": row, "metadata": {"even": number % 2 == 0, "maker": f"m{number % 3}"}}
        for number, (arm, row) in enumerate(ARMS.items())
    ]
    await api.ok("PUT", f"/v1/catalogues/{name}/arms", {"arms": arms})
    body = {"catalogue": name, "policy": policy, "intercept": False, **rest}
    await api.ok("PUT", f"/v1/bandits/{name}", body, 201)
    rng = np.random.default_rng(3)
    history = [
        {"id": f"o{number}", "arm": arm, "value": float(np.dot(ARMS[arm], THETA) + rng.normal())}
        for number, arm in enumerate(rng.choice(list(ARMS), rewards))
    ]
    if history:
        await api.observe(name, *history)


def ids(answer: Json) -> list[str]:
    return [arm["id"] for arm in answer["arms"]]


@pytest.mark.parametrize("policy", POLICIES)
async def test_propensities_are_there_exactly_where_they_are_declared(shared: Api, policy: str):
    await build(shared, f"declared-{policy}", policy)
    answer = await shared.choose(f"declared-{policy}", k=2)
    assert ["propensity" in arm for arm in answer["arms"]] == [POLICIES[policy].has_propensities] * 2


async def test_constraints_and_a_quota_hold(api: Api):
    await build(api, "b", "softmax")
    await api.ok("PUT", "/v1/bandits/b/quotas/q", {"filter": {"maker": "m0"}, "most": 5}, 201)
    shown = Counter[str]()
    for seed in range(12):
        answer = await api.choose(
            "b",
            k=4,
            seed=seed,
            exclude=["a1", "a5"],
            filter={"even": False},
            rules={"pin": [{"arm": "a2", "place": 2}], "at_most": [{"field": "maker", "count": 2}]},
        )
        found = ids(answer)
        shown.update(found)
        assert (found[1], answer["arms"][1]["pinned"]) == ("a2", True)
        rest = [arm for arm in found if arm != "a2"]
        assert all(int(arm[1:]) % 2 for arm in rest)
        assert not {"a1", "a5"} & set(found)
        assert len(set(found)) == len(found)
        assert max(Counter(int(arm[1:]) % 3 for arm in found).values()) <= 2
    assert sum(count for arm, count in shown.items() if int(arm[1:]) % 3 == 0) == 5


@pytest.mark.rest
@EVERY
async def test_a_choice_is_made_again_from_its_log(api: Api, policy: str):
    await build(api, "b", policy, log={})
    for _ in range(3):
        choice = await api.choose("b", k=3, rules={"at_most": [{"field": "maker", "count": 2}]})

        async def found(token: str = choice["decision"]) -> Json | None:
            answer = await api.call("POST", "/v1/bandits/b/log/explain", {"decision": token})
            return answer.json() if answer.status_code == 200 else None

        explained = await wait_until(found, what="the row")
        assert explained is not None
        assert (explained["repeated"], explained["changed"]) == (True, [])


@pytest.mark.rest
async def test_the_list_of_policies_says_what_each_takes(shared: Api):
    items = (await shared.ok("GET", "/v1/policies"))["items"]
    assert [each["name"] for each in items] == list(POLICIES)
    for each in items:
        policy = POLICIES[each["name"]]
        assert each["summary"]
        assert each["propensities"] == policy.has_propensities
        assert each["needs"]["arms_in_memory"] == policy.needs.arms_in_memory
        assert policy.options <= each["options"]["properties"].keys()
    options = {each["name"]: each["options"]["properties"] for each in items}
    assert options["epsilon_greedy"]["epsilon"]["default"] == 0.1
    assert options["linucb"]["alpha"]["default"] == 1.0
    assert "temperature" not in options["igw"]
    take_effects = {name for name, settings in options.items() if "arm_effects" in settings}
    assert take_effects == {"sub_ts", "linear_ts", "softmax", "linucb", "epsilon_greedy", "igw"}


@EVERY
async def test_an_option_of_another_policy_is_refused(shared: Api, policy: str):
    await build(shared, f"options-{policy}", policy, rewards=0)
    for option, value in {"temperature": 0.5, "gamma": 3.0, "epsilon": 0.2, "alpha": 2.0}.items():
        body = {"catalogue": f"options-{policy}", "policy": policy, option: value}
        path = f"/v1/bandits/options-{policy}-{option}"
        if option in POLICIES[policy].options:
            assert (await shared.ok("PUT", path, body, 201))[option] == value
        else:
            await shared.refused("PUT", path, body, loc=["body", option])


@pytest.mark.rest
@pytest.mark.parametrize(
    ("policy", "field", "value"),
    [("epsilon_greedy", "epsilon", -0.1), ("epsilon_greedy", "epsilon", 1.1), ("linucb", "alpha", -1)],
)
async def test_options_out_of_range(shared: Api, policy: str, field: str, value: float):
    body = {"catalogue": "c", "policy": policy, field: value}
    await shared.refused("PUT", "/v1/bandits/wrong", body, loc=["body", field])


async def test_where_the_index_finds_too_few_arms_epsilon_greedy_scans_for_the_rest(
    api: Api, monkeypatch: pytest.MonkeyPatch
):
    await build(api, "b", "epsilon_greedy", epsilon=0.0)
    every, search = await api.choose("b", k=6), Snapshot.search
    monkeypatch.setattr(
        Snapshot, "search", lambda self, query, _, exclude=NO_ROWS: search(self, query, 2, exclude)
    )
    assert ids(await api.choose("b", k=6)) == ids(every)


async def test_linucb_serves_what_it_can_measure_in_time(api: Api, monkeypatch: pytest.MonkeyPatch):
    """At most 2e8 / d^2 arms: here 2, to begin with and later."""
    linucb = POLICIES["linucb"]
    assert linucb.needs.max_work == 2e8
    monkeypatch.setattr(type(linucb), "needs", PolicyNeeds(max_work=18.0))
    await api.catalogue("c", {"a": [1.0, 0.0, 0.0], "b": [0.0, 1.0, 0.0]})
    await api.bandit("b", "c", policy="linucb")
    assert len(ids(await api.choose("b", k=5))) == 2
    await api.put_arms("c", {"x": [0.0, 0.0, 1.0]})
    await api.refused("POST", "/v1/bandits/b/choose", {}, loc=["body", "policy"])
    body = {"catalogue": "c", "policy": "linucb"}
    await api.refused("PUT", "/v1/bandits/other", body, loc=["body", "policy"])
    await api.bandit("ts", "c")
    await api.refused("PATCH", "/v1/bandits/ts", {"policy": "linucb"}, loc=["body", "policy"])
