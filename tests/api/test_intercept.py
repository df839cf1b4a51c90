"""Bandits with an intercept: learners see [x; c] of every arm, and nothing else is any different."""

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from api_client import Api, Json, running
from oracle import ridge_of
from waiting import wait_until

pytestmark = pytest.mark.anyio

RNG = np.random.default_rng(29)
ARMS = {f"a{i}": [float(x) for x in row] for i, row in enumerate(RNG.normal(size=(12, 3)))}
C = float(np.sqrt(np.mean(np.square(list(ARMS.values())))))
PLAIN = {"catalogue": "c", "policy": "linear_ts", "exploration": 0, "ridge": 1}
LEARNED = ["sub_ts", "linear_ts", "softmax", "igw"]
ELIMINATION = ["sub_elim", "linear_elim"]


def seen(arm: str) -> np.ndarray:
    return np.append(ARMS[arm], C)


def assert_learned(learner: Json, rows: np.ndarray, values: list[float], weights: Any = 1.0) -> np.ndarray:
    """Ridge regression on the rows, of which the last column is that of the constant."""
    precision, theta = ridge_of(rows, values, weights)
    np.testing.assert_allclose(learner["precision"], precision, rtol=1e-9, atol=1e-12)
    found = [*learner["theta"], *np.ravel(learner.get("weights", [])), learner["offset"]]
    np.testing.assert_allclose(found, [*theta[:-1], theta[-1] * C], rtol=1e-9, atol=1e-12)
    return theta


async def build(api: Api, name: str = "b", **settings: Any) -> None:
    if (await api.call("GET", "/v1/catalogues/c")).status_code == 404:
        await api.catalogue("c", ARMS)
    await api.ok("PUT", f"/v1/bandits/{name}", {**PLAIN, **settings}, 201)


@pytest.mark.rest
async def test_a_new_bandit_has_one_where_it_can(api: Api):
    await api.catalogue("c", ARMS)
    for policy in [*LEARNED, *ELIMINATION]:
        path, body = f"/v1/bandits/{policy}", {"catalogue": "c", "policy": policy}
        can = policy in LEARNED
        if not can:
            problem = await api.refused("PUT", path, {**body, "intercept": True}, loc=["body", "intercept"])
            assert problem["errors"][0]["message"].startswith("intercept cannot be combined with")
        made = await api.ok("PUT", path, body, 201)
        assert made["intercept"] is can
        assert await api.ok("PUT", path, body, 200) == await api.ok("GET", path) == made
        assert await api.ok("PUT", path, {**body, "intercept": can}, 200) == made
        if can:
            problem = await api.refused(
                "PUT", path, {**body, "intercept": False}, status=409, code="conflict"
            )
            assert "intercept" in problem["detail"]
        learner = await api.learner(policy)
        assert ("offset" in learner, len(learner["theta"])) == (can, 3)


@pytest.mark.rest
@pytest.mark.parametrize("value", [False, None])
async def test_it_cannot_be_changed(api: Api, value: object):
    await build(api)
    problem = await api.refused(
        "PATCH", "/v1/bandits/b", {"intercept": value}, status=409, code="not_changeable"
    )
    assert problem["errors"][0]["loc"] == ["body", "intercept"]
    assert (await api.ok("PATCH", "/v1/bandits/b", {"policy": "softmax"}))["intercept"] is True


@pytest.mark.rest
@pytest.mark.parametrize("policy", ELIMINATION)
async def test_a_bandit_that_is_changed_to_elimination_keeps_it(api: Api, policy: str):
    """Its learners have a number for it. The arm that is left is that of largest mean, offset and all."""
    await build(api)
    changed = {"policy": policy, "exploration": 0.1}
    assert (await api.ok("PATCH", "/v1/bandits/b", changed))["intercept"] is True
    means = {arm: 2.0 + np.array(x).sum() for arm, x in ARMS.items()}
    for _ in range(60):
        choice = await api.choose("b")
        value = means[choice["arms"][0]["id"]]
        await api.reward({"decision": choice["decision"], "value": value})
    learner = await api.ok("GET", "/v1/bandits/b/learners/_global")
    assert learner["offset"] > 0.5
    chosen = [(await api.choose("b"))["arms"][0]["id"] for _ in range(5)]
    assert set(chosen) == {max(means, key=means.__getitem__)}


async def test_rewards_and_observations_teach_it_as_any_coordinate(api: Api):
    await build(api)
    choice = await api.choose("b", k=2, exclude=["a3"])
    shown = [arm["id"] for arm in choice["arms"]]
    for arm, value in zip(shown, (1.0, -0.5), strict=True):
        await api.reward({"decision": choice["decision"], "arm": arm, "value": value})
    await api.observe("b", {"id": "o", "arm": "a3", "value": 2.0})
    rows = np.array([seen(arm) for arm in (*shown, "a3")])
    learner = await api.learner("b", precision=True)
    theta = assert_learned(learner, rows, [1.0, -0.5, 2.0])
    inverse = np.linalg.inv(np.array(learner["precision"]))
    expected = {arm: float(seen(arm) @ theta) for arm in ARMS}
    dry = await api.ok("POST", "/v1/bandits/b/choose", {"k": 12, "dry_run": True})
    assert [arm["id"] for arm in dry["arms"]] == sorted(ARMS, key=lambda arm: -expected[arm])
    for arm in dry["arms"]:
        row = seen(arm["id"])
        width = float(np.sqrt(row @ inverse @ row))
        assert (arm["estimate"], arm["width"]) == pytest.approx((expected[arm["id"]], width))
        assert arm["score"] == pytest.approx(arm["estimate"])


@pytest.mark.rest
async def test_it_does_not_interact_with_a_context(api: Api):
    """D = d + p m + 1."""
    await build(api, context={"dim": 2}, half_life_s=3_600, reward={"wait_s": 60})
    rows, values = [], []
    for context, arm, value in (([1.0, -0.5], "a1", 1.0), ([0.25, 2.0], "a2", -1.0)):
        await api.observe("b", {"id": arm, "arm": arm, "value": value, "context": context})
        rows.append(np.concatenate((ARMS[arm], np.kron(ARMS[arm], context), [C])))
        values.append(value)
    learner = await api.learner("b", precision=True)
    assert np.shape(learner["precision"]) == (10, 10)
    for number in range(10):  # an hour is long beside the time between both
        assert learner["precision"][number][number] == pytest.approx(
            1 + sum(row[number] ** 2 for row in rows), rel=1e-3
        )
    choice = await api.choose("b", k=12, context=[0.5, 0.5])
    for arm in choice["arms"]:
        own = np.array(ARMS[arm["id"]])
        bilinear = own @ np.array(learner["weights"]) @ [0.5, 0.5]
        assert arm["score"] == pytest.approx(own @ learner["theta"] + bilinear + learner["offset"])


@pytest.mark.rest
@pytest.mark.parametrize("policy", ["softmax", "igw"])
async def test_propensities_are_those_of_the_estimates_without_it(api: Api, policy: str):
    await build(api, policy=policy)
    await api.observe("b", *[{"id": arm, "arm": arm, "value": 5.0 + ARMS[arm][0]} for arm in ARMS])
    learner = await api.learner("b")
    assert learner["offset"] > 1
    estimates = {arm: float(np.dot(row, learner["theta"])) for arm, row in ARMS.items()}
    best = max(estimates.values())
    for seed in range(20):
        (arm,) = (await api.choose("b", seed=seed))["arms"]
        assert arm["score"] == pytest.approx(estimates[arm["id"]] + learner["offset"])
        if policy == "softmax":
            mass = sum(np.exp(value) for value in estimates.values())
            expected = np.exp(estimates[arm["id"]]) / mass
        else:
            others = {a: 1 / (12 + 100 * (best - e)) for a, e in estimates.items() if e < best}
            expected = others.get(arm["id"], 1 - sum(others.values()))
        assert arm["propensity"] == pytest.approx(expected)


# A catalogue without arms: the first ones say what c is, when the first choice or reward comes.


async def empty(api: Api, **settings: Any) -> Json:
    await api.ok("PUT", "/v1/catalogues/c", {"dim": 3}, 201)
    made: Json = await api.ok("PUT", "/v1/bandits/b", {**PLAIN, **settings}, 201)
    return made


async def constant(api: Api) -> float | None:
    found: float | None = (await api.ok("GET", "/v1/bandits/b/log/terms"))["constant"]
    return found


@pytest.mark.rest
async def test_the_first_choice_settles_it_and_nothing_else(api: Api):
    made = await empty(api)
    assert (await api.learner("b"))["offset"] == 0.0
    await api.refused("POST", "/v1/bandits/b/choose", {}, status=409, code="no_arms")
    await api.put_arms("c", ARMS)
    await api.ok("POST", "/v1/bandits/b/choose", {"dry_run": True})
    assert await constant(api) is None  # that decided nothing
    choice = await api.choose("b")
    assert await constant(api) == pytest.approx(C)
    assert await api.ok("GET", "/v1/bandits/b") == made  # the version too
    assert len(await api.listed("/v1/bandits/b/versions")) == 1
    await api.put_arms("c", {"long": [1e3, 0.0, 0.0]})
    await api.reward({"decision": choice["decision"], "value": 1.0})
    assert_learned(await api.learner("b", precision=True), np.array([seen(choice["arms"][0]["id"])]), [1.0])
    assert await api.ok("PUT", "/v1/bandits/b", PLAIN, 200) == made


@pytest.mark.rest
async def test_choices_that_come_together_measure_the_arms_once(api: Api, monkeypatch: pytest.MonkeyPatch):
    await empty(api)
    await api.put_arms("c", ARMS)
    catalogues, goes_on, counts = api.app.service.catalogues, asyncio.Event(), list[int]()
    sampled = catalogues.sampled

    async def counted(catalogue: Any) -> Any:
        counts.append(1)
        await goes_on.wait()
        return await sampled(catalogue)

    monkeypatch.setattr(catalogues, "sampled", counted)
    choices = [asyncio.create_task(api.choose("b")) for _ in range(8)]
    for _ in range(100):
        await asyncio.sleep(0)
    choices[0].cancel()
    goes_on.set()
    with pytest.raises(asyncio.CancelledError):
        await choices[0]
    await asyncio.gather(*choices[1:])
    assert counts == [1]


@pytest.mark.rest
async def test_processes_agree_and_decisions_of_every_version_count(store_url: str, tmp_path: Path):
    """The bandit was changed before it was settled, so what is kept of that version does not say it."""
    first, second = tmp_path / "first", tmp_path / "second"
    async with running(store_url, first) as one, running(store_url, second, empty=False) as other:
        await empty(one)
        await one.ok("PATCH", "/v1/bandits/b", {"delta": 0.1})

        async def is_followed() -> bool:
            return bool((await other.ok("GET", "/v1/bandits/b"))["version"] == 2)

        await wait_until(is_followed, what="the other process has the change")
        await one.put_arms("c", ARMS)
        choice = await one.choose("b", exclude=["a1"])
        await other.reward({"decision": choice["decision"], "value": 1.0})  # unsettled as it knew it
        arm = choice["arms"][0]["id"]
        assert_learned(await other.learner("b", precision=True), np.array([seen(arm)]), [1.0])
        late = await other.choose("b", exclude=[arm])
        await one.ok("PATCH", "/v1/bandits/b", {"delta": 0.2})
    async with running(store_url, first, empty=False) as one:
        assert await constant(one) == pytest.approx(C)
        await one.reward({"decision": late["decision"], "value": -1.0})
        rows = np.array([seen(arm), seen(late["arms"][0]["id"])])
        assert_learned(await one.learner("b", precision=True), rows, [1.0, -1.0])


# States and campaigns


@pytest.mark.rest
@pytest.mark.parametrize("signals", [None, {"like": {}, "hide": {}}])
async def test_a_state_of_a_bandit_without_is_taken(api: Api, signals: Json | None):
    """Its rewards say nothing of the constant: as if that had been 0 in all of them."""
    await build(api, "without", intercept=False, signals=signals)
    await build(api, "with", signals=signals)
    value = {"value": 2.0} if signals is None else {"values": {"like": 2.0, "hide": 0.5}}
    for arm in ("a1", "a2"):
        await api.observe("without", {"id": arm, "arm": arm, **value})
    (copy,) = (await api.ok("GET", "/v1/bandits/without/learners?include=state"))["items"]
    path, body = "/v1/bandits/with/learners/_global", {"state": copy["state"]}
    await api.ok("PUT", path, body, 201)
    await api.ok("PUT", path, body, 200)
    await api.observe("with", {"id": "o", "arm": "a3", **value})
    rows = np.array([[*ARMS["a1"], 0.0], [*ARMS["a2"], 0.0], seen("a3")])
    learner = await api.learner("with", precision=True)
    sum_of = 2.0 if signals is None else 2.5
    assert_learned(learner, rows, [sum_of] * 3)
    for place, name in enumerate(signals or ()):
        assert_learned({**learner, **learner["signals"][name]}, rows, [(2.0, 0.5)[place]] * 3)
    own = await api.ok("GET", "/v1/bandits/with/learners?include=state")
    state = {"state": own["items"][0]["state"]}
    problem = await api.refused("PUT", "/v1/bandits/without/learners/_global", state, loc=["body", "state"])
    assert "must be of dimension 3, not 4" in str(problem)
