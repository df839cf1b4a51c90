"""The heaviest requests about what a bandit has done: its log, its report, evaluations and learners.

As in ``heavy_requests``; ``ALL_KINDS`` are those of both.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from app.api import request_limits as limits
from load_tests.heavy_requests import KINDS, MB, RAW, Request, World, kind, post

LONG_ROWS, REWARDED = 6_000, 20_000
MOVED_DIM = 1_400
LOGGED: Mapping[str, Any] = {"log": {}, "reward": {"min": 0, "max": 1}}


def logged(world: World) -> str:
    """A bandit with rows of 100 arms each, 20,000 rewarded rows of one, and two groups."""
    return world.once("logged", _logged)


def _logged(world: World) -> str:
    name = world.bandit(
        "logged", world.many, policy="softmax", temperature=1.0, holdout={"share": 0.2}, **LOGGED
    )
    world.tokens(name, LONG_ROWS, k=100)
    reward(world, world.tokens(name, REWARDED))
    return name


def keyed(world: World) -> str:
    """A bandit with a row and a reward for each of 3,000 keys."""
    return world.once("logged-keyed", _keyed)


def _keyed(world: World) -> str:
    name = world.bandit(
        "logged-keyed", world.many, policy="softmax", temperature=1.0, scope="per_key", **LOGGED
    )
    reward(world, [world.tokens(name, 1, key=f"u{number}")[0] for number in range(3_000)])
    return name


def reward(world: World, tokens: list[str]) -> None:
    """A reward for each, applied when this returns."""
    for first in range(0, len(tokens), limits.MAX_BATCH):
        some: list[Any] = [
            {"decision": token, "value": 0.5} for token in tokens[first : first + limits.MAX_BATCH]
        ]
        world.client.reward_batch(some, wait=True)


@kind("log: 1,000 rows of 100 arms")
def _(world: World) -> Request:
    return Request("GET", f"/v1/bandits/{logged(world)}/log?limit=1000")


@kind("log: exported as NDJSON")
def _(world: World) -> Request:
    return Request("GET", f"/v1/bandits/{logged(world)}/log/export")


@kind("log: exported as Parquet")
def _(world: World) -> Request:
    return Request("GET", f"/v1/bandits/{logged(world)}/log/export?format=parquet")


@kind("log: 1,000 arms a row, exported as Parquet")
def _(world: World) -> Request:
    return Request("GET", f"/v1/bandits/{world.once('long-rows', _long_rows)}/log/export?format=parquet")


@kind("log: contexts of 992 numbers, exported as Parquet")
def _(world: World) -> Request:
    return Request("GET", f"/v1/bandits/{world.once('wide', _wide)}/log/export?format=parquet")


def _wide(world: World) -> str:
    """A bandit with many rows of wide contexts."""
    name = world.bandit("wide", world.many, context={"dim": 992}, interactions=1, **LOGGED)
    world.tokens(name, 8_000, context=[0.123456789] * 992)
    return name


def _long_rows(world: World) -> str:
    name = world.bandit("long-rows", world.long_ids, policy="softmax", temperature=1.0, **LOGGED)
    world.tokens(name, 300, k=limits.MAX_K)
    return name


@kind("log: a decision of 100 arms explained")
def _(world: World) -> Request:
    (token,) = world.tokens(logged(world), 1, k=100)
    return post(f"/v1/bandits/{logged(world)}/log/explain", {"decision": token})


@kind("log: the map of a move of long features")
def _(world: World) -> Request:
    return Request("GET", f"/v1/bandits/{world.once('moved', _moved)}/log/terms")


def _moved(world: World) -> str:
    """A bandit that has been moved twice."""
    for name in ("moved-from", "moved-to"):
        world.catalogue(name, MOVED_DIM, 100)
    bandit = world.bandit("moved", "moved-from")
    for name in ("moved-to", "moved-from"):
        world.client.move_bandit(bandit, catalogue=name, carry="map")
        world.settle()
        while world.client.get_bandit(bandit).move is not None:
            time.sleep(0.1)
    return bandit


@kind("report: the shortest buckets")
def _(world: World) -> Request:
    return Request("GET", f"/v1/bandits/{logged(world)}/report?bucket_s=60")


@kind("evaluation: softmax")
def _(world: World) -> Request:
    return evaluation(logged(world), {"temperature": 0.3})


@kind("evaluation: igw")
def _(world: World) -> Request:
    return evaluation(logged(world), {"policy": "igw"})


@kind("evaluation: sub_ts")
def _(world: World) -> Request:
    return evaluation(logged(world), {"policy": "sub_ts"})


@kind("evaluation: softmax, 3,000 learners")
def _(world: World) -> Request:
    return evaluation(keyed(world), {"temperature": 0.3})


def evaluation(bandit: str, policy: Mapping[str, Any]) -> Request:
    """By all estimators."""
    return post(f"/v1/bandits/{bandit}/evaluations", {"policy": policy})


@kind("learners: 1,000 whole states")
def _(world: World) -> Request:
    return Request("GET", f"/v1/bandits/{keyed(world)}/learners?include=state&limit=1000")


@kind("learners: the largest state")
def _(world: World) -> Request:
    path = f"/v1/bandits/{world.large_global}/learners/_global"
    return Request("GET", path, fields=[f"accept: {RAW}"])


@kind("learners: the largest state is given")
def _(world: World) -> Request:
    state = world.client.get_learner_state(world.large_global)
    catalogue = world.client.get_bandit(world.large_global).catalogue
    target = world.bandit(world.new("taking"), catalogue)
    return Request("PUT", f"/v1/bandits/{target}/learners/_global", state, kind=RAW)


@kind("learners: 20 MB of a state that is none")
def _(world: World) -> Request:
    target = world.bandit(world.new("taking"), world.many)
    return Request("PUT", f"/v1/bandits/{target}/learners/_global", b"A" * 20 * MB, kind=RAW)


ALL_KINDS = tuple(KINDS)
