"""The heaviest request of every route, legal and illegal: what ``load_tests.stalls`` sends.

A kind is a function of the ``World``, which makes what the request needs when it is first asked for. Bodies
keep to the limits of docs/limits.md, or break them on purpose: the name of a kind says which.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from app.api import request_limits as limits
from examples.service import Server
from shortlist_campaigns import campaign_limits
from shortlist_client.errors import ServiceError

MB = 1_000_000
CHUNK = 1 << 16
SMALL_DIM = 16
LARGE_DIMS = (4_096, 1_400, 700)  # the first that a bandit may have
LARGE_ARMS = 1_000
MANY_ARMS = 10_000
SETTLE_S = 120.0
RAW = "application/octet-stream"


@dataclass(frozen=True)
class Request:
    """``chunked``: without Content-Length, in chunks of so many bytes."""

    method: str
    path: str
    body: bytes = b""
    kind: str = "application/json"
    chunked: int = 0
    fields: Sequence[str] = ()

    def pieces(self) -> Iterator[bytes]:
        """The request as it goes over the wire."""
        head = [f"{self.method} {self.path} HTTP/1.1", "host: 127.0.0.1", f"content-type: {self.kind}"]
        head += self.fields
        head.append("transfer-encoding: chunked" if self.chunked else f"content-length: {len(self.body)}")
        yield "\r\n".join([*head, "", ""]).encode()
        if not self.chunked:
            if self.body:
                yield self.body
            return
        size, together = self.chunked, max(1, CHUNK // self.chunked)
        for start in range(0, len(self.body), size * together):
            part = self.body[start : start + size * together]
            yield b"".join(
                b"%x\r\n%b\r\n" % (len(part[i : i + size]), part[i : i + size])
                for i in range(0, len(part), size)
            )
        yield b"0\r\n\r\n"


class World:
    """What the requests are about: catalogues, bandits, campaigns, tokens. Made when first asked for."""

    def __init__(self, service: Server) -> None:
        self.client = service.connect()
        self.rng = np.random.default_rng(1)
        self._number = 0
        self.catalogue("probe", SMALL_DIM, 200)
        self.bandit("probe", "probe")
        self.observe("probe", 10)

    def close(self) -> None:
        self.client.close()

    def probe(self) -> dict[str, bytes]:
        """The two requests that must never wait."""
        body = b"{}"
        choose = b"POST /v1/bandits/probe/choose HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: %d\r\n\r\n%b"
        return {
            "healthz": b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n",
            "choose": choose % (len(body), body),
        }

    def settle(self) -> None:
        """Return when all rewards are applied and no index is being built."""
        deadline, quiet = time.monotonic() + SETTLE_S, 0
        while quiet < 3 and time.monotonic() < deadline:
            time.sleep(0.1)
            catalogues = self.client.list_catalogues(limit=1_000).items
            busy = any(one.index["state"] != "ready" for one in catalogues)
            busy = busy or self.client.status().backlog > 0
            quiet = 0 if busy else quiet + 1

    def new(self, word: str) -> str:
        self._number += 1
        return f"{word}-{self._number}"

    def catalogue(self, name: str, dim: int, arms: int, *, ids: Callable[[int], str] = "a{}".format) -> str:
        """A catalogue of Gaussian arms a0, a1, ..."""
        self.client.put_catalogue(name, dim=dim, index={"kind": "exact"})
        some = max(1, 1_000_000 // dim)
        for first in range(0, arms, some):
            rows = self.rng.normal(size=(min(some, arms - first), dim)).round(4)
            self.client.upsert_arms(name, rows, ids=[ids(first + i) for i in range(len(rows))])
        return name

    def bandit(self, name: str, catalogue: str, **settings: Any) -> str:
        self.client.put_bandit(name, **{"catalogue": catalogue, "policy": "sub_ts", **settings})
        return name

    def observe(self, bandit: str, count: int, **key: str) -> None:
        items: list[Any] = [
            {"id": self.new("o"), "arm": f"a{i % 100}", "value": float(i % 2), **key} for i in range(count)
        ]
        self.client.observe(bandit, items, wait=True)

    def large(self, name: str, **settings: Any) -> str:
        """A bandit of the largest dimension that the service allows."""
        for dim in LARGE_DIMS:
            try:
                return self.bandit(f"{name}-{dim}", self.large_catalogue(dim), **settings)
            except ServiceError:
                if dim == LARGE_DIMS[-1]:
                    raise
        raise AssertionError

    def large_catalogue(self, dim: int = LARGE_DIMS[0]) -> str:
        if dim not in self._large:
            self._large[dim] = self.catalogue(f"large-{dim}", dim, LARGE_ARMS)
        return self._large[dim]

    @cached_property
    def _large(self) -> dict[int, str]:
        return {}

    @cached_property
    def many(self) -> str:
        """A catalogue of 10,000 arms."""
        return self.catalogue("many", SMALL_DIM, MANY_ARMS)

    @cached_property
    def long_ids(self) -> str:
        """A catalogue of 2,000 arms whose ids are as long as may be."""
        return self.catalogue("long-ids", SMALL_DIM, 2_000, ids=lambda i: f"{i:0128d}")

    @cached_property
    def plain(self) -> str:
        return self.bandit("plain", self.many)

    @cached_property
    def keyed(self) -> str:
        return self.bandit("keyed", self.many, scope="per_key")

    @cached_property
    def waiting(self) -> str:
        return self.bandit("waiting", self.many, reward={"wait_s": 600})

    @cached_property
    def soft(self) -> str:
        return self.bandit("soft", self.many, policy="softmax", temperature=1.0)

    @cached_property
    def eliminating(self) -> str:
        name = self.bandit("eliminating", self.many, policy="linear_elim", scope="per_key")
        self.observe(name, 100, key="somebody")
        return name

    @cached_property
    def large_global(self) -> str:
        name = self.large("large-global")
        self.observe(name, 2)
        return name

    @cached_property
    def large_keyed(self) -> str:
        return self.large("large-keyed", scope="per_key")

    def once(self, name: str, make: Callable[[World], str]) -> str:
        """What ``make`` makes, made when it is first asked for."""
        if name not in self._made:
            self._made[name] = make(self)
        return self._made[name]

    @cached_property
    def _made(self) -> dict[str, str]:
        return {}

    def tokens(self, bandit: str, count: int, **request: Any) -> list[str]:
        found: list[str] = []
        while len(found) < count:
            asks: list[Any] = [request] * min(500, count - len(found))
            found += [
                choice.decision for choice in self.client.choose_batch(bandit, asks, once=False).results
            ]
        return found

    def slates(self, **parameters: Any) -> str:
        name = self.new("slates")
        self.client.create_slates(id=name, noise_range=1.0, **parameters)
        return name

    @cached_property
    def wide_slates(self) -> str:
        return self.slates(arms=[f"a{i}" for i in range(campaign_limits.MAX_SLATE_ARMS)], k=500)

    @cached_property
    def centers(self) -> str:
        name = self.new("centers")
        points = [f"{i:0128d}" for i in range(campaign_limits.MAX_CENTER_POINTS)]
        self.client.create_centers(id=name, points=points, k=10, noise_std=1.0)
        return name


class Kind(NamedTuple):
    """``slow``: it takes long to set up, or to answer."""

    name: str
    make: Callable[[World], Request]
    slow: bool


KINDS: list[Kind] = []

Maker = Callable[[World], Request]


def kind(name: str, *, slow: bool = False) -> Callable[[Maker], Maker]:
    def note(make: Maker) -> Maker:
        KINDS.append(Kind(name, make, slow))
        return make

    return note


def unknown_fields(count: int) -> bytes:
    return b",".join(b'"u%d":0' % i for i in range(count))


def as_json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def post(path: str, body: bytes | object, **more: Any) -> Request:
    return Request("POST", path, body if isinstance(body, bytes) else as_json(body), **more)


CHOOSE = "/v1/bandits/probe/choose"


@kind("choose: 4,500,000 unknown fields")
def _(world: World) -> Request:
    return post(CHOOSE, b"{%b}" % unknown_fields(4_500_000))


@kind("choose: 2 MB of unknown fields")
def _(world: World) -> Request:
    return post(CHOOSE, b"{%b}" % unknown_fields(195_000))


@kind("choose: 60 kB of unknown fields")
def _(world: World) -> Request:
    return post(CHOOSE, b"{%b}" % unknown_fields(6_500))


@kind("choose: a string of 60 MB")
def _(world: World) -> Request:
    return post(CHOOSE, b'{"key":"%b"}' % (b"x" * 60 * MB))


@kind("choose: a string of 2 MB, escaped")
def _(world: World) -> Request:
    return post(CHOOSE, b'{"key":"%b"}' % (b"\\u00e9" * 340_000))


@kind("choose: 2 MB of brackets")
def _(world: World) -> Request:
    return post(CHOOSE, b"[" * 2 * MB)


@kind("choose: exclude with 2 MB of nested lists")
def _(world: World) -> Request:
    return post(CHOOSE, b'{"exclude":[%b]}' % b",".join([b"[[[[]]]]"] * 220_000))


@kind("choose: a number of a million digits")
def _(world: World) -> Request:
    return post(CHOOSE, b'{"k":%b}' % (b"9" * MB))


@kind("choose: a fraction of a million digits")
def _(world: World) -> Request:
    return post(CHOOSE, b'{"k":0.%b}' % (b"9" * MB))


@kind("choose: 2 MB of one field")
def _(world: World) -> Request:
    return post(CHOOSE, b"{%b}" % b",".join([b'"k":1'] * 330_000))


@kind("choose: exclude with a million ids")
def _(world: World) -> Request:
    return post(CHOOSE, b'{"exclude":[%b]}' % b",".join([b'"a"'] * 500_000))


@kind("choose: exclude with 10,000 long ids")
def _(world: World) -> Request:
    return post(CHOOSE, {"exclude": [f"{i:0128d}" for i in range(limits.MAX_EXCLUDE)]})


@kind("choose: exclude with 9,999 arms of 10,000")
def _(world: World) -> Request:
    ids = [f"a{i}" for i in range(limits.MAX_EXCLUDE - 1)]
    return post(f"/v1/bandits/{world.plain}/choose", {"exclude": ids})


@kind("choose: exclude with 10,000 bad ids")
def _(world: World) -> Request:
    return post(CHOOSE, {"exclude": [0] * limits.MAX_EXCLUDE})


@kind("choose: chunks of one byte")
def _(world: World) -> Request:
    return post(CHOOSE, b'{"key":"%b"}' % (b"x" * 200_000), chunked=1)


@kind("choose: chunks, 60 MB")
def _(world: World) -> Request:
    return post(CHOOSE, b'{"key":"%b"}' % (b"x" * 60 * MB), chunked=CHUNK)


@kind("choose: k = 1,000, softmax")
def _(world: World) -> Request:
    return post(f"/v1/bandits/{world.soft}/choose", {"k": limits.MAX_K})


@kind("choose: k = 1,000, elimination, new key")
def _(world: World) -> Request:
    return post(f"/v1/bandits/{world.eliminating}/choose", {"k": limits.MAX_K, "key": world.new("u")})


@kind("choose: large dimension, learner with 2 rewards", slow=True)
def _(world: World) -> Request:
    world.observe(world.large_global, 1)
    return post(f"/v1/bandits/{world.large_global}/choose", {"k": limits.MAX_K})


@kind("choose: large dimension, new key", slow=True)
def _(world: World) -> Request:
    return post(f"/v1/bandits/{world.large_keyed}/choose", {"key": world.new("u")})


@kind("batch: 1,000 x 200 unknown fields")
def _(world: World) -> Request:
    item = b"{%b}" % unknown_fields(200)
    return post(CHOOSE + "/batch", b'{"requests":[%b]}' % b",".join([item] * 1_000))


@kind("batch: 4 MB of empty requests")
def _(world: World) -> Request:
    return post(CHOOSE + "/batch", b'{"requests":[%b]}' % b",".join([b"{}"] * 1_300_000))


@kind("batch: 4 MB of numbers")
def _(world: World) -> Request:
    return post(CHOOSE + "/batch", b'{"requests":[%b]}' % b",".join([b"0"] * 2_000_000))


@kind("batch: 700 x 9,990 excluded")
def _(world: World) -> Request:
    item = as_json({"exclude": [f"a{i}" for i in range(9_990)]})
    path = f"/v1/bandits/{world.plain}/choose/batch"
    return post(path, b'{"requests":[%b]}' % b",".join([item] * 700))


@kind("batch: 50 x 9,990 excluded")
def _(world: World) -> Request:
    item = as_json({"exclude": [f"a{i}" for i in range(9_990)]})
    path = f"/v1/bandits/{world.plain}/choose/batch"
    return post(path, b'{"requests":[%b]}' % b",".join([item] * 50))


@kind("batch: 4 MB of bad ids")
def _(world: World) -> Request:
    item = as_json({"exclude": [0] * 9_990})
    return post(CHOOSE + "/batch", b'{"requests":[%b]}' % b",".join([item] * 200))


def batch(world: World, bandit: str, count: int = limits.MAX_BATCH, **request: Any) -> Request:
    each = [
        {**request, **({"event_id": world.new("e")} if "event_id" in request else {})} for _ in range(count)
    ]
    return post(f"/v1/bandits/{bandit}/choose/batch", {"requests": each})


@kind("batch: 1,000 x k = 1,000")
def _(world: World) -> Request:
    return batch(world, world.plain, k=limits.MAX_K)


FULL = limits.MAX_BATCH_ARMS // limits.MAX_K  # choices of as many arms as may be


@kind("batch: 20 x k = 1,000, long ids")
def _(world: World) -> Request:
    return batch(world, world.bandit("longest", world.long_ids), FULL, k=limits.MAX_K)


@kind("batch: 1,000 x k = 20, event ids")
def _(world: World) -> Request:
    return batch(world, world.plain, k=FULL, event_id=True)


@kind("batch: 20 x k = 1,000, wait_s")
def _(world: World) -> Request:
    return batch(world, world.waiting, FULL, k=limits.MAX_K)


@kind("batch: 1,000 x k = 20, wait_s")
def _(world: World) -> Request:
    return batch(world, world.waiting, k=FULL)


@kind("batch: 20 x k = 1,000, softmax")
def _(world: World) -> Request:
    return batch(world, world.soft, FULL, k=limits.MAX_K)


@kind("batch: 1,000 x k = 20, softmax")
def _(world: World) -> Request:
    return batch(world, world.soft, k=FULL)


@kind("batch: 1,000 new keys, elimination")
def _(world: World) -> Request:
    each = [{"key": world.new("u")} for _ in range(limits.MAX_BATCH)]
    return post(f"/v1/bandits/{world.eliminating}/choose/batch", {"requests": each})


@kind("batch: 1,000 at large dimension", slow=True)
def _(world: World) -> Request:
    return batch(world, world.large_global)


@kind("rewards: 4 MB of tokens with 34 long ids")
def _(world: World) -> Request:
    name = world.bandit("long", world.long_ids)
    items = [
        {"decision": token, "arm": f"{0:0128d}", "value": 1.0} for token in world.tokens(name, 620, k=34)
    ]
    return post("/v1/rewards", {"rewards": items})


@kind("rewards: 4 MB of one token with 1,000 arms")
def _(world: World) -> Request:
    name = world.bandit("long", world.long_ids)
    token = world.tokens(name, 1, k=1_000)[0]
    count = 4 * MB // (len(token) + 180)
    items = [{"decision": token, "arm": f"{i:0128d}", "value": 1.0} for i in range(count)]
    return post("/v1/rewards", {"rewards": items})


@kind("rewards: 10,000 garbage tokens, 4 MB")
def _(world: World) -> Request:
    return post("/v1/rewards", {"rewards": [{"decision": "A" * 380, "value": 1.0}] * limits.MAX_REWARDS})


@kind("rewards: 10,000 for one learner")
def _(world: World) -> Request:
    items = [{"decision": t, "value": 1.0} for t in world.tokens("probe", limits.MAX_REWARDS)]
    return post("/v1/rewards", {"rewards": items})


@kind("rewards: 10,000, applied")
def _(world: World) -> Request:
    items = [{"decision": t, "value": 1.0} for t in world.tokens("probe", limits.MAX_REWARDS)]
    return post("/v1/rewards?wait=applied", {"rewards": items})


@kind("rewards: 4 MB of empty items")
def _(world: World) -> Request:
    return post("/v1/rewards", b'{"rewards":[%b]}' % b",".join([b"{}"] * 1_390_000))


@kind("rewards: 10,000 items with unknown fields")
def _(world: World) -> Request:
    item = b'{"decision":"x","value":1.0,%b}' % unknown_fields(40)
    return post("/v1/rewards", b'{"rewards":[%b]}' % b",".join([item] * limits.MAX_REWARDS))


@kind("rewards: 10,000 not activated")
def _(world: World) -> Request:
    tokens = world.tokens("probe", limits.MAX_REWARDS, activate=False)
    return post("/v1/rewards", {"rewards": [{"decision": t, "value": 1.0} for t in tokens]})


@kind("activate: 600 tokens with 34 long ids, wait_s")
def _(world: World) -> Request:
    name = world.bandit("long-waiting", world.long_ids, reward={"wait_s": 600})
    tokens = world.tokens(name, 600, k=34, activate=False)
    return post("/v1/decisions/activate", {"decisions": tokens})


@kind("activate: 4 MB of tokens with 1,000 arms, wait_s")
def _(world: World) -> Request:
    name = world.bandit("long-waiting", world.long_ids, reward={"wait_s": 600})
    tokens = [world.tokens(name, 1, k=1_000, activate=False)[0] for _ in range(22)]
    return post("/v1/decisions/activate", {"decisions": tokens})


def observations(world: World, count: int, *, keys: bool) -> list[dict[str, Any]]:
    keyed: list[dict[str, Any]] = [{"key": world.new("u")} for _ in range(count)] if keys else [{}] * count
    return [{"id": world.new("o"), "arm": f"a{i % 200}", "value": 1.0, **keyed[i]} for i in range(count)]


@kind("observations: 10,000 of 10,000 keys")
def _(world: World) -> Request:
    items = observations(world, limits.MAX_REWARDS, keys=True)
    return post(f"/v1/bandits/{world.keyed}/observations", {"observations": items})


@kind("observations: 10,000 of 10,000 keys, idle_ttl_s")
def _(world: World) -> Request:
    name = world.bandit("idle", world.many, scope="per_key", idle_ttl_s=600)
    items = observations(world, limits.MAX_REWARDS, keys=True)
    return post(f"/v1/bandits/{name}/observations", {"observations": items})


@kind("observations: 1,000 at large dimension", slow=True)
def _(world: World) -> Request:
    items = observations(world, 1_000, keys=False)
    return post(f"/v1/bandits/{world.large_global}/observations", {"observations": items})


@kind("observations: 10 of 10 keys at large dimension", slow=True)
def _(world: World) -> Request:
    items = observations(world, 10, keys=True)
    return post(f"/v1/bandits/{world.large_keyed}/observations", {"observations": items})


@kind("observations: contexts of long texts")
def _(world: World) -> Request:
    """To the limit of the body, each with every hash field that a learner has room for."""
    name = world.once("texts", texts)
    item = {"arm": "a0", "value": 1.0, "context": dict.fromkeys(TEXTS, "ab " * 333)}
    count = limits.MAX_BODY_BYTES // (len(as_json(item)) + 40)
    items = [{"id": world.new("o"), **item} for _ in range(count)]
    return post(f"/v1/bandits/{name}/observations", {"observations": items})


@kind("choose: a context of long texts")
def _(world: World) -> Request:
    context = dict.fromkeys(TEXTS, "ab " * 333)
    return post(f"/v1/bandits/{world.once('texts', texts)}/choose", {"context": context})


TEXTS = [f"t{number}" for number in range(62)]


def texts(world: World) -> str:
    """A bandit whose context is texts."""
    fields = [{"name": name, "kind": "hash", "size": 16} for name in TEXTS]
    return world.bandit("texts", world.many, context={"fields": fields}, interactions=1)


@kind("learner: large dimension", slow=True)
def _(world: World) -> Request:
    return Request("GET", f"/v1/bandits/{world.large_global}/learners/_global")


@kind("learner: large dimension, precision", slow=True)
def _(world: World) -> Request:
    return Request("GET", f"/v1/bandits/{world.large_global}/learners/_global?include=precision")


@kind("learner: 256 dimensions, precision")
def _(world: World) -> Request:
    name = world.bandit("dim-256", world.catalogue("dim-256", 256, 300))
    world.observe(name, 2)
    return Request("GET", f"/v1/bandits/{name}/learners/_global?include=precision")


@kind("learner: sets, new key")
def _(world: World) -> Request:
    return Request("GET", f"/v1/bandits/{world.eliminating}/learners/{world.new('u')}/sets")


@kind("arms: page of 1,000 at 4,096 dimensions", slow=True)
def _(world: World) -> Request:
    return Request("GET", f"/v1/catalogues/{world.large_catalogue()}/arms?limit=1000")


@kind("arms: page of 1,000 with large metadata")
def _(world: World) -> Request:
    name = world.catalogue("described", SMALL_DIM, 0)
    for first in range(0, 1_000, 100):
        ids = [f"m{first + i}" for i in range(100)]
        metadata = [{"x": "y" * 16_000}] * 100
        world.client.upsert_arms(name, np.zeros((100, SMALL_DIM)), ids=ids, metadata=metadata)
    return Request("GET", f"/v1/catalogues/{name}/arms?limit=1000")


def arms_body(count: int, dim: int, *, new: str = "a", **more: Any) -> bytes:
    rows = np.random.default_rng(count).normal(size=(count, dim)).tolist()
    return as_json({"arms": [{"id": f"{new}{i}", "features": row, **more} for i, row in enumerate(rows)]})


@kind("upsert: 48 arms of 4,096 numbers", slow=True)
def _(world: World) -> Request:
    return Request("PUT", f"/v1/catalogues/{world.large_catalogue()}/arms", arms_body(48, 4_096))


@kind("upsert: 1,500 arms of 128 numbers")
def _(world: World) -> Request:
    name = world.catalogue("dim-128", 128, 10)
    return Request("PUT", f"/v1/catalogues/{name}/arms", arms_body(1_500, 128))


@kind("upsert: 10,000 arms of 16 numbers")
def _(world: World) -> Request:
    return Request("PUT", f"/v1/catalogues/{world.many}/arms", arms_body(MANY_ARMS, SMALL_DIM))


@kind("upsert: 240 arms with large metadata")
def _(world: World) -> Request:
    name = world.catalogue("described", SMALL_DIM, 0)
    return Request(
        "PUT", f"/v1/catalogues/{name}/arms", arms_body(240, 16, new="n", metadata={"x": "y" * 16_000})
    )


@kind("upsert: 450 arms with 64 tags")
def _(world: World) -> Request:
    name = world.catalogue("described", SMALL_DIM, 0)
    tags = [f"{i:0128d}" for i in range(64)]
    return Request("PUT", f"/v1/catalogues/{name}/arms", arms_body(450, 16, new="t", tags=tags))


@kind("upsert: metadata of small parts")
def _(world: World) -> Request:
    name = world.catalogue("described", SMALL_DIM, 0)
    metadata = {f"f{i}": [[], {}, 1] for i in range(250)}
    return Request("PUT", f"/v1/catalogues/{name}/arms", arms_body(900, 16, new="p", metadata=metadata))


@kind("upsert: metadata of as many fields as may be")
def _(world: World) -> Request:
    name = world.catalogue("described", SMALL_DIM, 0)
    metadata = {f"f{i}": i for i in range(limits.MAX_METADATA_FIELDS)}
    return Request("PUT", f"/v1/catalogues/{name}/arms", arms_body(1_300, 16, new="q", metadata=metadata))


@kind("upsert: metadata of as many values as may be, all different")
def _(world: World) -> Request:
    name = world.catalogue("described", SMALL_DIM, 0)
    rows = np.random.default_rng(0).normal(size=(270, SMALL_DIM)).tolist()
    arms = [
        {
            "id": f"r{n}",
            "features": row,
            "metadata": {f"f{i}": f"{n} {i} {'x' * 40}" for i in range(limits.MAX_METADATA_FIELDS)},
        }
        for n, row in enumerate(rows)
    ]
    return Request("PUT", f"/v1/catalogues/{name}/arms", as_json({"arms": arms}))


@kind("upsert: 4 MB of empty arms")
def _(world: World) -> Request:
    body = b'{"arms":[%b]}' % b",".join([b"{}"] * 1_390_000)
    return Request("PUT", "/v1/catalogues/probe/arms", body)


@kind("upsert: 4 MB of numbers for arms")
def _(world: World) -> Request:
    body = b'{"arms":[%b]}' % b",".join([b"1"] * 1_000_000)
    return Request("PUT", "/v1/catalogues/probe/arms", body)


@kind("upsert: 4 MB of unknown fields")
def _(world: World) -> Request:
    return Request("PUT", "/v1/catalogues/probe/arms", b"{%b}" % unknown_fields(380_000))


@kind("upsert: an arm of 2 MB of bad numbers")
def _(world: World) -> Request:
    body = b'{"arms":[{"id":"a","features":[%b]}]}' % b",".join([b'"x"'] * 510_000)
    return Request("PUT", "/v1/catalogues/probe/arms", body)


@kind("upsert: an arm with metadata of 250 kB")
def _(world: World) -> Request:
    body = b'{"arms":[{"id":"a","features":[],"metadata":{"x":[%b]}}]}' % b",".join([b"{}"] * 85_000)
    return Request("PUT", "/v1/catalogues/probe/arms", body)


@kind("upsert: 4 MB of false ends")
def _(world: World) -> Request:
    arm = b'{"id":"a","features":[],"metadata":{"x":"%b"}}' % (b"}," * 60_000)
    return Request("PUT", "/v1/catalogues/probe/arms", b'{"arms":[%b]}' % b",".join([arm] * 29))


@kind("delete: 10,000 long ids")
def _(world: World) -> Request:
    ids = [f"{i:0128d}" for i in range(limits.MAX_ARMS)]
    return post(f"/v1/catalogues/{world.many}/arms/delete", {"ids": ids})


@kind("delete: 10,000 arms")
def _(world: World) -> Request:
    name = world.catalogue(world.new("short-lived"), SMALL_DIM, MANY_ARMS)
    return post(f"/v1/catalogues/{name}/arms/delete", {"ids": [f"a{i}" for i in range(MANY_ARMS)]})


def lines(text: list[bytes]) -> bytes:
    return b"\n".join(text)


@kind("import: 1,000 arms of 4,096 numbers", slow=True)
def _(world: World) -> Request:
    rows = np.random.default_rng(2).normal(size=(1_000, 4_096)).tolist()
    body = lines([as_json({"id": f"a{i}", "features": row}) for i, row in enumerate(rows)])
    return post(f"/v1/catalogues/{world.large_catalogue()}/import", body, kind="application/x-ndjson")


@kind("import: 50,000 arms of 16 numbers")
def _(world: World) -> Request:
    name = world.catalogue(world.new("imported"), SMALL_DIM, 10)
    rows = np.random.default_rng(2).normal(size=(50_000, SMALL_DIM)).tolist()
    body = lines([as_json({"id": f"i{i}", "features": row}) for i, row in enumerate(rows)])
    return post(f"/v1/catalogues/{name}/import", body, kind="application/x-ndjson")


@kind("import: a line of 1 MB of unknown fields")
def _(world: World) -> Request:
    body = b"{%b}" % unknown_fields(95_000)
    return post("/v1/catalogues/probe/import", body, kind="application/x-ndjson")


@kind("import: a line of 1 MB of bad numbers")
def _(world: World) -> Request:
    body = b'{"id":"a","features":[%b]}' % b",".join([b'"x"'] * 260_000)
    return post("/v1/catalogues/probe/import", body, kind="application/x-ndjson")


@kind("import: 20 MB of empty lines")
def _(world: World) -> Request:
    return post("/v1/catalogues/probe/import", b"\n" * 20 * MB, kind="application/x-ndjson")


@kind("import: chunks of one byte")
def _(world: World) -> Request:
    body = b" " * 300_000
    return post("/v1/catalogues/probe/import", body, kind="application/x-ndjson", chunked=1)


@kind("catalogue: 2 MB of unknown fields")
def _(world: World) -> Request:
    return Request("PUT", "/v1/catalogues/never", b'{"dim":1,%b}' % unknown_fields(195_000))


@kind("bandit: 2 MB of unknown fields in reward")
def _(world: World) -> Request:
    body = b'{"catalogue":"probe","policy":"sub_ts","reward":{%b}}' % unknown_fields(195_000)
    return Request("PUT", "/v1/bandits/never", body)


@kind("bandits: page of 1,000")
def _(world: World) -> Request:
    for _ in range(1_000):
        world.bandit(world.new("listed"), "probe")
    return Request("GET", "/v1/bandits?limit=1000")


def mips(world: World, **more: Any) -> Request:
    query = np.random.default_rng(0).normal(size=SMALL_DIM).tolist()
    return post(f"/v1/catalogues/{world.many}/mips", {"query": query, "k": 1_000, **more})


@kind("mips of a catalogue: bounded_me")
def _(world: World) -> Request:
    return mips(world, method="bounded_me")


@kind("mips of a catalogue: adaptive")
def _(world: World) -> Request:
    return mips(world, method="adaptive")


@kind("mips of a catalogue: hnsw")
def _(world: World) -> Request:
    return mips(world, method="hnsw")


@kind("mips of a catalogue: 4,096 dimensions, racing", slow=True)
def _(world: World) -> Request:
    query = np.random.default_rng(0).normal(size=4_096).tolist()
    path = f"/v1/catalogues/{world.large_catalogue()}/mips"
    return post(path, {"query": query, "k": 10, "method": "racing"})


@kind("mips of a catalogue: 2 MB of bad numbers")
def _(world: World) -> Request:
    return post("/v1/catalogues/probe/mips", b'{"query":[%b]}' % b",".join([b'"x"'] * 500_000))


def vectors(rows: int, dim: int, **more: Any) -> Request:
    found = np.random.default_rng(0).normal(size=(rows, dim)).round(4)
    return post("/v1/mips", {"query": found[0].tolist(), "vectors": found.tolist(), "k": 10, **more})


@kind("mips: 700 vectors of 700 numbers")
def _(world: World) -> Request:
    return vectors(700, 700)


@kind("mips: 100,000 vectors of 1 number")
def _(world: World) -> Request:
    return vectors(100_000, 1)


@kind("mips: 2 vectors of 180,000 numbers")
def _(world: World) -> Request:
    return vectors(2, 180_000)


@kind("mips: hnsw of 1,000,000 numbers", slow=True)
def _(world: World) -> Request:
    return raw(62_500, 16, method="hnsw")


@kind("mips: 4 MB of empty vectors")
def _(world: World) -> Request:
    return post("/v1/mips", b'{"query":[1],"vectors":[%b]}' % b",".join([b"[]"] * 1_000_000))


@kind("mips: 4 MB of numbers for vectors")
def _(world: World) -> Request:
    return post("/v1/mips", b'{"query":[1],"vectors":[%b]}' % b",".join([b"1"] * 2_000_000))


@kind("mips: 4 MB of one field")
def _(world: World) -> Request:
    return post("/v1/mips", b"{%b}" % b",".join([b'"k":1'] * 690_000))


def raw(rows: int, dim: int, **more: Any) -> Request:
    body = np.random.default_rng(0).normal(size=(rows + 1, dim)).astype("<f4").tobytes()
    query = "&".join(f"{name}={value}" for name, value in {"n": rows, "dim": dim, "k": 1_000, **more}.items())
    return post(f"/v1/mips?{query}", body, kind=RAW)


@kind("mips: raw, 1,000,000 x 16, exact")
def _(world: World) -> Request:
    return raw(1_000_000, 16, method="exact")


@kind("mips: raw, 4,000 x 4,096, bounded_me")
def _(world: World) -> Request:
    return raw(4_000, 4_096, method="bounded_me")


@kind("mips: raw, 4,000 x 4,096, racing")
def _(world: World) -> Request:
    return raw(4_000, 4_096, method="racing")


@kind("mips: raw, 16 x 1,000,000, adaptive")
def _(world: World) -> Request:
    return raw(15, 1_000_000, method="adaptive", k=5)


def factors(rows: int, columns: int, **more: Any) -> Request:
    found = np.random.default_rng(0).normal(size=(rows, columns)).round(6).tolist()
    return post("/v1/sample", {"log_factors": found, "draws": 10_000, **more})


def raw_factors(rows: int, columns: int, **more: Any) -> Request:
    body = np.random.default_rng(0).normal(size=(rows, columns)).astype("<f4").tobytes()
    given = {"n": rows, "dim": columns, "draws": 10_000, **more}
    query = "&".join(f"{name}={value}" for name, value in given.items())
    return post(f"/v1/sample?{query}", body, kind=RAW)


@kind("sample: 600 rows of 600")
def _(world: World) -> Request:
    return factors(600, 600)


@kind("sample: raw, 100,000 rows of 10, exact")
def _(world: World) -> Request:
    return raw_factors(100_000, 10, method="exact")


@kind("sample: raw, 1,000 rows of 1,000, racing_ebs")
def _(world: World) -> Request:
    return raw_factors(1_000, 1_000, method="racing_ebs")


@kind("sample: raw, 1,000 rows of 1,000, lil_ucb")
def _(world: World) -> Request:
    return raw_factors(1_000, 1_000, method="lil_ucb")


@kind("sample: 300,000 times -Infinity")
def _(world: World) -> Request:
    row = b"[%b]" % b",".join([b'"-Infinity"'] * 100)
    return post("/v1/sample", b'{"log_factors":[%b]}' % b",".join([row] * 3_000))


@kind("sample: 4 MB of bad factors")
def _(world: World) -> Request:
    row = b"[%b]" % b",".join([b'"x"'] * 1_000)
    return post("/v1/sample", b'{"log_factors":[%b]}' % b",".join([row] * 990))


@kind("sample: 4 MB of empty rows")
def _(world: World) -> Request:
    return post("/v1/sample", b'{"log_factors":[%b]}' % b",".join([b"[]"] * 1_000_000))


@kind("sample of a catalogue: 10,000 draws")
def _(world: World) -> Request:
    query = [1.0] * SMALL_DIM
    return post(f"/v1/catalogues/{world.many}/sample", {"query": query, "draws": 10_000})


@kind("sample of a catalogue: 4,096 dimensions", slow=True)
def _(world: World) -> Request:
    query = [0.01] * 4_096
    return post(f"/v1/catalogues/{world.large_catalogue()}/sample", {"query": query, "draws": 10_000})


@kind("centers of a catalogue: k = 1,000, naive")
def _(world: World) -> Request:
    return post(f"/v1/catalogues/{world.many}/centers", {"k": 1_000, "method": "naive"})


@kind("centers of a catalogue: k = 1,000, ds_ucb", slow=True)
def _(world: World) -> Request:
    return post(f"/v1/catalogues/{world.many}/centers", {"k": 1_000})


@kind("centers: make, 10,000 points")
def _(world: World) -> Request:
    points = [f"{i:0128d}" for i in range(campaign_limits.MAX_CENTER_POINTS)]
    return post("/v1/centers", {"id": world.new("c"), "points": points, "k": 10})


@kind("centers: ask 10,000")
def _(world: World) -> Request:
    return post(f"/v1/centers/{world.centers}/ask", {"count": campaign_limits.MAX_ASKED})


@kind("centers: tell 10,000")
def _(world: World) -> Request:
    queries = world.client.ask_centers(world.centers, count=campaign_limits.MAX_ASKED).queries
    results = [{"query": query.query, "distance": 1.0} for query in queries]
    return post(f"/v1/centers/{world.centers}/tell", {"results": results})


@kind("centers: tell 10,000 unknown")
def _(world: World) -> Request:
    items = [{"query": f"{i:064d}", "distance": 1.0} for i in range(campaign_limits.MAX_ASKED)]
    return post(f"/v1/centers/{world.centers}/tell", {"results": items})


@kind("slates: make, 1,000 arms, k = 500")
def _(world: World) -> Request:
    arms = [f"{i:0128d}" for i in range(campaign_limits.MAX_SLATE_ARMS)]
    return post("/v1/slates", {"id": world.new("s"), "arms": arms, "k": 500, "noise_range": 1.0})


@kind("slates: make, allocation g")
def _(world: World) -> Request:
    arms = [f"a{i}" for i in range(200)]
    body = {"id": world.new("s"), "arms": arms, "k": 100, "noise_range": 1.0, "allocation": "g"}
    return post("/v1/slates", body)


@kind("slates: make, exhaustive")
def _(world: World) -> Request:
    arms = [f"a{i}" for i in range(100)]
    body = {"id": world.new("s"), "arms": arms, "k": 3, "noise_range": 1.0, "method": "exhaustive"}
    return post("/v1/slates", body)


FULL_ASK = campaign_limits.MAX_ASKED_ARMS // 500


@kind("slates: ask 200 x k = 500")
def _(world: World) -> Request:
    return post(f"/v1/slates/{world.wide_slates}/ask", {"count": FULL_ASK})


@kind("slates: ask 200 x k = 500, long ids")
def _(world: World) -> Request:
    arms = [f"{i:0128d}" for i in range(campaign_limits.MAX_SLATE_ARMS)]
    return post(f"/v1/slates/{world.slates(arms=arms, k=500)}/ask", {"count": FULL_ASK})


@kind("slates: tell 10,000", slow=True)
def _(world: World) -> Request:
    arms = [f"a{i}" for i in range(campaign_limits.MAX_SLATE_ARMS)]
    name = world.slates(arms=arms, k=campaign_limits.MAX_ASKED_ARMS // campaign_limits.MAX_ASKED)
    pulls = world.client.ask_slates(name, count=campaign_limits.MAX_ASKED).pulls
    results = [{"pull": pull.pull, "total": 1.0} for pull in pulls]
    return post(f"/v1/slates/{name}/tell", {"results": results})


@kind("slates: standing of 1,000 arms")
def _(world: World) -> Request:
    return Request("GET", f"/v1/slates/{world.wide_slates}")


@kind("openapi.json")
def _(world: World) -> Request:
    return Request("GET", "/openapi.json")


@kind("metrics")
def _(world: World) -> Request:
    return Request("GET", "/metrics")


@kind("status")
def _(world: World) -> Request:
    return Request("GET", "/v1/status")


@kind("a query string of 60 kB")
def _(world: World) -> Request:
    return Request("GET", "/v1/bandits?" + "&".join(f"a{i}=1" for i in range(8_000)))


@kind("an unknown path with 60 MB")
def _(world: World) -> Request:
    return post("/v1/nothing", b"x" * 60 * MB)


@kind("no route: a head of 60 kB in 99 fields")
def _(world: World) -> Request:
    return Request("GET", "/healthz", fields=[f"x-{i}: {'y' * 600}" for i in range(94)])
