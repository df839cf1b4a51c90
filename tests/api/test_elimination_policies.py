"""Elimination over HTTP: what lives, what is chosen, and that no change of the catalogue confuses it."""

import asyncio
import threading
from typing import Any

import numpy as np
import pytest

from api_client import Api, Json
from app.policies import elimination_state
from shortlist import confidence

pytestmark = [pytest.mark.anyio, pytest.mark.rest]

RNG = np.random.default_rng(3)
ARMS = {f"a{i}": [float(x) for x in row] for i, row in enumerate(RNG.normal(size=(40, 3)))}
TRUTH = np.array([1.0, -0.5, 0.25])
WAIT_S = 60.0  # of one thread for another
BEST = max(ARMS, key=lambda arm: float(np.dot(ARMS[arm], TRUTH)))


async def build(api: Api, policy: str = "sub_elim", **bandit: object) -> None:
    await api.catalogue("c", ARMS)
    await api.bandit("b", "c", policy=policy, **bandit)


async def sets(api: Api, key: str = "_global") -> Json:
    found: Json = await api.ok("GET", f"/v1/bandits/b/learners/{key}/sets")
    assert set(found) == {"stages", "eliminated", "threshold"}
    return found


def living(found: Json) -> int:
    return int(sum(stage["size"] for stage in found["stages"]))


async def teach(api: Api, arms: dict[str, list[float]], times: int, tag: str, key: str | None = None) -> None:
    """Rewards without noise, for every arm, ``times`` times."""
    history = [
        {
            "id": f"{tag}-{arm}-{i}",
            "arm": arm,
            "value": float(np.dot(row, TRUTH)),
            **({"key": key} if key else {}),
        }
        for arm, row in arms.items()
        for i in range(times)
    ]
    await api.observe("b", *history)


async def precision(api: Api, key: str = "_global") -> tuple[np.ndarray, np.ndarray]:
    learner = await api.learner("b", key, precision=True)
    return np.array(learner["theta"]), np.linalg.inv(np.array(learner["precision"]))


@pytest.mark.parametrize("policy", ["sub_elim", "linear_elim"])
async def test_from_the_prior_the_longest_arm_is_chosen_and_nothing_is_eliminated(api: Api, policy: str):
    await build(api, policy, exploration=2.0, ridge=4.0)
    choice = await api.choose("b", k=3)
    lengths = {arm: float(np.linalg.norm(row)) for arm, row in ARMS.items()}
    assert [item["id"] for item in choice["arms"]] == sorted(lengths, key=lambda arm: -lengths[arm])[:3]
    for item in choice["arms"]:
        assert item["score"] == pytest.approx(2.0 * lengths[item["id"]] / 2.0)
    found = await sets(api)
    assert (living(found), found["eliminated"]) == (40, 0)
    assert found["threshold"] == pytest.approx(-min(lengths.values()))
    for stage in found["stages"]:
        inside = [w for w in lengths.values() if 2.0 ** -(stage["stage"] + 1) < w <= 2.0 ** -stage["stage"]]
        assert stage["size"] == len(inside)


@pytest.mark.parametrize("policy", ["sub_elim", "linear_elim"])
@pytest.mark.parametrize("scope", ["global", "per_key"])
async def test_arms_that_cannot_be_best_are_eliminated(api: Api, policy: str, scope: str):
    await build(api, policy, scope=scope, horizon=10**8)
    keyed = {"key": "ann"} if scope == "per_key" else {}
    key = keyed.get("key", "_global")
    for step in range(6):
        await teach(api, ARMS, 4, str(step), **keyed)
        choice = await api.choose("b", **keyed)
        theta, inverse = await precision(api, key)
        rows = np.array(list(ARMS.values()))
        spans = np.sqrt(np.einsum("ij,jk,ik->i", rows, inverse, rows))
        lower, upper = rows @ theta - spans, rows @ theta + spans
        arm = list(ARMS).index(choice["arms"][0]["id"])
        assert choice["arms"][0]["score"] == pytest.approx(spans[arm])
        found = await sets(api, key)
        assert found["threshold"] <= lower.max() + 1e-9
        assert living(found) + found["eliminated"] == 40
        assert living(found) >= 1
        if policy == "linear_elim":
            assert living(found) == (upper >= lower.max()).sum()
            assert found["threshold"] == pytest.approx(lower.max())
            assert arm == np.where(upper >= lower.max(), spans, -1).argmax()
    assert found["eliminated"] > 20
    everything = [item["id"] for item in (await api.choose("b", k=40, **keyed))["arms"]]
    assert len(set(everything)) == 40
    assert BEST in everything[: living(found)], "the living come first"
    if scope == "per_key":
        assert (await sets(api, "bob"))["eliminated"] == 0


async def test_play_finds_the_best_arm(api: Api):
    """A thousand decisions with rewards: what is left costs little."""
    await build(api, exploration=1.0, horizon=10**6)
    rng = np.random.default_rng(0)
    late = []
    for step in range(40):
        results = (await api.ok("POST", "/v1/bandits/b/choose/batch", {"requests": [{}] * 25}))["results"]
        arms = [choice["arms"][0]["id"] for choice in results]
        values = [float(np.dot(ARMS[arm], TRUTH) + rng.normal() / 4) for arm in arms]
        await api.reward(
            *(
                {"decision": choice["decision"], "value": value}
                for choice, value in zip(results, values, strict=True)
            )
        )
        if step >= 20:
            late += [np.dot(ARMS[BEST], TRUTH) - np.dot(ARMS[arm], TRUTH) for arm in arms]
    assert np.mean(late) < 0.1
    assert living(await sets(api)) <= 3


@pytest.mark.parametrize("policy", ["sub_elim", "linear_elim"])
async def test_changes_of_the_catalogue(api: Api, policy: str):
    """After each change the sets are those of a bandit that begins now with the same knowledge."""
    await build(api, policy, horizon=10**8)
    arms = dict(ARMS)
    await teach(api, ARMS, 10, "x")
    await api.choose("b")
    assert (await sets(api))["eliminated"] > 10

    async def same_as_anew() -> Json:
        found = await sets(api)
        theta, inverse = await precision(api)
        rows = np.array(list(arms.values()))
        spans = np.sqrt(np.einsum("ij,jk,ik->i", rows, inverse, rows))
        threshold = (rows @ theta - spans).max()
        assert found["threshold"] == pytest.approx(threshold)
        assert living(found) == (rows @ theta + spans >= threshold).sum()
        choice = await api.choose("b", k=1_000)
        assert {item["id"] for item in choice["arms"]} == set(arms)
        return found

    await same_as_anew()
    for _ in range(4):  # the arm that set r, and whoever follows it
        theta, inverse = await precision(api)
        lower = {a: np.dot(x, theta) - np.sqrt(x @ inverse @ np.array(x)) for a, x in arms.items()}
        setter = max(lower, key=lambda arm: lower[arm])
        await api.ok("DELETE", f"/v1/catalogues/c/arms/{setter}", status=204)
        del arms[setter]
        await same_as_anew()
    better = {"new": [3.0, -2.0, 1.0], "a1": [2.0, -1.0, 0.0]}  # one added, one replaced
    arms.pop("a1", None)
    arms |= better
    await api.put_arms("c", better)
    assert living(await same_as_anew()) <= 5
    gone = [arm for arm in arms if arm != "a7"]
    await api.ok("POST", "/v1/catalogues/c/arms/delete", {"ids": gone})
    arms = {"a7": ARMS["a7"]}
    assert living(await same_as_anew()) == 1
    assert [item["id"] for item in (await api.choose("b"))["arms"]] == ["a7"]


async def test_when_all_that_live_are_excluded_the_eliminated_are_chosen(api: Api):
    await build(api, horizon=10**8)
    await teach(api, ARMS, 30, "x")
    count = living(await sets(api))
    assert count < 20
    ranked = [item["id"] for item in (await api.choose("b", k=40))["arms"]]
    choice = await api.choose("b", k=2, exclude=ranked[:count])
    assert [item["id"] for item in choice["arms"]] == ranked[count : count + 2]
    theta, _ = await precision(api)
    estimates = [np.dot(ARMS[arm], theta) for arm in ranked[count:]]
    assert estimates == sorted(estimates, reverse=True)
    await api.refused("POST", "/v1/bandits/b/choose", {"exclude": ranked}, status=409, code="no_arms")


@pytest.mark.parametrize("policy", ["sub_elim", "linear_elim"])
async def test_rewards_outside_the_stated_bounds_are_refused(api: Api, policy: str):
    await build(api, policy, reward={"min": 0, "max": 1})
    token = (await api.choose("b"))["decision"]
    receipt = await api.reward({"decision": token, "value": 1.5}, {"decision": token, "value": -0.1})
    assert [item["code"] for item in receipt["rejected"]] == ["out_of_range"] * 2
    assert (await api.learner("b"))["version"] == 0
    assert (await api.reward({"decision": token, "value": 1.0}))["accepted"] == 1


async def test_the_radius_of_theory_is_the_papers(api: Api):
    await api.catalogue("c", {"x": [0.5, 0.0]})
    await api.bandit("b", "c", policy="sub_elim", exploration="theory", delta=0.1, horizon=500)
    radius = confidence.beta(0.05, dim=2, horizon=500)
    assert radius == pytest.approx(1 + np.sqrt(2 * np.log(20) + 2 * np.log1p(250)))
    assert (await api.choose("b"))["arms"][0]["score"] == pytest.approx(radius / 2)
    assert (await sets(api))["threshold"] == pytest.approx(-radius / 2)


async def test_a_dimension_that_makes_passes_too_long(api: Api):
    await api.catalogue("wide", {}, dim=257)
    body = {"catalogue": "wide", "policy": "sub_elim"}
    await api.refused("PUT", "/v1/bandits/w", body, loc=["body", "policy"])
    await api.refused("GET", "/v1/bandits/w", status=404, code="not_found")


async def test_a_long_pass_blocks_nobody(api: Api, monkeypatch: pytest.MonkeyPatch):
    """While a new learner's first pass runs in a thread, others are answered: it goes on when they were."""
    rows = np.random.default_rng(6).normal(size=(8_000, 64))
    await api.catalogue("big", {f"x{i}": row for i, row in enumerate(rows)})
    await api.bandit("b", "big", policy="sub_elim", scope="per_key")
    await api.observe("b", *({"id": f"o{i}", "key": "ann", "arm": f"x{i}", "value": 1} for i in range(100)))
    begun, goes_on, is_beside = threading.Event(), threading.Event(), list[bool]()
    rebuilt = elimination_state.rebuilt

    def held(*given: Any) -> Any:
        is_beside.append(threading.current_thread() is not threading.main_thread())
        begun.set()
        assert not is_beside[-1] or goes_on.wait(WAIT_S)
        return rebuilt(*given)

    monkeypatch.setattr(elimination_state, "rebuilt", held)
    first = asyncio.create_task(api.choose("b", key="ann"))
    assert await asyncio.to_thread(begun.wait, WAIT_S)
    for _ in range(3):
        await api.ok("GET", "/healthz")
    assert not first.done()
    goes_on.set()
    assert (await first)["learner_version"] == 100
    assert is_beside == [True]


async def test_choices_go_on_from_the_last_state_while_a_pass_runs(api: Api):
    """After a burst of rewards no choice is of an arm that is gone, and in the end the passes are made."""
    rows = np.random.default_rng(6).normal(size=(8_000, 32))
    await api.catalogue("big", {f"x{i}": row for i, row in enumerate(rows)})
    await api.bandit("b", "big", policy="sub_elim", exploration=1.0)
    await api.choose("b")
    await api.observe("b", *({"id": f"o{i}", "arm": f"x{i}", "value": rows[i, 0]} for i in range(2_000)))
    gone = [f"x{i}" for i in np.argsort(-np.linalg.norm(rows, axis=1))[:50]]
    during = await asyncio.gather(*(api.choose("b") for _ in range(20)))
    await api.ok("POST", "/v1/catalogues/big/arms/delete", {"ids": gone})
    during += await asyncio.gather(*(api.choose("b", k=3) for _ in range(20)))
    for choice in during[20:]:
        assert not {item["id"] for item in choice["arms"]} & set(gone)
    found = await sets(api)
    assert living(found) + found["eliminated"] == 7_950
    assert found["eliminated"] > 4_000
