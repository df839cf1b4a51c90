"""Every endpoint, with a request that it accepts: the table that the contract's rules are held against."""

from __future__ import annotations

import base64
import copy
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import msgspec

from api_client import Api, Json
from app.measuring.jobs import JobHead

Kind = Literal[
    "time", "int", "float", "bool", "id", "text", "word", "list", "dict", "exploration", "half_life"
]


@dataclass(frozen=True)
class Endpoint:
    """``path`` has names of `create_one_of_each` filled in; ``body`` is valid and gives every field there is.

    ``kinds`` says what each field of the body is, ``nullable`` which may be null, ``template`` is the path as
    documented.
    """

    method: str
    template: str
    path: str
    body: Json | None = None
    kinds: dict[str, Kind] = field(default_factory=dict)
    nullable: frozenset[str] = frozenset()

    def __str__(self) -> str:
        return f"{self.method} {self.template}"


# Of a learner of dimension 3 without a half-life: one reward of 1 for the arm (1, 0, 0).
STATE = base64.b64encode(
    struct.pack("<BxHxxxxQQ20d", 4, 3, 1, 1, *(1.0, *[0.0] * 11), *(1.0, *[0.0] * 5), 0.0, 0.0)
).decode()
SLATES = {
    "id": "s-new", "arms": ["a", "b", "c"], "k": 2, "method": "icb", "epsilon": 0.5, "delta": 0.05,
    "noise_range": 1, "independent_noise": True, "allocation": "g", "bound": "paper", "seed": 1,
    "rules": {"at_most": [{"field": "maker", "count": 1}]},
    "metadata": {"a": {"maker": "ann"}, "b": {"maker": "ann"}},
}  # fmt: skip
SLATES_KINDS: dict[str, Kind] = {
    "id": "id", "arms": "list", "arms.0": "id", "k": "int", "method": "word", "epsilon": "float",
    "delta": "float", "noise_range": "float", "noise_std": "float", "independent_noise": "bool",
    "allocation": "word", "bound": "word", "rules": "dict", "rules.at_most": "list",
    "rules.at_most.0.field": "text", "rules.at_most.0.count": "int", "metadata": "dict", "seed": "int",
}  # fmt: skip
# Either noise may be null, and either source of fields: the error names the other one.
SLATES_NULLABLE = frozenset({"noise_range", "noise_std", "rules", "metadata", "seed"})
ARM = {"id": "new", "features": [1, 2.5, -3e-4], "tags": ["a"], "metadata": {"x": [1, {"y": None}]}}
ARM_KINDS: dict[str, Kind] = {"id": "id", "features": "list", "tags": "list", "metadata": "dict"}
CHOOSE = {"k": 2, "exclude": ["a1"], "event_id": "e-1", "seed": 7, "activate": False, "baseline": "s-done",
    "include": ["metadata.x"],
}  # fmt: skip
CHOOSE_KINDS: dict[str, Kind] = {
    "key": "id",
    "k": "int",
    "exclude": "list",
    "event_id": "id",
    "seed": "int",
    "activate": "bool",
    "baseline": "id",
    "include": "list",
    "visitor": "id",
    "include.0": "text",
}
CHOOSE_NULLABLE = frozenset({"key", "event_id", "seed", "baseline", "visitor"})
REWARD_KINDS: dict[str, Kind] = {"decision": "text", "value": "float", "arm": "id", "reward_id": "id"}
OBSERVATION_KINDS: dict[str, Kind] = {"id": "id", "arm": "id", "value": "float", "key": "id"}
CONTEXT_FIELDS: list[Json] = [
    {"name": "device", "kind": "category", "values": ["phone", "tv"]},
    {"name": "hour", "kind": "cycle", "period": 24},
    {"name": "age", "kind": "number", "mean": 35, "scale": 12},
    {"name": "query", "kind": "hash", "size": 4},
]
CONTEXT: Json = {"device": "tv", "hour": 21.5, "age": 40, "query": "red shoes"}
# Texts may be empty, so no text is wrong for all of them.
CONTEXT_KINDS: dict[str, Kind] = {"hour": "float", "age": "float"}
SAMPLE = {
    "method": "lil_ucb",
    "delta": 0.1,
    "draws": 3,
    "variance": "marginal",
    "setting": "heuristic",
    "seed": 7,
}
SAMPLE_KINDS: dict[str, Kind] = {
    "method": "word",
    "delta": "float",
    "draws": "int",
    "variance": "word",
    "setting": "word",
    "seed": "int",
}

WRITES = (
    Endpoint(
        "PUT",
        "/v1/catalogues/{catalogue}",
        "/v1/catalogues/other",
        {
            "dim": 3,
            "index": {
                "kind": "exact",
                "m": 16,
                "ef_construction": 100,
                "ef_search": 50,
                "shortlist": 30,
                "target_recall": 0.9,
            },
            "display": {"title": "name", "picture": "image"},
        },
        {
            "dim": "int",
            "index": "dict",
            "index.kind": "word",
            "index.m": "int",
            "index.ef_construction": "int",
            "index.ef_search": "int",
            "index.shortlist": "int",
            "index.target_recall": "float",
            "display": "dict",
            "display.title": "text",
            "display.picture": "text",
        },
        frozenset({"index.ef_search", "display", "display.title", "display.picture"}),
    ),
    Endpoint(
        "PUT",
        "/v1/catalogues/{catalogue}",
        "/v1/catalogues/encoded",
        {
            "features": {
                "fields": [
                    {"name": "genre", "kind": "categories", "values": ["drama"]},
                    {"name": "list price", "kind": "number", "mean": 2, "scale": 1, "log": True},
                ],
                "embedding": {"dim": 3, "reduce": {"to": 2, "basis": [[1, 0, 0.5], [0, -1, 2]]}},
            },
        },
        {
            "features": "dict",
            "features.fields": "list",
            "features.fields.0.name": "text",
            "features.fields.0.kind": "word",
            "features.fields.0.values": "list",
            "features.fields.1.mean": "float",
            "features.fields.1.scale": "float",
            "features.fields.1.log": "bool",
            "features.embedding": "dict",
            "features.embedding.dim": "int",
            "features.embedding.reduce.to": "int",
            "features.embedding.reduce.basis": "list",
            "features.embedding.reduce.basis.0": "list",
        },
        frozenset(
            {
                "features",
                "features.fields",
                "features.fields.0.values",
                "features.fields.1.mean",
                "features.fields.1.scale",
                "features.fields.1.log",
                "features.embedding",
                "features.embedding.reduce.basis",
            }
        ),
    ),
    Endpoint(
        "PUT",
        "/v1/catalogues/{catalogue}/arms",
        "/v1/catalogues/c/arms",
        {"arms": [ARM]},
        {"arms": "list", **{f"arms.0.{name}": kind for name, kind in ARM_KINDS.items()}},
    ),
    Endpoint(
        "POST",
        "/v1/catalogues/{catalogue}/arms/delete",
        "/v1/catalogues/c/arms/delete",
        {"ids": ["a4", "unknown"]},
        {"ids": "list", "ids.0": "id"},
    ),
    Endpoint(
        "PUT",
        "/v1/bandits/{bandit}",
        "/v1/bandits/other",
        {
            "catalogue": "c",
            "policy": "softmax",
            "scope": "per_key",
            "ridge": 1,
            "exploration": 0.5,
            "delta": 0.05,
            "horizon": 1000,
            "shortlist": 30,
            "eta": None,
            "reward": {"min": -1, "max": 1, "aggregate": "sum", "wait_s": 60, "default": 0},
            "prior": "plain",
            "half_life_s": 3600,
            "idle_ttl_s": 86400,
            "temperature": 0.5,
            "solver": "shortlist",
        },
        {
            "catalogue": "id",
            "policy": "word",
            "scope": "word",
            "ridge": "float",
            "exploration": "exploration",
            "delta": "float",
            "horizon": "int",
            "shortlist": "int",
            "eta": "float",
            "reward": "dict",
            "reward.min": "float",
            "reward.max": "float",
            "reward.aggregate": "word",
            "reward.wait_s": "float",
            "reward.default": "float",
            "prior": "word",
            "half_life_s": "half_life",
            "idle_ttl_s": "float",
            "temperature": "float",
            "solver": "word",
        },
        frozenset(
            {
                "temperature",
                "eta",
                "reward.min",
                "reward.max",
                "reward.wait_s",
                "reward.default",
                "half_life_s",
                "idle_ttl_s",
            }
        ),
    ),
    Endpoint(
        "POST",
        "/v1/catalogues/{catalogue}/centers",
        "/v1/catalogues/c/centers",
        {
            "k": 2,
            "method": "ds_ts",
            "delta": 0.1,
            "ci": "kl",
            "c_alpha": 0.1,
            "mix": 0.99,
            "epsilon": 0.01,
            "first": "a0",
            "seed": 7,
        },
        {
            "k": "int",
            "method": "word",
            "delta": "float",
            "ci": "word",
            "c_alpha": "float",
            "mix": "float",
            "epsilon": "float",
            "first": "id",
            "seed": "int",
        },
        frozenset({"first", "seed"}),
    ),
    Endpoint(
        "POST",
        "/v1/centers",
        "/v1/centers",
        {
            "id": "new",
            "points": ["p0", "p1", "p2"],
            "k": 2,
            "method": "ns_ts",
            "noise": "gaussian",
            "noise_std": 0.1,
            "delta": 0.1,
            "epsilon": 0.01,
            "mix": 0.9,
            "threshold": "proven",
            "first": "p0",
            "seed": 7,
        },
        {
            "id": "id",
            "points": "list",
            "points.0": "id",
            "k": "int",
            "method": "word",
            "noise": "word",
            "noise_std": "float",
            "delta": "float",
            "epsilon": "float",
            "mix": "float",
            "threshold": "word",
            "first": "id",
            "seed": "int",
        },
        frozenset({"noise_std", "epsilon", "first", "seed"}),
    ),
    Endpoint("POST", "/v1/centers/{campaign}/ask", "/v1/centers/s/ask", {"count": 3}, {"count": "int"}),
    Endpoint(
        "POST",
        "/v1/centers/{campaign}/tell",
        "/v1/centers/s/tell",
        {"results": [{"query": "QUERY", "distance": 0.5}]},
        {"results": "list", "results.0.query": "text", "results.0.distance": "float"},
    ),
    Endpoint(
        "POST",
        "/v1/sample",
        "/v1/sample",
        {
            "log_factors": [[0.5, -1, 2], [-2.5, "-Infinity", 0], [1, None, 3]],
            "log_prior": [-1, 0, None],
            **SAMPLE,
        },
        {
            "log_factors": "list",
            "log_factors.0": "list",
            "log_prior.1": "float",
            **SAMPLE_KINDS,
        },
        frozenset({"log_prior.1", "seed"}),
    ),
    Endpoint(
        "POST",
        "/v1/catalogues/{catalogue}/sample",
        "/v1/catalogues/c/sample",
        {"query": [1, 0.5, -2], "temperature": 0.5, **SAMPLE},
        {"query": "list", "query.0": "float", "temperature": "float", **SAMPLE_KINDS},
        frozenset({"seed"}),
    ),
    Endpoint(
        "PUT",
        "/v1/bandits/{bandit}",
        "/v1/bandits/situated",
        {"catalogue": "c", "policy": "igw", "context": {"fields": CONTEXT_FIELDS}, "interactions": 2},
        {
            "catalogue": "id",
            "policy": "word",
            "context": "dict",
            **{f"context.fields.{place}.name": "text" for place in range(4)},
            **{f"context.fields.{place}.kind": "word" for place in range(4)},
            "context.fields.0.values": "list",
            "context.fields.1.period": "float",
            "context.fields.2.mean": "float",
            "context.fields.2.scale": "float",
            "context.fields.3.size": "int",
        },
        frozenset({"context", "context.fields.2.mean", "context.fields.2.scale"}),
    ),
    Endpoint(
        "POST",
        "/v1/bandits/{bandit}/choose",
        "/v1/bandits/w/choose",
        {"context": CONTEXT, "seed": 3},
        {"context": "dict", **{f"context.{name}": kind for name, kind in CONTEXT_KINDS.items()}},
        frozenset(f"context.{name}" for name in CONTEXT_KINDS),
    ),
    Endpoint(
        "POST",
        "/v1/bandits/{bandit}/observations",
        "/v1/bandits/w/observations",
        {"observations": [{"id": "o-2", "arm": "a0", "value": 0.5, "context": CONTEXT}]},
        {
            "observations.0.context": "dict",
            **{f"observations.0.context.{name}": kind for name, kind in CONTEXT_KINDS.items()},
        },
        frozenset(f"observations.0.context.{name}" for name in CONTEXT_KINDS),
    ),
    Endpoint(
        "POST",
        "/v1/bandits/{bandit}/choose",
        "/v1/bandits/b/choose",
        {**CHOOSE, "dry_run": False},
        {**CHOOSE_KINDS, "dry_run": "bool"},
        CHOOSE_NULLABLE,
    ),
    Endpoint(
        "PUT",
        "/v1/bandits/{bandit}/quotas/{quota}",
        "/v1/bandits/b/quotas/q",
        {
            "most": 5,
            "arm": "a0",
            "per_s": 60,
            "counts": "shown",
            "pace": "even",
            "from": "2920-01-01T00:00:00Z",
            "to": "2921-01-01T00:00:00Z",
        },
        {
            "most": "int",
            "arm": "id",
            "per_s": "float",
            "counts": "word",
            "pace": "word",
            "from": "time",
            "to": "time",
        },
        frozenset({"per_s", "from", "to"}),
    ),
    Endpoint(
        "POST",
        "/v1/bandits/{bandit}/choose/batch",
        "/v1/bandits/b/choose/batch",
        {"requests": [CHOOSE]},
        {"requests": "list", **{f"requests.0.{name}": kind for name, kind in CHOOSE_KINDS.items()}},
        frozenset(f"requests.0.{name}" for name in CHOOSE_NULLABLE),
    ),
    Endpoint(
        "POST",
        "/v1/choose/batch",
        "/v1/choose/batch",
        {"requests": [{"bandit": "b", **CHOOSE}], "partial": False, "distinct": True},
        {
            "requests": "list",
            "requests.0.bandit": "id",
            **{f"requests.0.{name}": kind for name, kind in CHOOSE_KINDS.items()},
            "partial": "bool",
            "distinct": "bool",
        },
        frozenset(f"requests.0.{name}" for name in CHOOSE_NULLABLE),
    ),
    Endpoint(
        "POST",
        "/v1/rewards",
        "/v1/rewards",
        {"rewards": [{"decision": "TOKEN", "value": 1, "arm": "a0", "reward_id": "r-1"}]},
        {"rewards": "list", **{f"rewards.0.{name}": kind for name, kind in REWARD_KINDS.items()}},
        frozenset({"rewards.0.arm", "rewards.0.reward_id"}),
    ),
    Endpoint(
        "POST",
        "/v1/rewards",
        "/v1/rewards",
        {"rewards": [{"bandit": "u", "event_id": "shown", "key": "ann", "visitor": None, "value": 1}]},
        {
            "rewards": "list",
            "rewards.0.bandit": "id",
            "rewards.0.event_id": "id",
            "rewards.0.key": "id",
            "rewards.0.visitor": "id",
            "rewards.0.value": "float",
        },
        frozenset({"rewards.0.event_id", "rewards.0.visitor"}),  # null: then it needs a decision
    ),
    *(
        Endpoint("POST", path, path, {"decisions": ["TOKEN"]}, {"decisions": "list", "decisions.0": "text"})
        for path in ("/v1/decisions/activate", "/v1/activations")
    ),
    Endpoint(
        "POST",
        "/v1/bandits/{bandit}/observations",
        "/v1/bandits/u/observations",
        {"observations": [{"id": "o-1", "arm": "a0", "value": 0.5, "key": "ann"}]},
        {
            "observations": "list",
            **{f"observations.0.{name}": kind for name, kind in OBSERVATION_KINDS.items()},
        },
        frozenset({"observations.0.key"}),
    ),
    Endpoint(
        "PUT",
        "/v1/bandits/{bandit}/learners/{key}",
        "/v1/bandits/u/learners/given",
        {"state": STATE},
        {"state": "text"},
    ),
    Endpoint("POST", "/v1/slates", "/v1/slates", SLATES, SLATES_KINDS, SLATES_NULLABLE),
    Endpoint(
        "POST",
        "/v1/slates/{campaign}/teach",
        "/v1/slates/s-done/teach",
        {"bandit": "u", "key": "ann"},
        {"bandit": "id", "key": "id"},
    ),
    Endpoint("POST", "/v1/slates/{campaign}/ask", "/v1/slates/s/ask", {"count": 2}, {"count": "int"}),
    Endpoint(
        "POST",
        "/v1/slates/{campaign}/tell",
        "/v1/slates/s/tell",
        {"results": [{"pull": "PULL", "total": 1.5}]},
        {"results": "list", "results.0.pull": "text", "results.0.total": "float"},
    ),
)
MIPS = {
    "query": [1, 0.5, -1],
    "k": 2,
    "method": "bounded_me",
    "epsilon": 0.5,
    "delta": 0.1,
    "objective": "nearest",
    "value_range": [0, 100],
    "seed": 3,
}
MIPS_KINDS: dict[str, Kind] = {
    "query": "list",
    "query.1": "float",
    "k": "int",
    "method": "word",
    "epsilon": "float",
    "delta": "float",
    "objective": "word",
    "value_range": "list",
    "value_range.0": "float",
    "seed": "int",
}
MIPS_NULLABLE = frozenset({"value_range", "seed"})
WRITES = (
    *WRITES,
    Endpoint(
        "POST",
        "/v1/catalogues/{catalogue}/mips",
        "/v1/catalogues/c/mips",
        MIPS,
        MIPS_KINDS,
        MIPS_NULLABLE,
    ),
    Endpoint(
        "POST",
        "/v1/mips",
        "/v1/mips",
        {**MIPS, "vectors": [[1, 2, 3], [0, -1, 2.5]]},
        {**MIPS_KINDS, "vectors": "list", "vectors.0": "list"},
        MIPS_NULLABLE,
    ),
)
IMPORT = Endpoint("POST", "/v1/catalogues/{catalogue}/import", "/v1/catalogues/c/import")
# These need blocks, or a log that is long: see plugins/embeddings/tests.
EMBEDDING = Endpoint("POST", "/v1/catalogues/{catalogue}/embeddings", "/v1/catalogues/c/embeddings")
LOG_EMBEDDINGS = (
    Endpoint(
        "POST",
        "/v1/bandits/{bandit}/embeddings",
        "/v1/bandits/b/embeddings",
        {"catalogue": "new", "dim": 4},
        {"catalogue": "id", "dim": "int"},
    ),
    Endpoint("GET", "/v1/bandits/{bandit}/embeddings", "/v1/bandits/b/embeddings"),
    Endpoint("GET", "/v1/bandits/{bandit}/embeddings/{embedding}", "/v1/bandits/b/embeddings/none"),
    Endpoint("DELETE", "/v1/bandits/{bandit}/embeddings/{embedding}", "/v1/bandits/b/embeddings/none"),
)
CHANGE = Endpoint(
    "PATCH",
    "/v1/bandits/{bandit}",
    "/v1/bandits/b",
    {
        "policy": "softmax",
        "ridge": 2,
        "exploration": 0.5,
        "delta": 0.1,
        "horizon": 1000,
        "shortlist": 40,
        "eta": None,
        "reward": {"min": -1, "max": 1, "aggregate": "sum", "wait_s": 60, "default": 0},
        "idle_ttl_s": 86400,
        "temperature": 0.5,
        "solver": "shortlist",
        "scope": "global",
        "holdout": {"share": 0.1, "serve": "random"},
        "log": {"keep_s": 3600, "share": 0.5},
    },
    {
        "policy": "word",
        "ridge": "float",
        "exploration": "exploration",
        "delta": "float",
        "horizon": "int",
        "shortlist": "int",
        "eta": "float",
        "reward": "dict",
        "reward.min": "float",
        "reward.max": "float",
        "reward.aggregate": "word",
        "reward.wait_s": "float",
        "reward.default": "float",
        "idle_ttl_s": "float",
        "temperature": "float",
        "solver": "word",
        "scope": "word",
        "holdout": "dict",
        "holdout.share": "float",
        "holdout.serve": "word",
        "log": "dict",
        "log.keep_s": "float",
        "log.share": "float",
    },
)
CHANGE = replace(CHANGE, nullable=frozenset(CHANGE.kinds) - {"policy"})
EVALUATION = Endpoint(
    "POST",
    "/v1/bandits/{bandit}/evaluations",
    "/v1/bandits/b/evaluations",
    {
        "policy": {"policy": "softmax", "temperature": 0.5, "reward": {"min": -1}},
        "from": "2020-01-01T00:00:00Z",
        "to": 1_800_000_000_000,
        "estimators": ["ips", "dr"],
        "signal_places": True,
    },
    {
        "policy": "dict",
        "policy.policy": "word",
        "policy.temperature": "float",
        "policy.reward": "dict",
        "policy.reward.min": "float",
        "from": "time",
        "to": "time",
        "estimators": "list",
        "estimators.0": "word",
        "signal_places": "bool",
    },
    frozenset({"policy.temperature", "policy.reward", "policy.reward.min", "from", "to"}),
)
SHOW = Endpoint(
    "PATCH",
    "/v1/catalogues/{catalogue}",
    "/v1/catalogues/c",
    {"display": {"title": "x", "picture": "y"}},
    {"display": "dict", "display.title": "text", "display.picture": "text"},
    frozenset({"display", "display.title", "display.picture"}),
)
EXPLAIN = Endpoint(
    "POST",
    "/v1/bandits/{bandit}/log/explain",
    "/v1/bandits/logged/log/explain",
    {"decision": "none"},
    {"decision": "text"},
)
MOVE = Endpoint(
    "POST",
    "/v1/bandits/{bandit}/move",
    "/v1/bandits/b/move",
    {"catalogue": "c", "carry": "map", "dry_run": True},
    {"catalogue": "id", "carry": "word", "dry_run": "bool"},
)
WRITES = (*WRITES, CHANGE, SHOW, EVALUATION, EXPLAIN, MOVE)
READS = (
    Endpoint("POST", "/v1/bandits/{bandit}/prior/refresh", "/v1/bandits/p/prior/refresh"),
    Endpoint("POST", "/v1/catalogues/{catalogue}/features/fit", "/v1/catalogues/reduced/features/fit"),
    Endpoint("GET", "/v1/catalogues", "/v1/catalogues"),
    Endpoint("GET", "/v1/catalogues/{catalogue}", "/v1/catalogues/c"),
    Endpoint("GET", "/v1/catalogues/{catalogue}/fields", "/v1/catalogues/c/fields"),
    Endpoint("GET", "/v1/catalogues/{catalogue}/arms", "/v1/catalogues/c/arms"),
    Endpoint("GET", "/v1/catalogues/{catalogue}/arms/{arm}", "/v1/catalogues/c/arms/a0"),
    Endpoint("GET", "/v1/bandits", "/v1/bandits"),
    Endpoint("GET", "/v1/bandits/{bandit}", "/v1/bandits/b"),
    Endpoint("GET", "/v1/bandits/{bandit}/evaluations", "/v1/bandits/b/evaluations"),
    Endpoint("GET", "/v1/bandits/{bandit}/evaluations/{evaluation}", "/v1/bandits/b/evaluations/kept"),
    Endpoint("GET", "/v1/bandits/{bandit}/versions", "/v1/bandits/b/versions"),
    Endpoint("GET", "/v1/bandits/{bandit}/quotas", "/v1/bandits/b/quotas"),
    Endpoint("GET", "/v1/bandits/{bandit}/quotas/{quota}", "/v1/bandits/b/quotas/none-shown"),
    Endpoint("GET", "/v1/bandits/{bandit}/log", "/v1/bandits/b/log"),
    Endpoint("GET", "/v1/bandits/{bandit}/report", "/v1/bandits/b/report"),
    Endpoint("GET", "/v1/bandits/{bandit}/log/rewards", "/v1/bandits/b/log/rewards"),
    Endpoint("GET", "/v1/bandits/{bandit}/log/arms", "/v1/bandits/b/log/arms"),
    Endpoint("GET", "/v1/bandits/{bandit}/log/priors", "/v1/bandits/p/log/priors"),
    Endpoint("GET", "/v1/bandits/{bandit}/log/terms", "/v1/bandits/b/log/terms"),
    Endpoint("GET", "/v1/bandits/{bandit}/log/export", "/v1/bandits/b/log/export"),
    Endpoint("GET", "/v1/bandits/{bandit}/log/{decision}", "/v1/bandits/b/log/none"),
    Endpoint("GET", "/v1/bandits/{bandit}/learners", "/v1/bandits/u/learners"),
    Endpoint("GET", "/v1/bandits/{bandit}/learners/{key}", "/v1/bandits/u/learners/ann"),
    Endpoint(
        "GET", "/v1/bandits/{bandit}/learners/{key}/exposures", "/v1/bandits/capped/learners/ann/exposures"
    ),
    Endpoint("GET", "/v1/bandits/{bandit}/prior", "/v1/bandits/p/prior"),
    Endpoint("GET", "/v1/bandits/{bandit}/arm-effects", "/v1/bandits/p/arm-effects"),
    Endpoint("GET", "/v1/bandits/{bandit}/arm-effects/{arm}", "/v1/bandits/p/arm-effects/a0"),
    Endpoint("GET", "/v1/policies", "/v1/policies"),
    Endpoint("GET", "/v1/centers", "/v1/centers"),
    Endpoint("GET", "/v1/centers/{campaign}", "/v1/centers/s"),
    Endpoint("GET", "/v1/slates", "/v1/slates"),
    Endpoint("GET", "/v1/slates/{campaign}", "/v1/slates/s"),
    Endpoint("GET", "/v1/bandits/{bandit}/learners/{key}/sets", "/v1/bandits/v/learners/ann/sets"),
    Endpoint("GET", "/", "/"),
    Endpoint("GET", "/healthz", "/healthz"),
    Endpoint("GET", "/readyz", "/readyz"),
    Endpoint("GET", "/metrics", "/metrics"),
    Endpoint("GET", "/v1/status", "/v1/status"),
)
DELETES = (
    Endpoint("DELETE", "/v1/catalogues/{catalogue}", "/v1/catalogues/unused"),
    Endpoint("DELETE", "/v1/catalogues/{catalogue}/arms/{arm}", "/v1/catalogues/c/arms/a3"),
    Endpoint("DELETE", "/v1/centers/{campaign}", "/v1/centers/s-unused"),
    Endpoint("DELETE", "/v1/bandits/{bandit}", "/v1/bandits/unused"),
    Endpoint("DELETE", "/v1/bandits/{bandit}/quotas/{quota}", "/v1/bandits/b/quotas/unused"),
    Endpoint("DELETE", "/v1/bandits/{bandit}/evaluations/{evaluation}", "/v1/bandits/b/evaluations/unused"),
    Endpoint("DELETE", "/v1/bandits/{bandit}/learners/{key}", "/v1/bandits/u/learners/bob"),
    Endpoint("DELETE", "/v1/bandits/{bandit}/visitors/{visitor}", "/v1/bandits/b/visitors/bob"),
    Endpoint("DELETE", "/v1/slates/{campaign}", "/v1/slates/s-unused"),
)
ALL = (*WRITES, IMPORT, EMBEDDING, *LOG_EMBEDDINGS, *READS, *DELETES)


PULLS: dict[str, dict[str, str]] = {}  # what `create_one_of_each` left, by its token


async def create_one_of_each(api: Api) -> str:
    """Catalogue ``c`` of five arms, bandits ``b`` and ``u`` (per key), campaigns ``s``; a token of ``b``."""
    await api.catalogue("c", {f"a{i}": [i, 1, 0] for i in range(5)})
    await api.catalogue("unused", {}, dim=2)
    await api.bandit("b", "c", reward={"aggregate": "sum"})
    await api.bandit("u", "c", scope="per_key")
    reduce = {"to": 1, "basis": [[1, 0]]}
    features = {"embedding": {"dim": 2, "reduce": reduce}}
    await api.ok("PUT", "/v1/catalogues/reduced", {"features": features}, 201)
    await api.bandit("v", "c", policy="sub_elim", scope="per_key")
    await api.bandit("p", "c", scope="per_key", ridge="auto", arm_effects="auto")
    await api.ok(
        "POST", "/v1/bandits/p/prior/refresh"
    )  # the secret of its draws, which a fit would make later
    await api.bandit("w", "c", context={"fields": CONTEXT_FIELDS}, interactions=2)
    await api.bandit("logged", "c", log={}, reward={"wait_s": 3_600})  # the row is written with the choice
    await api.bandit("capped", "c", repeats={"most": 1, "within_s": 60.0})
    await api.bandit("unused", "c")
    later = "2921-01-01T00:00:00Z"  # nothing is counted, so the store stays as it is
    for name in ("none-shown", "unused"):
        await api.ok("PUT", f"/v1/bandits/b/quotas/{name}", {"arm": "a4", "most": 5, "from": later}, 201)
    if api.app is not None:  # of another process a client alone is given, and no job has a known id
        bandit = await api.app.service.bandits.get("b")
        for name in ("kept", "unused"):
            job = msgspec.json.encode(JobHead(name, 1, "done"))
            await api.app.service.store.jobs.add(bandit.uid, name, job, lease_ms=1_000, keep_ms=3_600_000)
    for name in ("s", "s-unused"):
        centers = {"id": name, "points": ["p0", "p1", "p2"], "k": 2, "noise_std": 1}
        await api.ok("POST", "/v1/centers", centers, 201)
        slates = {"id": name, "arms": ["a0", "a1", "a2"], "k": 2, "noise_std": 1}
        await api.ok("POST", "/v1/slates", slates, 201)
    done = {"id": "s-done", "arms": ["a0", "a1", "a2"], "k": 2, "noise_std": 1e-3}
    await api.ok("POST", "/v1/slates", done, 201)
    shown = (await api.ok("POST", "/v1/slates/s-done/ask", {"count": 20}))["pulls"]
    results = [{"pull": p["pull"], "total": 2.0 - ("a0" in p["slate"])} for p in shown]
    assert (await api.ok("POST", "/v1/slates/s-done/tell", {"results": results}))["done"]
    queries = (await api.ok("POST", "/v1/centers/s/ask", {"count": 1}))["queries"]
    pulls = (await api.ok("POST", "/v1/slates/s/ask", {"count": 1}))["pulls"]
    await api.observe("u", {"id": "first", "key": "ann", "arm": "a1", "value": 1})
    await api.choose("u", key="ann", event_id="shown")
    token: str = (await api.choose("b", k=5))["decision"]
    logged: str = (await api.choose("logged"))["decision"]
    PULLS[token] = {"query": queries[0]["query"], "pull": pulls[0]["pull"], "decision": logged}
    return token


def with_token(body: Json, token: str) -> Json:
    body = copy.deepcopy(body)
    for reward in body.get("rewards", ()):
        if "decision" in reward:
            reward["decision"] = token
    for result in body.get("results", ()):
        result.update({name: pull for name, pull in PULLS[token].items() if name in result})
    if "decision" in body:
        body["decision"] = PULLS[token]["decision"]
    if "decisions" in body:
        body["decisions"] = [token]
    return body


def at(path: str) -> list[str | int]:
    """``arms.0.id`` as the steps into a document."""
    return [int(part) if part.isdecimal() else part for part in path.split(".")]


def replaced(body: Json, path: str, value: Any) -> Json:
    """A copy of the body with another value at ``path``."""
    *parents, last = at(path)
    body = copy.deepcopy(body)
    inner: Any = body
    for part in parents:
        inner = inner[part]
    inner[last] = value
    return body


def fields() -> Iterator[tuple[Endpoint, str, Kind]]:
    for endpoint in WRITES:
        for path, kind in endpoint.kinds.items():
            yield endpoint, path, kind
