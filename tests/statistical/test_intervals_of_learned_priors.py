"""x.theta +- 1.96 width holds for new keys, over all arms, with a prior from 200 keys of the same model.

By the model the coverage of the 40 arms of a new key is .95 on the average; keys differ by about .12, as arms
of one key go together. So the mean over 60 keys is below .9 with probability 1e-3. There are three of them:
the chance of a false alarm is at most 3e-3, and the draws are seeded. Intervals of half that width hold for
about .67, and each test sees that it would find them out.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import numpy as np
import pytest

from api_client import Api, running

pytestmark = [pytest.mark.anyio, pytest.mark.rest]

D, ARMS, NOISE = 6, 40, 0.5
KEYS, NEW = 200, 60
REWARDS = (5, 20, 100)


def factor() -> np.ndarray:
    """Of the covariance of keys: they differ much in some directions, little in others. Shape: (D, D)."""
    rng = np.random.default_rng(11)
    return np.linalg.qr(rng.normal(size=(D, D)))[0] * np.array([1.5, 1.0, 0.5, 0.3, 0.2, 0.1])


FEATURES = np.random.default_rng(12).normal(size=(ARMS, D)) / np.sqrt(D)
MEAN = np.random.default_rng(13).normal(size=D)


@pytest.fixture(scope="module")
async def api(store_url: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Api]:
    async with running(store_url, tmp_path_factory.mktemp("intervals")) as api:
        await api.catalogue("c", {f"a{place}": row.tolist() for place, row in enumerate(FEATURES)})
        # Without arm effects: there are none here, and when they are fitted is up to the background.
        body = {"catalogue": "c", "policy": "sub_ts", "scope": "per_key", "arm_effects": "off"}
        await api.ok("PUT", "/v1/bandits/b", body, 201)
        rng = np.random.default_rng(14)
        for start in range(0, KEYS, 50):
            items = [
                item
                for key in range(start, start + 50)
                for item in rewarded(rng, f"u{key}", MEAN + factor() @ rng.normal(size=D), 20)
            ]
            await api.observe("b", *items)
        assert (await api.ok("POST", "/v1/bandits/b/prior/refresh"))["keys"] == KEYS
        yield api


def rewarded(rng: np.random.Generator, key: str, theta: np.ndarray, count: int) -> list[dict[str, object]]:
    arms = rng.integers(ARMS, size=count)
    values = FEATURES[arms] @ theta + NOISE * rng.normal(size=count)
    return [
        {"id": f"{key}-{place}", "key": key, "arm": f"a{arm}", "value": float(value)}
        for place, (arm, value) in enumerate(zip(arms, values, strict=True))
    ]


@pytest.mark.parametrize("rewards", REWARDS)
async def test_intervals_of_new_keys_hold_as_often_as_they_say(api: Api, rewards: int):
    rng, held, half = np.random.default_rng(rewards), list[float](), list[float]()
    thetas = {f"new-{rewards}-{number}": MEAN + factor() @ rng.normal(size=D) for number in range(NEW)}
    for name, theta in thetas.items():
        await api.observe("b", *rewarded(rng, name, theta, rewards))
    for name, theta in thetas.items():
        run = await api.choose("b", key=name, k=ARMS, dry_run=True)
        rows = [int(arm["id"][1:]) for arm in run["arms"]]
        errors = np.abs([arm["estimate"] for arm in run["arms"]] - FEATURES[rows] @ theta)
        widths = np.array([arm["width"] for arm in run["arms"]])
        held.append(float((errors <= 1.96 * widths).mean()))
        half.append(float((errors <= 0.98 * widths).mean()))
    assert 0.9 <= np.mean(held) <= 0.995, np.mean(held)
    assert np.mean(half) < 0.9, "the check tells a width that is half of it"
