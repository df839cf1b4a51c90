"""Policy softmax: its temperature. What it draws: test_policy_contract.py, test_filters.py."""

from __future__ import annotations

import numpy as np
import pytest

from api_client import Api

pytestmark = [pytest.mark.anyio, pytest.mark.rest]


async def test_extreme_temperatures_and_nothing_to_choose_from(shared: Api):
    await shared.catalogue("far", {"low": [-1e6], "high": [1e6], "middle": [0.0]})
    await shared.bandit("cold", "far", policy="softmax", temperature=1e-9)
    await shared.bandit("hot", "far", policy="softmax", temperature=1e9)
    for name in ("cold", "hot"):
        await shared.observe(name, {"id": "o", "arm": "high", "value": 1e9})
    cold = (await shared.choose("cold", k=3))["arms"]
    assert [arm["id"] for arm in cold] == ["high", "middle", "low"]
    assert [arm["propensity"] for arm in cold] == [1.0, 1.0, 1.0]
    hot = {(await shared.choose("hot"))["arms"][0]["id"] for _ in range(60)}
    assert hot == {"low", "middle", "high"}
    everything = ["low", "middle", "high"]
    await shared.refused(
        "POST", "/v1/bandits/hot/choose", {"exclude": everything}, status=409, code="no_arms"
    )


async def test_a_large_catalogue_is_scanned_beside_the_loop(shared: Api):
    rng = np.random.default_rng(0)
    arms = {f"x{i}": row for i, row in enumerate(rng.standard_normal((4_000, 64)).round(3).tolist())}
    await shared.catalogue("large-softmax", arms)
    await shared.bandit("large-softmax", "large-softmax", policy="softmax")
    answer = await shared.choose("large-softmax", k=5, seed=3)
    assert len({arm["id"] for arm in answer["arms"]}) == 5
    # Without rewards theta^ is zero, so all arms are alike.
    assert answer["arms"][0]["propensity"] == pytest.approx(1 / 4_000)
    assert answer["arms"][4]["propensity"] == pytest.approx(1 / 3_996)
