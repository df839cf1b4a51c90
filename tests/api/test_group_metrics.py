"""Metrics of policy and holdout: decisions that are logged, and their rewards, each counted once."""

from __future__ import annotations

import pytest

from api_client import Api

pytestmark = [pytest.mark.anyio, pytest.mark.rest]


async def counts(api: Api) -> dict[str, float]:
    """The counters of groups, by their names and labels."""
    lines = (await api.call("GET", "/metrics")).text.splitlines()
    found = (line.rsplit(" ", 1) for line in lines if line.startswith("shortlist_group") and "_total" in line)
    return {name.removeprefix("shortlist_group_"): float(value) for name, value in found}


async def test_decisions_and_rewards_are_counted_by_group(api: Api):
    await api.catalogue("c", {f"a{i}": [1.0, float(i)] for i in range(4)})
    await api.bandit("b", "c", policy="sub_ts", log={}, holdout={"share": 0.5})
    choices = [await api.choose("b", event_id=f"e{number}") for number in range(40)]
    await api.choose("b", event_id="e0")  # the same decision again
    groups = [choice["group"] for choice in choices]
    rewards = [{"decision": choice["decision"], "value": 1.0} for choice in choices[:20]]
    for _ in range(2):  # the second time all are duplicates
        await api.call("POST", "/v1/rewards", {"rewards": rewards})
    assert await counts(api) == {
        'decisions_total{group="policy"}': groups.count("policy"),
        'decisions_total{group="holdout"}': groups.count("holdout"),
        'rewards_total{group="policy"}': groups[:20].count("policy"),
        'rewards_total{group="holdout"}': groups[:20].count("holdout"),
    }


async def test_what_has_no_group_or_no_row_is_not_counted(api: Api):
    await api.catalogue("c", {"a": [1.0, 0.0]})
    await api.bandit("plain", "c", policy="sub_ts", log={})
    await api.bandit("unlogged", "c", policy="sub_ts", holdout={"share": 0.5})
    for name in ("plain", "unlogged"):
        choice = await api.choose(name)
        await api.call("POST", "/v1/rewards", {"rewards": [{"decision": choice["decision"], "value": 1.0}]})
    assert not any((await counts(api)).values())
