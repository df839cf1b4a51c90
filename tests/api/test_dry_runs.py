"""Dry runs: what would be chosen now and why, of which nothing is left anywhere."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from api_client import IS_GROUP, Api, Json
from waiting import wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.rest]

CHOOSE = "/v1/bandits/b/choose"
RNG = np.random.default_rng(5)
ARMS = {f"a{i}": [float(x) for x in row] for i, row in enumerate(RNG.normal(size=(40, 3)))}
CONTEXT = {"context": {"dim": 2}}
PINNED = {"pin": [{"arm": "a7", "place": 2}]}
POLICIES = ["sub_ts", "linear_ts", "sub_elim", "linear_elim", "softmax", "igw"]
SOME = ["sub_ts", "linear_elim", "softmax"]  # every policy meets every constraint in test_policy_contract.py
AUTO = {"exploration": "auto", "ridge": "auto", "reward": {"min": 0.0, "max": 2.0}}
# (bandit, request)
CASES: dict[str, tuple[Json, Json]] = {
    **{policy: ({"policy": policy}, {"k": 3}) for policy in POLICIES},
    **{f"{policy}, pinned": ({"policy": policy}, {"k": 3, "rules": PINNED}) for policy in SOME},
    **{
        f"{policy}, filter": ({"policy": policy, "log": {}}, {"k": 3, "filter": {"even": True}})
        for policy in SOME
    },
    **{
        f"{policy}, rules": (
            {"policy": policy, "filter": {"even": True}},
            {"k": 4, "exclude": ["a2"], "rules": {**PINNED, "at_most": [{"field": "third", "count": 1}]}},
        )
        for policy in SOME
    },
    **{
        f"{policy}, context": ({"policy": policy, **CONTEXT}, {"k": 3, "context": [0.5, -1.0]})
        for policy in ("sub_ts", "softmax")
    },
    "auto": ({"policy": "sub_ts", **AUTO}, {"k": 3}),
    "auto of softmax": ({"policy": "softmax", "temperature": "auto", **AUTO}, {"k": 3}),
    "adaptive": ({"policy": "sub_ts", "solver": "adaptive"}, {"k": 3}),
    "greedy": ({"policy": "linear_ts", "exploration": 0}, {"k": 3}),
    "key": ({"policy": "sub_ts", "scope": "per_key"}, {"k": 2, "key": "ann"}),
    "random holdout": ({"policy": "sub_ts", "log": {}, "holdout": {"share": 1.0}}, {"k": 3}),
    "named holdout": (
        {"policy": "sub_ts", "holdout": {"share": 1.0, "serve": {"arms": ["a4", "a2"]}}},
        {"k": 3},
    ),
    "half a holdout": ({"policy": "linear_ts", "holdout": {"share": 0.5}}, {"k": 2}),
    "all pinned": ({"policy": "igw"}, {"k": 1, "rules": {"pin": [{"arm": "a7", "place": 1}]}}),
}
every_case = pytest.mark.parametrize(("bandit", "request_"), CASES.values(), ids=CASES)
# Neither what a choice leaves nor what an estimate is depends on rules and filters.
few_cases = pytest.mark.parametrize(
    ("bandit", "request_"),
    [case for name, case in CASES.items() if not name.endswith(("filter", "rules"))],
    ids=[name for name in CASES if not name.endswith(("filter", "rules"))],
)


async def build(api: Api, **bandit: Any) -> None:
    await api.ok("PUT", "/v1/catalogues/c", {"dim": 3}, 201)
    rows = [
        {"id": arm, "features": row, "metadata": {"even": place % 2 == 0, "third": place % 3}}
        for place, (arm, row) in enumerate(ARMS.items())
    ]
    await api.ok("PUT", "/v1/catalogues/c/arms", {"arms": rows})
    await api.bandit("b", "c", **bandit)


async def taught(api: Api, bandit: Json, request: Json, rewards: int = 12) -> None:
    """Rewards for what was chosen before, of the same key and context."""
    request = {name: value for name, value in request.items() if name in {"key", "context"}}
    if request.get("key") == "new":
        request["key"] = "ann"
    requests = [{**request, "seed": 1_000 + number} for number in range(rewards)]
    choices = await api.ok("POST", f"{CHOOSE}/batch", {"requests": requests})
    values = [float(number % 3) / 2 for number in range(rewards)]
    pairs = zip(choices["results"], values, strict=True)
    await api.reward(*({"decision": choice["decision"], "value": value} for choice, value in pairs))


async def dry(api: Api, **request: Any) -> Json:
    answer: Json = await api.ok("POST", CHOOSE, {**request, "dry_run": True})
    for arm in answer["arms"]:
        assert {"id", "score", "estimate", "width", "draw"} <= arm.keys()
    return answer


def plain(answer: Json) -> Json:
    """What a choice and its dry run have in common."""
    arms = [
        {name: value for name, value in arm.items() if name not in {"estimate", "width", "draw"}}
        for arm in answer["arms"]
    ]
    return {**{name: value for name, value in answer.items() if name != "decision"}, "arms": arms}


async def metrics(api: Api) -> list[str]:
    """What is counted, but for the requests themselves and what runs by itself."""
    lines = (await api.call("GET", "/metrics")).text.splitlines()
    counted = ("shortlist_group", "shortlist_rewards", "shortlist_decision", "shortlist_store_used")
    return [line for line in lines if line.startswith(counted)]


@every_case
async def test_with_a_seed_it_is_the_choice_that_follows(api: Api, bandit: Json, request_: Json):
    await build(api, **bandit)
    await taught(api, bandit, request_)
    for seed in range(3):
        before = await dry(api, **request_, seed=seed)
        hold_draws(before, bandit)
        assert await dry(api, **request_, seed=seed) == before
        choice = await api.choose("b", **request_, seed=seed)
        assert "decision" in choice
        assert plain(before) == plain(choice)


def hold_draws(answer: Json, bandit: Json) -> None:
    """A draw is what Thompson sampling has drawn."""
    draws = bandit["policy"] in {"sub_ts", "linear_ts"} and answer.get("group") != "holdout"
    for arm in answer["arms"]:
        if not draws or arm.get("pinned"):
            assert arm["draw"] is None
        else:
            assert arm["draw"] == arm["score"]
            assert (arm["draw"] == pytest.approx(arm["estimate"], abs=1e-9)) == (
                bandit.get("exploration") == 0
            )
        if bandit["policy"] in {"softmax", "igw"} or arm.get("pinned") or answer.get("group") == "holdout":
            assert arm["score"] == pytest.approx(arm["estimate"], abs=1e-9)


@few_cases
async def test_nothing_is_left_of_it(api: Api, bandit: Json, request_: Json):
    waits: Json = {"aggregate": "sum"} if "reward" in bandit else {"reward": {"wait_s": 60.0, "default": 0.0}}
    await build(api, **{"log": {}, **({} if "reward" in bandit else waits), **bandit})
    await taught(api, bandit, request_, rewards=5)

    async def is_logged() -> bool:
        return len(await api.listed("/v1/bandits/b/log")) == 5

    await wait_until(is_logged, what="the rows are written")
    states = held_states(api)
    stored, counted = await api.stored(), await metrics(api)
    for seed in (None, *range(2)):
        await dry(api, **request_, **({} if seed is None else {"seed": seed}))
    await api.refused("POST", CHOOSE, {**request_, "exclude": ["?"], "dry_run": True})
    assert await api.stored() == stored
    assert await metrics(api) == counted
    assert held_states(api) == states
    last = await api.choose("b", **request_)  # its row is written after all that waited

    async def is_last_logged() -> list[Json]:
        rows = await api.listed("/v1/bandits/b/log")
        return rows if any(row["decision"] == last["decision"] for row in rows) else []

    assert len(await wait_until(is_last_logged, what="the row is written")) == 6


def held_states(api: Api) -> list[tuple[Any, int]]:
    """The states of elimination that are in memory."""
    held = api.app.service.elimination.states
    return [(key, id(held.peek(key))) for key in sorted(held)]


@few_cases
async def test_estimates_and_widths_are_those_by_hand(api: Api, bandit: Json, request_: Json):
    await build(api, **bandit)
    await taught(api, bandit, request_)
    key = request_.get("key", "_global")
    if key == "new":
        await taught(api, bandit, {"key": "bob"})
        key, request_ = "ann", {**request_, "key": "ann"}
    learner = await api.learner("b", key, precision=True)
    covariance = np.linalg.inv(np.array(learner["precision"]))
    noise = learner["used"]["noise"]
    numbers = np.concatenate((learner["theta"], np.ravel(learner.get("weights") or [])))
    answer = await dry(api, **request_, seed=3)
    assert answer["learner_version"] > 0
    for arm in answer["arms"]:
        x = np.array(ARMS[arm["id"]])
        u = np.array(request_.get("context", []), dtype=np.float32).astype(float)
        phi = np.concatenate((x, np.kron(x, u)))
        assert arm["estimate"] == pytest.approx(float(phi @ numbers), abs=1e-9)
        assert arm["width"] == pytest.approx(noise * float(np.sqrt(phi @ covariance @ phi)))


async def test_draws_have_the_spread_that_exploration_gives_the_widths(api: Api):
    await build(api, policy="linear_ts", exploration=0.5)
    await taught(api, {}, {})
    answers = [await dry(api, k=40, seed=seed) for seed in range(60)]
    arms = [{arm["id"]: arm for arm in answer["arms"]} for answer in answers]
    for name in ("a0", "a9"):
        draws = np.array([found[name]["draw"] for found in arms])
        known = arms[0][name]
        assert {(found[name]["estimate"], found[name]["width"]) for found in arms} == {
            (known["estimate"], known["width"])
        }
        errors = (draws - known["estimate"]) / (0.5 * known["width"])
        assert abs(errors.mean()) < 4 / np.sqrt(len(errors))
        assert abs(errors.std() - 1.0) < 4 / np.sqrt(2 * len(errors))


async def test_it_eliminates_nothing(api: Api):
    """What a learner believed for a moment eliminates arms when a choice is made then; a dry run does not."""
    await api.catalogue("c", {"steady": [1.0, 0.0], "late": [0.0, 1.0]})
    index = api.app.service.catalogues.served("c").index

    async def shares() -> bool:
        return not IS_GROUP or index.sharing.adopted is not None

    await wait_until(shares, what="the arms are shared: that begins elimination again")
    names = ["b", "chosen", "untouched"]
    for name in names:
        await api.bandit(name, "c", policy="sub_elim", exploration=1.5, horizon=10**8)
        await api.choose(name)
    states = held_states(api)

    async def teach(value: float, first: int, last: int) -> None:
        for name in names:
            steady = [{"id": f"s{i}", "arm": "steady", "value": 1.0} for i in range(first, last)]
            late = [{"id": f"l{i}", "arm": "late", "value": value} for i in range(first, last)]
            await api.observe(name, *steady, *late)

    await teach(0.0, 0, 20)
    for seed in range(5):
        assert [arm["id"] for arm in (await dry(api, seed=seed))["arms"]] == ["steady"]
        await dry(api, k=2, filter={"mood": {"$exists": False}}, seed=seed)
        assert held_states(api) == states
    assert [arm["id"] for arm in (await api.choose("chosen"))["arms"]] == ["steady"]
    assert held_states(api) != states
    await teach(1.0, 20, 80)
    sets = [await api.ok("GET", f"/v1/bandits/{name}/learners/_global/sets") for name in names]
    assert [found["eliminated"] for found in sets] == [0, 1, 0]
    assert sets[0] == sets[2]


async def test_a_pass_over_many_arms_is_made_for_it_alone(api: Api):
    """As of a catalogue for which a pass takes long."""
    api.app.service.elimination.inline_work = 1
    await build(api, policy="sub_elim")
    assert plain(await dry(api, k=3, seed=1)) == plain(await dry(api, k=3, seed=1))
    assert held_states(api) == []
    before = await dry(api, k=3, seed=1)
    assert plain(before) == plain(await api.choose("b", k=3, seed=1))
    assert len(held_states(api)) == 1
    await taught(api, {}, {}, rewards=4)
    states = held_states(api)
    before = await dry(api, k=3, seed=2)
    assert held_states(api) == states
    assert not api.app.service.elimination.passes
    assert plain(before) == plain(await api.choose("b", k=3, seed=2))


@pytest.mark.parametrize(
    ("fields", "loc"),
    [
        ({"event_id": "e"}, ["event_id"]), ({"activate": False}, ["activate"]), ({"key": "ann"}, ["key"]),
        ({"context": [1.0]}, ["context"]), ({"k": 0}, ["k"]), ({"seed": -1}, ["seed"]),
        ({"filter": {"even": {"$no": 1}}}, ["filter", "even", "?"]),
        ({"rules": {"pin": [{"arm": "gone", "place": 1}]}}, ["rules", "pin", 0, "arm"]),
        ({"dry_run": 1}, ["dry_run"]), ({"dry_run": "true"}, ["dry_run"]), ({"dry_run": None}, ["dry_run"]),
    ],
    ids=str,
)  # fmt: skip
async def test_what_it_cannot_be_asked_with(shared: Api, fields: Json, loc: list[str | int]):
    if (await shared.call("GET", "/v1/bandits/b")).status_code == 404:
        await build(shared)
    await shared.refused("POST", CHOOSE, {"dry_run": True, **fields}, loc=["body", *loc])
