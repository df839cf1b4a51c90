"""Filters and rules over HTTP: every policy and search, against brute force over the arms.

Frequencies are rejected beyond their 1e-7 quantile; decisions without a seed use the process's own generator,
so such a test fails by chance once in ten million runs.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from api_client import Api, Json
from app.filters.filter import parse

pytestmark = pytest.mark.anyio
DIM = 4
MAKERS = ["ada", "bob", "cyd"]
RNG = np.random.default_rng(8)
FEATURES = {f"a{i}": RNG.normal(size=DIM).tolist() for i in range(60)}
METADATA: dict[str, Json] = {
    arm: {
        "price": 10 + i % 7,
        "maker": MAKERS[i % 3],
        "stock": i % 4 != 0,
        "in": {"country": ["de", "at"][: i % 3]},
    }
    for i, arm in enumerate(FEATURES)
}
TAGS = {arm: ["new"] if i % 5 == 0 else [] for i, arm in enumerate(FEATURES)}
FILTERS: Sequence[Json] = [
    {},
    {"stock": True},
    {"price": {"$lte": 12}, "maker": {"$ne": "bob"}},
    {"$or": [{"in.country": "at"}, {"tags": "new"}]},
    {"price": {"$not": {"$gt": 10}}, "missing": {"$exists": False}},
]
TEACHERS = [f"a{i}" for i in range(0, 60, 3)]
THETA = np.array([0.5, -1.0, 0.3, 0.8])


def body(features: Mapping[str, Sequence[float]] = FEATURES) -> Json:
    arms = [
        {"id": arm, "features": list(row), "tags": TAGS[arm], "metadata": METADATA[arm]}
        for arm, row in features.items()
    ]
    return {"arms": arms}


async def build(api: Api, name: str, **rest: Any) -> np.ndarray:
    """A catalogue and a bandit that has learned; returns its estimate."""
    await api.ok("PUT", f"/v1/catalogues/{name}", {"dim": DIM}, 201)
    await api.ok("PUT", f"/v1/catalogues/{name}/arms", body())
    await api.bandit(name, name, **rest)
    history = [
        {"id": f"o{i}", "arm": arm, "value": float(np.dot(FEATURES[arm], THETA))}
        for i, arm in enumerate(TEACHERS)
    ]
    await api.observe(name, *history)
    return np.array((await api.learner(name))["theta"])


def let_in(document: Json) -> list[str]:
    wanted = parse(document)
    return [arm for arm in FEATURES if wanted.matches(TAGS[arm], METADATA[arm])]


def scores(theta: np.ndarray) -> dict[str, float]:
    return {arm: float(np.dot(row, theta)) for arm, row in FEATURES.items()}


def greedy(order: Sequence[str], k: int, limits: Mapping[str, int], taken: Sequence[str] = ()) -> list[str]:
    """The first ``k`` of ``order`` that leave at most so many of a maker or a price."""
    counts = Counter((field, METADATA[arm][field]) for arm in taken for field in limits)
    chosen: list[str] = []
    for arm in order:
        own = [(field, METADATA[arm][field]) for field in limits]
        if len(chosen) < k and all(counts[value] < limits[value[0]] for value in own):
            chosen.append(arm)
            counts.update(own)
    return chosen


def ids(choice: Json) -> list[str]:
    return [arm["id"] for arm in choice["arms"]]


async def test_no_arm_is_chosen_that_is_not_let_in(shared: Api):
    """`tests/policies/test_each_policy.py` says so of every policy."""
    name = "all"
    await build(shared, name, policy="softmax")
    for document in FILTERS:
        wanted = let_in(document)
        exclude = wanted[:1]
        for k in (1, 3, 60):
            choice = await shared.choose(name, k=k, filter=document, exclude=exclude)
            assert set(ids(choice)) <= set(wanted[1:])
            assert len(set(ids(choice))) == len(ids(choice)) == min(k, len(wanted) - 1)
            assert choice["eligible"] == len(wanted)
            assert choice["exact"] is True
            assert not any("pinned" in arm for arm in choice["arms"])
    assert "eligible" not in await shared.choose(name)
    await shared.refused(
        "POST", f"/v1/bandits/{name}/choose", {"filter": {"maker": "nobody"}}, status=409, code="no_arms"
    )


@pytest.mark.parametrize("policy", ["sub_ts", "linear_ts"])
async def test_the_best_of_the_eligible_arms_are_chosen_within_the_rules(shared: Api, policy: str):
    name = f"best-{policy}"
    value = scores(await build(shared, name, policy=policy, exploration=0))
    for document, k in itertools.product(FILTERS, (1, 4, 60)):
        order = sorted(let_in(document), key=lambda arm: -value[arm])
        choice = await shared.choose(name, k=k, filter=document)
        assert ids(choice) == order[:k]
        for limits in ({"maker": 1}, {"maker": 2, "price": 1}, {"price": 3}):
            at_most = [{"field": field, "count": count} for field, count in limits.items()]
            choice = await shared.choose(name, k=k, filter=document, rules={"at_most": at_most})
            assert ids(choice) == greedy(order, k, limits)
    pin = [{"arm": "a4", "place": 2}, {"arm": "a0", "place": 5}]  # a0 is not in stock
    order = [arm for arm in sorted(let_in({"stock": True}), key=lambda arm: -value[arm]) if arm != "a4"]
    rules = {"pin": pin, "at_most": [{"field": "maker", "count": 2}]}
    choice = await shared.choose(name, k=6, filter={"stock": True}, rules=rules)
    expected = greedy(order, 4, {"maker": 2}, taken=["a4", "a0"])
    expected.insert(1, "a4")
    expected.insert(4, "a0")
    assert ids(choice) == expected
    assert [arm["id"] for arm in choice["arms"] if arm.get("pinned")] == ["a4", "a0"]
    again = await shared.choose(name, k=6, filter={"stock": True}, rules={**rules, "pin": pin[::-1]})
    assert ids(again) == expected
    assert [arm["score"] for arm in choice["arms"]] == pytest.approx([value[arm] for arm in expected])
