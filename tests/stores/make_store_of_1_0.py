"""Make a store as version 1.0 leaves it, of what 1.0 added: quotas, caps, signals, contexts, logs, moves.

    cd A_CHECKOUT_OF_THAT_VERSION
    .venv/bin/python ITS_PLACE/tests/stores/make_store_of_1_0.py FOLDER

writes ``FOLDER/content.jsonl`` and ``FOLDER/answers.json``, as ``make_store.py`` does. All of it needs the
clock of the day on which the store was made. Where 2.0 answers otherwise (quotas, reports), a test says what.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import redis
from kept_store import Caller
from make_store import KEYS, Notes, features, main, ok, value

from waiting import wait_until_sync

Json = Any

LOG = {"log": {"keep_s": 2_592_000}}
PER_KEY = {"scope": "per_key"}
FIELDS = [
    {"name": "device", "kind": "category", "values": ["phone", "tv"]},
    {"name": "hour", "kind": "cycle", "period": 24},
]
SITUATION = {"context": {"device": "tv", "hour": 7}}
BANDITS: dict[str, Json] = {
    "learned": {"policy": "linear_ts", **PER_KEY, **LOG},
    "default": {"policy": "sub_ts", **LOG, "filter": {"group": {"$in": [0, 1]}}},
    "context": {"policy": "linear_ts", **PER_KEY, **LOG, "context": {"fields": FIELDS}, "interactions": 2},
    "signals": {
        "policy": "sub_ts", **PER_KEY, **LOG,
        "signals": {
            "click": {"min": 0, "max": 1}, "buy": {"weight": 5, "aggregate": "sum"}, "hide": {"weight": -2},
        },
        "guardrails": [{"signal": "hide", "most": 0.1}],
    },
    "greedy": {"policy": "epsilon_greedy", "epsilon": 0.2, **LOG},
    "ucb": {"policy": "linucb", "alpha": 0.7, **PER_KEY},
    "gaps": {"policy": "igw", "gamma": 20.0},
    "held-out": {
        "policy": "linear_ts", **PER_KEY, **LOG, "holdout": {"share": 0.5, "serve": {"arms": ["f5", "f6"]}},
    },
    "placed": {"policy": "softmax", "temperature": "auto", **LOG, "position": {"examination": [1, 0.5]}},
    "revised": {"policy": "sub_ts", "reward": {"aggregate": "last"}, "intercept": False},
    "capped": {"policy": "sub_ts", **PER_KEY, "repeats": {"most": 2, "within_s": 86_400}},
    "capped-fields": {"policy": "sub_ts", "repeats": {"most": 3, "within_s": 86_400, "by": "group"}},
    "moved": {"policy": "linear_ts", **PER_KEY, **LOG},
    "quotas": {"policy": "sub_ts", **LOG},
}  # fmt: skip
QUOTAS: dict[str, Json] = {
    "one-arm": {"arm": "f1", "most": 5},
    "by-value": {"filter": {"group": 2}, "most": 40},
    "by-filter": {"filter": {"year": {"$lt": 1994}, "group": {"$ne": 2}}, "most": 1_000, "per_s": 31_536_000},
    "rewarded": {"arm": "f9", "most": 2, "counts": "rewarded"},
    "even": {"filter": {"group": 0}, "most": 100_000, "per_s": 31_536_000, "pace": "even"},
}
NUMBERS = range(12)
NEW_KEYS = ("dan", "eva", "fay", "gus", "hal")


def build(call: Caller, store: redis.Redis) -> None:
    for catalogue, dim in (("shop", 4), ("shop-2", 3)):
        ok(call, "PUT", f"/v1/catalogues/{catalogue}", {"dim": dim})
        arms = [
            {"id": f"f{i}", "features": features(i, dim), "metadata": {"group": i % 3, "year": 1990 + i}}
            for i in NUMBERS
        ]
        ok(call, "PUT", f"/v1/catalogues/{catalogue}/arms", {"arms": arms})
    for name, body in BANDITS.items():
        ok(call, "PUT", f"/v1/bandits/{name}", {"catalogue": "shop", **body})
        for number in range(0 if name == "quotas" else 6):
            decision = f"{name}-{number}"
            ok(call, "POST", f"/v1/bandits/{name}/choose", question(name, number), decision)
            ok(call, "POST", "/v1/rewards?wait=applied", {"rewards": [reward(name, decision, number)]})
    ok(call, "PATCH", "/v1/bandits/greedy", {"epsilon": 0.1})
    for key in (*KEYS, *NEW_KEYS):
        items = [
            {"id": f"{key}-{i}", "key": key, "arm": f"f{i}", "value": value(i + ord(key[0]))} for i in NUMBERS
        ]
        ok(call, "POST", "/v1/bandits/learned/observations?wait=applied", {"observations": items})
    ok(call, "POST", "/v1/bandits/learned/prior/refresh", {})
    ok(call, "POST", "/v1/bandits/moved/move", {"catalogue": "shop-2", "carry": "map"})
    wait_until_sync(
        lambda: call.http.get("/v1/bandits/moved").json()["catalogue"] == "shop-2", what="the bandit is moved"
    )
    ok(call, "POST", "/v1/bandits/context/choose", {**question("context", 0), "activate": False}, "later")
    use_quotas(call)


def use_quotas(call: Caller) -> None:
    """The quota of one arm is used up, and those of the others in part; one decision is deferred."""
    for name, body in QUOTAS.items():
        ok(call, "PUT", f"/v1/bandits/quotas/quotas/{name}", body)
    for number in range(5):
        body = {"filter": {"year": 1991}, "seed": number}
        ok(call, "POST", "/v1/bandits/quotas/choose", body, f"quotas-{number}")
    ok(call, "POST", "/v1/bandits/quotas/choose", {"filter": {"group": 2}, "seed": 9, "k": 3}, "list")
    for number in (10, 11):
        body = {"filter": {"group": 2}, "seed": number, "k": 1, "activate": False}
        ok(call, "POST", "/v1/bandits/quotas/choose", body, f"deferred-{number}")
    ok(call, "POST", "/v1/bandits/quotas/choose", {"filter": {"year": 1999}, "seed": 12}, "rewarded")
    ok(call, "POST", "/v1/rewards?wait=applied", {"rewards": [{"decision": "{rewarded}", "value": 1.0}]})


def question(name: str, number: int) -> Json:
    key = {"key": KEYS[number % len(KEYS)]} if BANDITS[name].get("scope") == "per_key" else {}
    visitor = {"visitor": "eve"} if name == "capped-fields" else {}
    return {"seed": number, **key, **visitor, **(SITUATION if name == "context" else {})}


def reward(name: str, decision: str, number: int) -> Json:
    signal = {"signal": ("click", "hide")[number % 2]} if name == "signals" else {}
    at = {"at": time.time_ns() // 1_000_000} if name == "revised" else {}
    return {"decision": f"{{{decision}}}", "value": number % 2, **signal, **at}


def at_its_time(notes: Notes) -> None:
    for name, body in BANDITS.items():
        if name == "quotas":
            continue
        for part in (
            "",
            "/versions",
            *(["/log"] if "log" in body else []),
            *(["/prior"] if name == "learned" else []),
        ):
            notes.ask("GET", f"/v1/bandits/{name}{part}")
        for key in KEYS if body.get("scope") == "per_key" else ["_global"]:
            notes.ask("GET", f"/v1/bandits/{name}/learners/{key}?include=precision")
        if name.startswith("capped"):
            key = "eve" if name == "capped-fields" else "ann"
            notes.ask("GET", f"/v1/bandits/{name}/learners/{key}/exposures")
        for number in range(20, 23):
            notes.ask(
                "POST", f"/v1/bandits/{name}/choose", {**question(name, number), "dry_run": True, "k": 3}
            )
        decision = f"{name}-5"
        notes.ask("POST", "/v1/rewards?wait=applied", {"rewards": [reward(name, decision, 5)]})
        late = question(name, 30)
        notes.ask("POST", f"/v1/bandits/{name}/choose", late, name=f"{name}-new")
        if (
            name != "revised"
        ):  # its reward has a time of its own, which may lie before the decision when this is repeated
            notes.ask("POST", "/v1/rewards?wait=applied", {"rewards": [reward(name, f"{name}-new", 3)]})
        notes.ask("GET", f"/v1/bandits/{name}/learners/{late.get('key', '_global')}")
    notes.ask("POST", "/v1/decisions/activate", {"decisions": ["{later}"]})
    notes.ask("POST", "/v1/rewards?wait=applied", {"rewards": [{"decision": "{later}", "value": 0.5}]})
    notes.ask("POST", "/v1/bandits/quotas/choose", {"filter": {"year": 1991}, "seed": 6})
    for number in (10, 11):
        notes.ask("POST", "/v1/decisions/activate", {"decisions": [f"{{deferred-{number}}}"]})
        rewards = [{"decision": f"{{deferred-{number}}}", "value": 1.0}]
        notes.ask("POST", "/v1/rewards?wait=applied", {"rewards": rewards})
    notes.ask("POST", "/v1/bandits/moved/move", {"catalogue": "shop", "carry": "map", "dry_run": True})


if __name__ == "__main__":
    main(Path(sys.argv[1]), build, [at_its_time])
