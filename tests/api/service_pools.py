"""What is drawn for the whole service: pools of arms, bandits, patches and requests, made from a seed."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from service_model import CONTEXT, DEVICES, NO_RULE, Arm, Json

_rng = random.Random(7)
_choice = _rng.choice

IDS = [f"a{number}" for number in range(8)]
_FEATURES = {name: [[_rng.randint(-4, 4) / 4 for _ in range(3)] for _ in range(2)] for name in IDS}
KEYS = ["ann", "bob"]
VALUES = [number / 2 for number in range(-4, 5)]
FILTERS: list[Json] = [
    {},
    {"stock": True},
    {"price": {"$lte": 2}},
    {"maker": {"$ne": "ada"}},
    {"$or": [{"tags": "new"}, {"price": {"$gt": 2}}]},
    {"price": {"$exists": False}},
]
POLICIES: list[Json] = [
    {"policy": "linear_ts", "exploration": 0.0},
    {"policy": "sub_ts", "exploration": 0.0},
    {"policy": "sub_ts", "exploration": 1.0},
    {"policy": "softmax", "temperature": 0.5},
    {"policy": "linear_elim", "exploration": 0.5},
]
RULES: list[Json] = [
    NO_RULE,
    {**NO_RULE, "min": -1.0, "max": 1.0},
    {**NO_RULE, "aggregate": "sum"},
    {**NO_RULE, "aggregate": "last"},
    {**NO_RULE, "wait_s": 3_600.0, "default": 0.25, "aggregate": "last"},
    {**NO_RULE, "wait_s": 3_600.0, "default": -1.0},
    {**NO_RULE, "wait_s": 3_600.0, "default": 0.5, "aggregate": "sum", "max": 1.0},
]
CHANGES: list[Json] = [
    *POLICIES,
    *({"ridge": ridge} for ridge in (0.5, 1.0, 4.0)),
    *({"filter": document} for document in (None, *FILTERS)),
    *({"reward": rule} for rule in RULES),
    {"scope": "global"},
    {"scope": "per_key"},
]


def is_possible(bandit: Json) -> bool:
    """Elimination takes no context."""
    return bandit["policy"] != "linear_elim" or "context" not in bandit


def _some(parts: dict[str, Any], share: float = 0.5) -> Json:
    """Each part with a probability."""
    return {name: part for name, part in parts.items() if _rng.random() < share}


def _arm(dim: int) -> Arm:
    metadata = {
        "stock": _choice([True, False]),
        "price": _rng.randint(1, 4),
        "maker": _choice(["ada", "bob"]),
    }
    name = _choice(IDS)
    features = _choice(_FEATURES[name])[:dim]
    return Arm(name, features, _choice([[], ["new"], ["old", "new"]]), _some(metadata, 0.7))


LOG: Json = {"keep_s": 86_400.0, "share": 1.0}
REPEATS: list[Json] = [
    {"most": most, "within_s": 86_400.0, "counts": counts, "by": by}
    for most, counts, by in (
        (1, "shown", "arm"),
        (2, "shown", "arm"),
        (2, "shown", "maker"),
        (1, "rewarded", "arm"),
    )
]


def _bandit() -> Json:
    more = {"context": CONTEXT, "filter": _choice(FILTERS), "log": LOG, "repeats": _choice(REPEATS)}
    return {
        "scope": _choice(["global", "per_key"]),
        "ridge": 1.0,
        "exploration": 1.0,
        "intercept": False,
        "reward": _choice(RULES),
        **_choice(POLICIES),
        **_some(more, 0.4),
    }


def _situation() -> Json:
    return _some({"device": _choice([*DEVICES, "radio", None]), "age": _choice([1, 3, -2])}, 0.7)


Request = tuple[Json, str, Json]  # a body; the key and the context, for bandits that have them
Observed = tuple[str, str, float, str, Json]  # id, arm, value, key, context
# Value, place of the arm among those of the decision and some more, id of the reward, when it was so.
Told = tuple[float, int, str | None, int]


def _request() -> Request:
    k = _choice([1, 1, 2, 3, 8])
    rules = {
        "pin": [
            {"arm": arm, "place": place}
            for arm, place in zip(_rng.sample(IDS, 2), _rng.sample(range(1, k + 1), min(k, 2)), strict=False)
        ],
        "at_most": [{"field": "maker", "count": _rng.randint(1, 2)}],
    }
    parts = {
        "exclude": [_choice(IDS) for _ in range(_rng.randint(0, 2))],
        "filter": _choice(FILTERS),
        "activate": _choice([True, False]),
        "rules": _some(rules),
    }
    return {"k": k, **_some(parts, 0.4)}, _choice(KEYS), _situation()


def _observation() -> Observed:
    return _choice("xyz"), _choice(IDS), _choice(VALUES), _choice(KEYS), _situation()


# Of every shape, and overlapping: values, orders, sets, negations, alternatives, nested ones.
QUOTA_FILTERS: list[Json] = [
    {"maker": "ada"},
    {"maker": "bob"},
    {"maker": {"$in": ["bob"]}},
    {"price": 2},
    {"price": {"$eq": 3}},
    {"stock": True},
    {"tags": "new"},
    {"tags": {"$in": ["old"]}},
    {"$and": [{"price": 1}]},
]
_QUOTAS = [
    (f"q{number % 13}", document, most)
    for number, document in enumerate(4 * QUOTA_FILTERS)
    for most in (0, 1, 4, 9, 20, 20)
]
_TOLD: list[Told] = [
    (_choice(VALUES), _rng.randint(0, 4), _choice([None, "r0", "r1"]), _rng.randint(1, 4)) for _ in range(60)
]
POOLS: dict[str, Sequence[Any]] = {
    "arms": [_arm(2) for _ in range(100)],
    "wider_arms": [_arm(3) for _ in range(4)],
    "bandits": [_bandit() for _ in range(60)],
    "patches": CHANGES,
    "requests": [_request() for _ in range(200)],
    "events": [None, None, "e0", "e1"],
    "observations": [_observation() for _ in range(100)],
    "some_ids": [_rng.sample(IDS, size) for size in (1, 1, 2) for _ in range(8)],
    "told": _TOLD,
    "quotas": _QUOTAS,
}
