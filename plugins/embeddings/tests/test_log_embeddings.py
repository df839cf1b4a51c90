"""Coordinates from a bandit's own log: judged on what they have not seen, and taken only if they gain."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from api_client import Api, Json
from app.storage import redis_keys
from shortlist.embedding.own_rewards import Rewards, coordinates
from shortlist.types import Matrix
from shortlist_embeddings.jobs import EVERYONE
from waiting import wait_until

pytestmark = pytest.mark.anyio

KEYS, ARMS, ROUNDS, K = 24, 40, 12, 10


async def played(
    api: Api,
    name: str,
    hidden: float,
    *,
    noise: float = 0.3,
    signal: Json | None = None,
    told: list[float] | None = None,
    **options: Any,
) -> tuple[Rewards, Matrix]:
    """A bandit whose keys differ in two numbers that the catalogue has not, with a log of 2,880 rewards.

    These rewards, and the features of the arms.
    """
    table = np.random.default_rng(5).standard_normal((ARMS, 2))
    await api.catalogue(f"{name}-films", {f"a{arm}": table[arm] for arm in range(ARMS)})
    body = {
        "catalogue": f"{name}-films",
        "policy": "softmax",
        "temperature": 1_000,
        "scope": "per_key",
        "log": {},
        **options,
    }
    await api.ok("PUT", f"/v1/bandits/{name}", body, 201)
    return await play(api, name, table, hidden, noise=noise, signal=signal, told=told), table


async def play(
    api: Api,
    name: str,
    table: Matrix,
    hidden: float,
    *,
    rounds: int = ROUNDS,
    noise: float = 0.3,
    signal: Json | None = None,
    told: list[float] | None = None,
) -> Rewards:
    rng = np.random.default_rng(6)
    unsaid, tastes = rng.standard_normal((ARMS, 2)), rng.standard_normal((KEYS, 2))
    context = {} if told is None else {"context": told}
    came = list[tuple[int, int, float]]()
    for number in range(rounds):
        asked = [{"key": f"u{key}", "k": K, "seed": number * KEYS + key, **context} for key in range(KEYS)]
        answer = await api.ok("POST", f"/v1/bandits/{name}/choose/batch", {"requests": asked})
        rewards = []
        for key, choice in enumerate(answer["results"]):
            for arm in choice["arms"]:
                row = int(arm["id"][1:])
                value = table[row].sum() + hidden * unsaid[row] @ tastes[key] + noise * rng.standard_normal()
                came.append((key, row, float(value)))
                rewards.append(
                    {
                        "decision": choice["decision"],
                        "arm": arm["id"],
                        "value": float(value),
                        **(signal or {}),
                    }
                )
        await api.reward(*rewards)
    keys, arms, values = map(np.array, zip(*came, strict=True))
    return Rewards(keys, arms, values, KEYS)


async def judged(api: Api, name: str, **body: Any) -> Json:
    path = f"/v1/bandits/{name}/embeddings"
    job = (await api.ok("POST", path, {"catalogue": f"{name}-2", **body}, 202))["id"]
    return await ended(api, name, job)


async def ended(api: Api, name: str, job: str) -> Json:
    async def found() -> Json | None:
        answer: Json = await api.ok("GET", f"/v1/bandits/{name}/embeddings/{job}")
        return answer if answer["state"] in ("done", "failed") else None

    return await wait_until(found, what="the log is judged")


async def test_what_the_catalogue_has_not_is_found_in_the_log_and_moved_to(shared: Api):
    rewards, table = await played(shared, "gains", hidden=2.0)
    found = await judged(shared, "gains", dim=2)
    assert (found["state"], found["error"]) == ("done", None)
    result = found["result"]
    assert (result["taken"], result["catalogue"], result["keys"]) == (True, "gains-2", KEYS)
    assert result["rewards"] == KEYS * ROUNDS * K
    assert result["before"] - result["after"] > result["error"] > 0
    assert "moved to gains-2" in result["finding"]
    assert (await shared.ok("GET", "/v1/bandits/gains"))["catalogue"] == "gains-2"
    made = await shared.ok("GET", "/v1/catalogues/gains-2")
    assert (made["dim"], made["follows"]) == (4, "gains-films")
    assert made["behaviour"]["held_out"] == {"before": result["before"], "after": result["after"]}
    arms = await shared.listed("/v1/catalogues/gains-2/arms")
    features = np.zeros((ARMS, 4))
    for arm in arms:
        features[int(arm["id"][1:])] = arm["features"]
    np.testing.assert_allclose(features[:, :2], table, rtol=1e-6)
    # The coordinates that were judged, of all rewards; their signs are those of singular vectors.
    expected = coordinates(rewards, table, 2, np.random.default_rng(0))
    np.testing.assert_allclose(features[:, 2:] @ features[:, 2:].T, expected @ expected.T, atol=1e-3)
    await shared.put_arms("gains-films", {"fresh": [1.0, 2.0]})

    async def came() -> bool:
        answer = await shared.call("GET", "/v1/catalogues/gains-2/arms/fresh")
        return answer.status_code == 200 and answer.json()["features"] == [1.0, 2.0, 0.0, 0.0]

    await wait_until(came, what="a new arm has the features of its table, and no coordinates")
    again = await shared.call("POST", "/v1/bandits/gains/embeddings", {"catalogue": "gains-3"})
    assert (again.status_code, again.json()["code"]) == (422, "invalid")
    assert "gains-2 follows gains-films" in again.json()["detail"]


async def test_after_a_move_only_what_came_since_is_judged(shared: Api):
    """Rewards from before were given to other features, which nobody knows here."""
    await played(shared, "moved", hidden=2.0)
    table = np.random.default_rng(8).standard_normal((ARMS, 2))
    await shared.catalogue("moved-other", {f"a{arm}": table[arm] for arm in range(ARMS)})
    await shared.ok("POST", "/v1/bandits/moved/move", {"catalogue": "moved-other", "carry": "none"})
    await play(shared, "moved", table, 2.0, rounds=3)
    found = await judged(shared, "moved", dim=2)
    assert found["state"] == "done", found
    assert found["result"]["rewards"] == KEYS * 3 * K


@pytest.mark.rest
async def test_one_signal_is_judged_or_their_weighted_sum(shared: Api):
    """All rewards are likes: in clicks, and in the sum where likes count nothing, there is nothing."""
    signals = {"like": {"weight": 0.0}, "click": {"weight": 1.0}}
    await played(shared, "signals", hidden=2.0, signal={"signal": "like"}, signals=signals)
    for asked, error in (({}, "a reward other than 0"), ({"signal": "click"}, "a reward other than 0")):
        found = await judged(shared, "signals", dim=2, **asked)
        assert (found["state"], error in found["error"]) == ("failed", True)
    found = await judged(shared, "signals", dim=2, signal="like")
    assert found["result"]["taken"] is True
    assert (await shared.ok("GET", "/v1/bandits/signals"))["catalogue"] == "signals-2"


@pytest.mark.rest
async def test_a_bandit_with_a_context_is_judged_in_it(shared: Api):
    options: Json = {"context": {"dim": 2}, "interactions": 1}
    await played(shared, "told", hidden=2.0, told=[1.0, -0.5], **options)
    found = await judged(shared, "told", dim=2)
    assert found["result"]["taken"] is True, found
    moved = await shared.ok("GET", "/v1/bandits/told")
    assert (moved["catalogue"], moved["context"]) == ("told-2", {"dim": 2})


@pytest.mark.rest
async def test_where_nothing_is_gained_nothing_is_moved(shared: Api):
    await played(shared, "noise", hidden=0.0, noise=3.0)
    found = await judged(shared, "noise")
    assert found["result"]["taken"] is False
    assert found["result"]["catalogue"] is None
    assert found["result"]["finding"].startswith("nothing was moved: ")
    assert (await shared.ok("GET", "/v1/bandits/noise"))["catalogue"] == "noise-films"
    await shared.refused("GET", "/v1/catalogues/noise-2", status=404, code="not_found")


@pytest.mark.rest
async def test_a_repeated_judgement_says_what_it_found_and_goes_on(shared: Api):
    await played(shared, "weekly", hidden=0.0, noise=3.0)
    path = "/v1/bandits/weekly/embeddings"
    asked = {"catalogue": "weekly-2", "every": "7d"}
    job = (await shared.ok("POST", path, asked, 202))["id"]

    async def found() -> Json | None:
        answer: Json = await shared.ok("GET", f"{path}/{job}")
        return answer if answer["result"] else None

    answer = await wait_until(found, what="the first judgement")
    assert (answer["state"], answer["result"]["taken"]) == ("running", False)
    await shared.ok("DELETE", f"{path}/{job}", status=204)
    await shared.refused("GET", f"{path}/{job}", status=404, code="not_found")


@pytest.mark.rest
async def test_a_job_whose_process_died_is_begun_again_and_one_that_is_deleted_is_not(shared: Api):
    await played(shared, "again", hidden=2.0)
    path, service = "/v1/bandits/again/embeddings", shared.app.service
    job = (await shared.ok("POST", path, {"catalogue": "again-2", "dim": 2}, 202))["id"]
    await service.jobs.stop()  # as a process that ends
    assert (await shared.ok("GET", f"{path}/{job}"))["state"] in ("waiting", "running", "done")
    await shared.store.zadd(redis_keys.JOBS[3], {f"{EVERYONE}/{job}": 1})
    found = await ended(shared, "again", job)
    assert found["result"]["taken"] is True
    await shared.ok("DELETE", f"{path}/{job}", status=204)
    await shared.refused("GET", f"{path}/{job}", status=404, code="not_found")
    await shared.refused("DELETE", f"{path}/{job}", status=404, code="not_found")


@pytest.mark.rest
async def test_a_bandit_that_is_moved_while_its_log_is_judged_stays_there_and_nothing_is_made(shared: Api):
    """Judging takes a process that has to start first, a move without learners one call."""
    await played(shared, "leaves", hidden=2.0)
    await shared.catalogue("elsewhere", {f"a{arm}": [float(arm), 1.0] for arm in range(ARMS)})
    path = "/v1/bandits/leaves/embeddings"
    job = (await shared.ok("POST", path, {"catalogue": "leaves-2", "dim": 2}, 202))["id"]
    await shared.ok("POST", "/v1/bandits/leaves/move", {"catalogue": "elsewhere", "carry": "none"})
    found = await ended(shared, "leaves", job)
    assert found["state"] == "failed"
    await shared.refused("GET", "/v1/catalogues/leaves-2", status=404, code="not_found")
    assert (await shared.ok("GET", "/v1/bandits/leaves"))["catalogue"] == "elsewhere"
