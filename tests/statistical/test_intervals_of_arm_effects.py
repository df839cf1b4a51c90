"""estimate +- 1.96 width holds for new keys, over all arms, also where arms have effects beyond features.

By the model the coverage of the 300 arms of a new key is .95 on the average; keys differ by about .05, and
the effects of arms, which all keys share, move it by about .02. So the mean over 20 keys is below .9 with
probability 1e-2 at most; the draws are seeded. Without the uncertainty of the effects intervals hold for .54,
and the test sees that it would find that out.
"""

from pathlib import Path

import numpy as np
import pytest

from api_client import running

pytestmark = [pytest.mark.anyio, pytest.mark.rest]

D, ARMS, NOISE, SPREAD = 4, 300, 0.3, 0.7
KEYS, NEW, REWARDS, REWARDS_OF_NEW = 200, 20, 6, 60


async def test_intervals_of_arms_with_effects_hold_as_often_as_they_say(store_url: str, tmp_path: Path):
    rng = np.random.default_rng(21)
    features, effects = rng.normal(size=(ARMS, D)) / np.sqrt(D), SPREAD * rng.normal(size=ARMS)

    def rewarded(key: str, theta: np.ndarray, count: int = REWARDS) -> list[dict[str, object]]:
        arms = rng.integers(ARMS, size=count)
        values = features[arms] @ theta + effects[arms] + NOISE * rng.normal(size=count)
        return [
            {"id": f"{key}-{place}", "key": key, "arm": f"a{arm}", "value": float(value)}
            for place, (arm, value) in enumerate(zip(arms, values, strict=True))
        ]

    async with running(store_url, tmp_path) as api:
        await api.catalogue("c", {f"a{place}": row.tolist() for place, row in enumerate(features)})
        body = {"catalogue": "c", "policy": "sub_ts", "scope": "per_key", "intercept": False}
        await api.ok("PUT", "/v1/bandits/b", {**body, "arm_effects": "auto"}, 201)
        for start in range(0, KEYS, 50):
            items = [
                item
                for key in range(start, start + 50)
                for item in rewarded(f"u{key}", 1.0 + rng.normal(size=D))
            ]
            await api.observe("b", *items)
            await api.ok("POST", "/v1/bandits/b/prior/refresh")
        held, without = list[float](), list[float]()
        for number in range(NEW):
            theta = 1.0 + rng.normal(size=D)
            await api.observe("b", *rewarded(f"new{number}", theta, REWARDS_OF_NEW))
            run = await api.choose("b", key=f"new{number}", k=ARMS, dry_run=True)
            listed = (await api.ok("GET", "/v1/bandits/b/arm-effects", params={"limit": 1_000}))["items"]
            deviations = {item["arm"]: item["sd"] for item in listed}
            rows = [int(arm["id"][1:]) for arm in run["arms"]]
            estimates, widths = np.array([(arm["estimate"], arm["width"]) for arm in run["arms"]]).T
            errors = np.abs(estimates - features[rows] @ theta - effects[rows])
            of_effects = np.array([deviations.get(arm["id"], SPREAD) for arm in run["arms"]])
            held.append(float((errors <= 1.96 * widths).mean()))
            of_features = np.sqrt(np.maximum(widths**2 - of_effects**2, 0.0))
            without.append(float((errors <= 1.96 * of_features).mean()))
    assert 0.9 <= np.mean(held) <= 0.995, np.mean(held)
    assert np.mean(without) < 0.9, "the check tells widths without the uncertainty of effects"
