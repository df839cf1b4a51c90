"""One key whose rewards are far larger than those of others: what the others learn, then and afterwards."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from api_client import Api, running

pytestmark = [pytest.mark.anyio, pytest.mark.rest]

ARMS, D, KEYS, ROUNDS = 60, 4, 100, 8
REFRESH = "/v1/bandits/b/prior/refresh"
RNG = np.random.default_rng(5)
FEATURES, EFFECTS = RNG.normal(size=(ARMS, D)) / 2.0, 0.4 * RNG.normal(size=ARMS)
TASTES = 0.7 * RNG.normal(size=(KEYS, D))


async def play(api: Api, rounds: range) -> None:
    """Choices of all keys, each rewarded with a deviation of .5."""
    for number in rounds:
        rewards, rng = [], np.random.default_rng(number)
        for key in range(KEYS):
            choice = await api.choose("b", key=f"u{key}", seed=number)
            arm = int(choice["arms"][0]["id"][1:])
            value = FEATURES[arm] @ TASTES[key] + EFFECTS[arm] + 0.5 * rng.normal()
            rewards.append({"decision": choice["decision"], "value": value})
        await api.reward(*rewards)


async def fitted(api: Api) -> tuple[float, float, float]:
    """The noise of keys, the largest effect, and the noise of effects, of all that was learned so far."""
    await api.ok("POST", REFRESH, {})
    effects = await api.ok("GET", "/v1/bandits/b/arm-effects", params={"limit": 100})
    largest = max((abs(item["effect"]) for item in effects["items"]), default=0.0)
    return (await api.ok("GET", "/v1/bandits/b/prior"))["noise"], largest, effects["noise"]


async def attacked(api: Api, size: float) -> tuple[float, float, float]:
    """By what factor the noise has grown once the key is forgotten, the largest effect before that, and by
    what factor the noise of effects has grown then.
    """
    await api.catalogue("c", {f"a{arm}": row.tolist() for arm, row in enumerate(FEATURES)})
    body = {"catalogue": "c", "policy": "sub_ts", "scope": "per_key"}
    await api.ok("PUT", "/v1/bandits/b", body, 201)
    await play(api, range(1))
    await fitted(api)
    decisions = [await api.choose("b", key="loud", seed=seed) for seed in range(300)]
    await play(api, range(1, ROUNDS))
    before, _, quiet = await fitted(api)
    signs = [1.0 if int(each["arms"][0]["id"][1:]) % 2 else -1.0 for each in decisions]
    await api.reward(
        *({"decision": each["decision"], "value": sign * size}
          for each, sign in zip(decisions, signs, strict=True))
    )  # fmt: skip
    _, largest, loud = await fitted(api)
    await play(api, range(ROUNDS, 2 * ROUNDS))
    await api.ok("DELETE", "/v1/bandits/b/learners/loud", status=204)
    after, *_ = await fitted(api)
    return after / before, largest, loud / quiet


@pytest.mark.parametrize("size", [1e2, 1e4, 1e9])
async def test_the_others_learn_as_if_it_had_never_been_there(store_url: str, tmp_path: Path, size: float):
    """Alone the noise falls to .97 (.03) of before: 1.1 is four standard errors, 1 game in 30,000."""
    async with running(store_url, tmp_path) as api:
        grown, largest, louder = await attacked(api, size)
    assert grown < 1.1
    assert largest < 2.0  # the largest true effect is .94
    assert 0.8 < louder < 1.25, "what does not count leaves no digit in the sums that do"
