"""Choices at their limits: every policy with every kind of rule, filter and context, against one catalogue.

The longest arms of the catalogue were deleted after its index was built. What is combined is in tables, and
the values of each are drawn from a seed. A new policy is there by itself.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from app.api import request_limits as limits
from app.filters.filter import MAX_CONDITIONS, MAX_MEMBERS
from app.policies.registry import POLICIES
from app.records.encoding import MAX_TEXTS_CHARS
from load_tests.heavy_requests import TEXTS, Kind, Request, World, as_json, post
from shortlist_client.bodies import QuotaBody

DIM = 16
TOGETHER = 10_000
LONGEST = 10  # one of so many arms
QUOTAS = 60  # an arm counts for at most 64
OFTEN = 2  # how many arms share a maker: with a limit of one, half of the arms never find a place

Json = dict[str, Any]
Draw = Callable[[random.Random, int], Json]


def arms(count: int) -> Iterator[Json]:
    """Arms with everything that filters and rules can ask for."""
    rng = random.Random(count)
    rows = np.random.default_rng(count).normal(size=(count, DIM)).round(4).tolist()
    for number, row in enumerate(rows):
        metadata = {
            "maker": f"m{number // OFTEN}",
            "price": rng.random(),
            "genre": f"g{rng.randrange(20)}",
            "stock": rng.random() < 0.5,
            **{f"f{place}": rng.randrange(1 + count // 10) for place in range(limits.MAX_AT_MOST)},
        }
        yield {"id": f"a{number}", "features": row, "metadata": metadata, "tags": [f"t{number % 64}"]}


def _conditions(rng: random.Random, count: int) -> Json:
    """As many conditions as may be, nearly all arms pass."""
    some = [{"price": {"$ne": rng.random()}} for _ in range(MAX_CONDITIONS)]
    return {"filter": {"$and": some}}


def _members(rng: random.Random, count: int) -> Json:
    names = [f"m{rng.randrange(count // OFTEN)}" for _ in range(MAX_MEMBERS)]
    return {"filter": {"maker": {"$nin": names}}}


def _pins(rng: random.Random, count: int) -> Json:
    """All places but ten."""
    some = rng.sample(range(count), limits.MAX_K - 10)
    return {"rules": {"pin": [{"arm": f"a{arm}", "place": place} for place, arm in enumerate(some, 1)]}}


def _at_most(*fields: str) -> Draw:
    def draw(rng: random.Random, count: int) -> Json:
        return {"rules": {"at_most": [{"field": field, "count": 1} for field in fields]}}

    return draw


def _excluded(rng: random.Random, count: int) -> Json:
    most = min(limits.MAX_EXCLUDE, count // 2)
    return {"exclude": [f"a{arm}" for arm in rng.sample(range(count), most)]}


def _nothing(rng: random.Random, count: int) -> Json:
    return {}


FIELDS = [f"f{place}" for place in range(limits.MAX_AT_MOST)]
RULES: Mapping[str, Draw] = {
    "no rule": _nothing,
    "one limit of many values": _at_most("maker"),
    "ten limits": _at_most(*FIELDS),
    "limits of few values": _at_most("genre", "stock", "tags"),
    "990 pins": _pins,
}
FILTERS: Mapping[str, Draw] = {
    "no filter": _nothing,
    "half": lambda rng, count: {"filter": {"price": {"$lt": 0.5}}},  # noqa: ARG005
    "few": lambda rng, count: {"filter": {"genre": "g1", "stock": True}},  # noqa: ARG005
    "100 conditions": _conditions,
    "1,000 members": _members,
    "excluded": _excluded,
}
# What a bandit has for a context, what a choice says, and how many directions interact.
CONTEXTS: Mapping[str, tuple[Json, Any] | None] = {
    "no context": None,
    "200 numbers": ({"context": {"dim": 200}, "interactions": 1}, [0.5] * 200),
    "texts": (
        {
            "context": {"fields": [{"name": name, "kind": "hash", "size": 3} for name in TEXTS]},
            "interactions": 1,
        },
        {name: "ab " * (MAX_TEXTS_CHARS // len(TEXTS) // 3) for name in TEXTS},
    ),
}
SCOPES: Mapping[str, Json] = {
    "global": {},
    "per_key": {"scope": "per_key"},
    "holdout": {"holdout": {"share": 0.999}, "log": {}},
    "logged": {"log": {}},
    "quotas": {"log": {}},
    "weights": {"signals": {name: {"weight": 1.0, "min": 0.0, "max": 1.0} for name in ("read", "bought")}},
}
INCLUDES: Sequence[Sequence[str]] = ([], ["metadata"], ["metadata.price", "metadata.genre"])


def quota(rng: random.Random, number: int, count: int) -> QuotaBody:
    """A quota of one value of a field, or of one arm.

    Those of few arms are used up soon, or hold their arms back. Those of most arms have plenty: else no arm
    would be eligible after some lists, and nothing else would be looked at.
    """
    of_few: Sequence[Json] = (
        {"filter": {"maker": f"m{rng.randrange(count // OFTEN)}"}},
        {"filter": {"genre": {"$in": [f"g{rng.randrange(20)}"]}}},
        {"filter": {"tags": {"$in": [f"t{rng.randrange(64)}"]}}},
        {"arm": f"a{rng.randrange(count)}"},
    )
    of_most: Sequence[Json] = ({"filter": {"stock": True}},)
    shape = [*of_few, *of_most][number % (len(of_few) + len(of_most))]
    most = rng.choice([5, 10**4, 10**9]) if shape in of_few else 10**12
    body: QuotaBody = {"most": most, "per_s": 86_400, "pace": rng.choice(["none", "even"])}
    return body | shape  # type: ignore[return-value]  # one of the shapes above


def drawn(count: int, *, seed: int) -> Sequence[Kind]:
    """Every policy, scope and context x every rule x every filter, against ``count`` arms."""
    return [
        _choice(bandit, rule, wanted, count, seed)
        for bandit, rule, wanted in itertools.product(_bandits(), RULES, FILTERS)
    ]


def drawn_few(count: int, *, seed: int) -> Sequence[Kind]:
    """Some of ``drawn``: every policy with every rule, and with what else is drawn."""
    rng, found = random.Random(seed), []
    for policy, rule in itertools.product(POLICIES, RULES):
        bandit = rng.choice([bandit for bandit in _bandits() if bandit[0] == policy])
        found.append(_choice(bandit, rule, rng.choice([*FILTERS]), count, seed))
    return found


def _bandits() -> Sequence[tuple[str, str, str]]:
    """Policy, scope and context of each."""
    return [
        (policy, scope, context)
        for policy, scope, context in itertools.product(POLICIES, SCOPES, CONTEXTS)
        if (CONTEXTS[context] is None or "context" in POLICIES[policy].options)
        and (scope != "weights" or POLICIES[policy].needs.max_signals is None)
    ]


def _choice(bandit: tuple[str, str, str], rule: str, wanted: str, count: int, seed: int) -> Kind:
    policy, scope, context = bandit
    rng = random.Random(f"{seed} {bandit} {rule} {wanted}")
    body: Json = {"k": limits.MAX_K, **RULES[rule](rng, count), **FILTERS[wanted](rng, count)}
    if (situation := CONTEXTS[context]) is not None:
        body["context"] = situation[1]
    body["include"] = rng.choice(INCLUDES)
    if scope == "weights":
        body["weights"] = {"read": rng.random(), "bought": rng.random()}

    def make(world: World) -> Request:
        name = world.once("-".join((*bandit, str(count))), lambda world: _bandit(world, bandit, count))
        key = {"key": world.new("u")} if scope == "per_key" else {}
        return post(f"/v1/bandits/{name}/choose", {**body, **key})

    return Kind(f"{count:,} arms, {policy}, {scope}, {context}: {rule}, {wanted}", make, slow=False)


def _bandit(world: World, bandit: tuple[str, str, str], count: int) -> str:
    policy, scope, context = bandit
    catalogue = world.once(f"drawn-{count}", lambda world: _catalogue(world, count))
    more = {} if CONTEXTS[context] is None else CONTEXTS[context][0]  # type: ignore[index]  # as the line says
    name = world.bandit(world.new("drawn"), catalogue, policy=policy, **SCOPES[scope], **more)
    if scope == "quotas":
        rng = random.Random(name)
        for number in range(QUOTAS):
            world.client.put_quota(name, f"q{number}", **quota(rng, number, count))
    world.client.choose(name, **_first(scope, context))
    return name


def _first(scope: str, context: str) -> Json:
    """The first choice of a bandit, which may make what later ones use."""
    found: Json = {"key": "first"} if scope == "per_key" else {}
    return found if CONTEXTS[context] is None else {**found, "context": CONTEXTS[context][1]}  # type: ignore[index]


def _catalogue(world: World, count: int) -> str:
    name = f"drawn-{count}"
    world.client.put_catalogue(name, dim=DIM)
    longest = [
        {**arm, "id": f"long{number}", "features": [3.0 * each for each in arm["features"]]}
        for number, arm in enumerate(arms(count // LONGEST))
    ]
    lines = map(as_json, [*longest, *arms(count)])
    while some := list(itertools.islice(lines, TOGETHER)):
        world.client.import_arms(name, iter([b"\n".join(some)]))
    world.settle()
    world.client.delete_arms(name, [arm["id"] for arm in longest])
    return name
