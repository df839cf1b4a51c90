"""Places of a list that are not all looked at: a reward at place k is regressed on p_k x."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from api_client import EAGER_HOUSEKEEPING, Api, Json
from app.fold.replay import compare
from app.platform.pauses import Pauses
from oracle import ridge_estimate
from store_server import patient_store
from waiting import wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.rest]

P = [1.0, 0.5, 0.2]
POSITION = {"examination": P}
ARMS = {f"a{i}": list(np.random.default_rng(i).standard_normal(3)) for i in range(8)}
LOG = {"keep_s": 3600}


@pytest.fixture
def pauses() -> Pauses:
    return EAGER_HOUSEKEEPING


@pytest.fixture
async def api(api: Api) -> Api:
    await api.catalogue("c", ARMS)
    return api


def p(place: int) -> float:
    return P[min(place, len(P) - 1)]


def looked_at(arm: str, place: int, scale: float = 1.0) -> list[float]:
    return [scale * p(place) * x for x in ARMS[arm]]


async def test_a_reward_is_regressed_on_what_was_looked_at(api: Api):
    """Places beyond those that are named are as the last."""
    await api.bandit("b", "c", position=POSITION)
    rng, rows = np.random.default_rng(1), []
    for i in range(10):
        choice = await api.choose("b", k=5)
        for place, arm in enumerate(choice["arms"]):
            if (place + i) % 3:
                value = float(rng.standard_normal())
                await api.reward({"decision": choice["decision"], "arm": arm["id"], "value": value})
                rows.append((looked_at(arm["id"], place), value))
    np.testing.assert_allclose((await api.learner("b"))["theta"], ridge_estimate(rows), rtol=1e-9)


async def test_what_is_pinned_stands_where_it_stands(api: Api):
    await api.bandit("b", "c", position=POSITION)
    rules = {"pin": [{"arm": "a7", "place": 2}]}
    choice = await api.choose("b", k=3, rules=rules)
    assert choice["arms"][1]["id"] == "a7"
    await api.reward(
        *({"decision": choice["decision"], "arm": arm["id"], "value": 1.0} for arm in choice["arms"])
    )
    rows = [(looked_at(arm["id"], place), 1.0) for place, arm in enumerate(choice["arms"])]
    np.testing.assert_allclose((await api.learner("b"))["theta"], ridge_estimate(rows), rtol=1e-9)


async def test_signals_defaults_and_contexts_know_places(api: Api):
    signals = {"click": {"default": 0.1}, "buy": {"aggregate": "last"}}
    await api.bandit("b", "c", position=POSITION, signals=signals, reward={"wait_s": 600}, context={"dim": 1})
    choice = await api.choose("b", k=3, context=[2.0])
    token, arms = choice["decision"], [arm["id"] for arm in choice["arms"]]
    await api.reward({"decision": token, "arm": arms[1], "signal": "click", "value": 1})
    await api.due_now()

    async def counted() -> bool:
        return bool((await api.learner("b"))["observations"] == 3)

    await wait_until(counted, what="the defaults are counted")
    for at, value in enumerate((3.0, 4.0)):
        await api.reward({"decision": token, "arm": arms[2], "signal": "buy", "value": value, "at": at})
    learner = await api.learner("b")
    for name, values in {"click": [0.1, 1.0, 0.1], "buy": [0.0, 0.0, 4.0]}.items():
        both = [[*looked_at(arm, place), *looked_at(arm, place, 2.0)] for place, arm in enumerate(arms)]
        found = learner["signals"][name]
        theta = [*found["theta"], *np.ravel(found["weights"])]
        np.testing.assert_allclose(theta, ridge_estimate(list(zip(both, values, strict=True))), rtol=1e-9)


async def test_a_decision_is_learned_by_the_places_of_then(api: Api):
    await api.bandit("b", "c")
    before = await api.choose("b", k=2)
    await api.ok("PATCH", "/v1/bandits/b", {"position": POSITION})
    after = await api.choose("b", k=2)
    rows = []
    for choice, looked in ((before, [1.0, 1.0]), (after, P)):
        arm = choice["arms"][1]["id"]
        await api.reward({"decision": choice["decision"], "arm": arm, "value": 2.0})
        rows.append(([looked[1] * x for x in ARMS[arm]], 2.0))
    np.testing.assert_allclose((await api.learner("b"))["theta"], ridge_estimate(rows), rtol=1e-9)


async def test_learners_are_what_their_log_says(api: Api, store_url: str):
    await api.bandit("b", "c", position=POSITION, scope="per_key", half_life_s=60, reward={"wait_s": 600})
    for i in range(20):
        choice = await api.choose("b", key=f"k{i % 3}", k=3)
        arm = choice["arms"][i % 3]["id"]
        await api.reward({"decision": choice["decision"], "arm": arm, "value": i / 7})
    await api.due_now()

    async def counted() -> bool:
        learners = [await api.learner("b", f"k{i}") for i in range(3)]
        return sum(each["observations"] for each in learners) == 60

    await wait_until(counted, what="the defaults are counted")
    await api.stored()
    store = patient_store(store_url)
    await store.open()
    result = await compare(store)
    await store.close()
    assert (result.different, result.older, result.equal) == ([], 0, 3)


async def served(api: Api, count: int, **settings: Any) -> None:
    """Lists of three, each arm rewarded with what its place makes of its true mean, without noise."""
    await api.bandit("b", "c", log=LOG, **settings)
    theta = np.array([1.0, -0.5, 0.3])
    for i in range(count):
        choice = await api.choose("b", k=3, seed=i)
        rewards = [
            {
                "decision": choice["decision"],
                "arm": arm["id"],
                "value": float(p(place) * (np.array(ARMS[arm["id"]]) @ theta)),
            }
            for place, arm in enumerate(choice["arms"])
        ]
        await api.reward(*rewards, wait=i == count - 1)

    async def logged() -> bool:
        groups = (await api.ok("GET", "/v1/bandits/b/report"))["groups"]
        return sum(group["decisions"] for group in groups) == count

    await wait_until(logged, what="all decisions are logged")


async def test_an_evaluation_predicts_what_a_place_earns(api: Api):
    """Without noise predictions are all but exact: dr has a narrow interval, if it knows the places."""
    await served(api, 120, position=POSITION, policy="softmax", temperature=2.0, ridge=1e-6)
    half = dict[str, float]()
    for name, position in {"right": POSITION, "wrong": None}.items():
        body = {"policy": {"position": position, "temperature": 1.5}, "estimators": ["dr"], "learners": "now"}
        answer = await api.ok("POST", "/v1/bandits/b/evaluations", body)
        low, high = answer["estimates"][0]["interval"]
        half[name] = (high - low) / 2
    assert half["right"] < 0.7 * half["wrong"]
    before = await api.ok("POST", "/v1/bandits/b/evaluations", {"policy": {}, "estimators": ["dr"]})
    assert before["learners"]["blocks"] > 1
    low, high = before["estimates"][0]["interval"]
    assert (high - low) / 2 < half["wrong"]


async def test_a_choice_is_explained(api: Api):
    await api.bandit("b", "c", log=LOG, position=POSITION)
    choice = await api.choose("b", k=3)
    body = {"decision": choice["decision"]}

    async def explained() -> Json | None:
        answer = await api.call("POST", "/v1/bandits/b/log/explain", body)
        return answer.json() if answer.status_code == 200 else None

    answer = await wait_until(explained, what="the decision is logged")
    assert answer["repeated"] is True


async def test_the_report_has_places_and_what_random_lists_say_of_them(api: Api):
    await served(api, 200, policy="softmax", holdout={"share": 0.5, "serve": "random"})
    report = await api.ok("GET", "/v1/bandits/b/report")
    sizes = {group["group"]: group["decisions"] for group in report["groups"]}
    places = [(each["group"], each["place"], each["decisions"]) for each in report["places"]]
    assert places == [(group, place, sizes[group]) for group in ("policy", "holdout") for place in (1, 2, 3)]
    for group in report["groups"]:
        own = [each["mean_reward"] for each in report["places"] if each["group"] == group["group"]]
        assert sum(own) == pytest.approx(group["mean_reward"])
    policy, holdout = report["places"][:3], report["places"][3:]
    assert all(each["examination"] is None for each in policy)
    assert [each["examination"] for each in holdout] == pytest.approx(
        [each["mean_reward"] / holdout[0]["mean_reward"] for each in holdout]
    )


@pytest.mark.parametrize(
    "more", [{"holdout": {"share": 1.0, "serve": {"arms": ["a1", "a2", "a3"]}}}, {"policy": "softmax"}]
)
async def test_what_is_not_random_says_nothing_of_places(api: Api, more: Json):
    await served(api, 20, **more)
    report = await api.ok("GET", "/v1/bandits/b/report")
    assert len(report["places"]) == 3
    assert all(each["examination"] is None for each in report["places"])


IMPOSSIBLE: list[Any] = [
    ({"position": {}}, ("position", "examination")),
    ({"position": {"examination": []}}, ("position", "examination")),
    ({"position": {"examination": [1.0, 0.0]}}, ("position", "examination", 1)),
    ({"position": {"examination": [1.1]}}, ("position", "examination", 0)),
    ({"position": {"examination": ["1"]}}, ("position", "examination", 0)),
    ({"position": {"examination": [0.5] * 101}}, ("position", "examination")),
    ({"position": POSITION, "policy": "sub_elim"}, ("position",)),
    ({"position": POSITION, "policy": "linear_elim"}, ("position",)),
]


async def test_places_that_cannot_be_are_refused(api: Api):
    for settings, loc in IMPOSSIBLE:
        body = {"catalogue": "c", "policy": "sub_ts", **settings}
        problem = await api.refused("PUT", "/v1/bandits/b", body, loc=("body", *loc))
        # Stated places are not told that they are not the word "auto".
        assert len(problem["errors"]) == 1
