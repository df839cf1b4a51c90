"""Make a store as version 2.0.0 leaves it, with bandits of every kind, and note what that version answers.

    cd A_CHECKOUT_OF_2.0.0
    .venv/bin/python ITS_PLACE/plugins/upgrade/tests/make_store_of_2_0.py FOLDER

writes ``FOLDER/commands.jsonl``, the commands that write all keys of the store, and ``FOLDER/answers.json``,
calls with the answers that 2.0.0 gave to them after it had opened the same store. It runs the processes of
the checkout with the helpers of the checkout's tests. All data are synthetic. About half of the rewards are
not folded yet, and a move is under way.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path += [str(Path.cwd() / "tests" / name) for name in ("stores", "support", "")]

import redis
from kept_store import Caller, dump, settle
from make_store import features, ok, opened, value

from app.storage.embedded.server import EmbeddedServer
from clock_shim import Clock
from waiting import wait_until_sync

Json = Any

PARTITIONS = {"SHORTLIST_PARTITIONS": "2"}
KEYS = ("ann", "bob", "cid")
ARMS = range(8)
LOG = {"log": {"keep_s": 2_592_000}}
PER_KEY = {"scope": "per_key"}
PLAIN = {**PER_KEY, "prior": "plain"}
SITUATION = {"context": {"device": "tv"}}
FIELDS = [{"name": "device", "kind": "category", "values": ["phone", "tv"]}]
BROKEN = {"b": "0123456789abcdef", "l": "ann", "f": "1", "p": b"no payload"}
# Of which every answer is the same after the upgrade.
SAME: dict[str, Json] = {
    "plain": {"policy": "linear_ts", **PLAIN, **LOG},
    "global": {"policy": "sub_ts", "exploration": 0.5, "ridge": 0.5},
    "fading": {"policy": "sub_ts", **PLAIN, "half_life_s": 3600.0},
    "waiting": {"policy": "linear_ts", **PLAIN, **LOG, "reward": {"wait_s": 600.0, "default": 0.25}},
    "summed": {"policy": "sub_ts", **PLAIN, "reward": {"aggregate": "sum"}},
    "revised": {"policy": "softmax", "temperature": 0.4, "reward": {"aggregate": "last"}},
    "signals": {
        "policy": "linucb", "alpha": 0.7, **PLAIN, **LOG,
        "signals": {"click": {}, "buy": {"weight": 5, "aggregate": "sum"}, "hide": {"weight": -2}},
    },
    "context": {"policy": "linear_ts", **PLAIN, "context": {"fields": FIELDS}, "interactions": 1},
    "placed": {"policy": "epsilon_greedy", "epsilon": 0.2, **LOG, "position": {"examination": [1, 0.5]}},
    "held-out": {"policy": "linear_ts", **PLAIN, **LOG, "holdout": {"share": 0.5, "serve": {"arms": ["f5"]}}},
    "capped": {"policy": "sub_ts", **PLAIN, "repeats": {"most": 2, "within_s": 86_400}},
    "quotas": {"policy": "sub_ts"},
    "moved": {"policy": "linear_ts", **PLAIN},
    "moved-log": {"policy": "linear_ts", **PLAIN, **LOG},
    "moved-back": {"policy": "linear_ts", **PLAIN},
}  # fmt: skip
# Those that the upgrade changes, or that are fitted again from time to time.
OTHERS: dict[str, Json] = {
    "learned": {"policy": "linear_ts", **PER_KEY, **LOG, "arm_effects": "auto"},
    "auto-1": {"policy": "linear_ts", **PLAIN, "auto": 1},
    "pooled": {"policy": "linear_ts", **PER_KEY, "prior": "pooled", "prior_strength": 2.0},
    "pooled-numbers": {"policy": "linear_ts", **PER_KEY, "prior": "pooled", "ridge": 1.0, "exploration": 0.5},
    "pooled-wide": {"catalogue": "wide", "policy": "linear_ts", **PER_KEY, "prior": "pooled"},
    "pooled-waiting": {
        "policy": "sub_ts", **PER_KEY, "prior": "pooled", "reward": {"wait_s": 600.0, "aggregate": "sum"},
    },
    "shifted": {"policy": "linear_ts", "shift_rewards": True, **LOG},
    "explored": {"policy": "sub_ts", **PLAIN, "explore": {"centers": 2}},
    "elim": {"policy": "sub_elim", "eta": 0.5, "exploration": 0.2},
    "idle": {"policy": "sub_ts", **PLAIN, "idle_ttl_s": 500_000.0},
    "noted": {"policy": "sub_ts", **PLAIN, "constraints": {"rest": {}}},
    "moving": {"policy": "linear_ts", **PLAIN},
}  # fmt: skip
BANDITS = SAME | OTHERS
CHANGED = (
    "auto-1",
    "pooled",
    "pooled-numbers",
    "pooled-wide",
    "explored",
    "noted",
)  # whose learners are noted
PLUGIN = '''
"""A constraint that remembers: an arm rests after it was shown."""
from shortlist_service.constraints import RememberingConstraint, View

class Rest(RememberingConstraint):
    remembers_s = 864_000

    def allow(self, notes, choice, request):
        return View()

    def note(self, shown):
        return "shown"
'''
ENTRY_POINT = "[shortlist.constraints]\nrest = resting:Rest\n"
METADATA = "Metadata-Version: 2.1\nName: resting\nVersion: 1.0\n"


def make_plugin(folder: Path) -> dict[str, str]:
    """A package with a constraint that remembers, and what puts it onto the path of processes."""
    described = folder / "resting-1.0.dist-info"
    described.mkdir(parents=True)
    (folder / "resting.py").write_text(PLUGIN)
    (described / "METADATA").write_text(METADATA)
    (described / "entry_points.txt").write_text(ENTRY_POINT)
    path = Path.cwd(), Path.cwd() / "tests/support", folder
    return {"PYTHONPATH": os.pathsep.join(map(str, path)), "SHORTLIST_PLUGINS": "shortlist-campaigns resting"}


def build(call: Caller, store: redis.Redis) -> None:
    for catalogue, dim in (("shop", 3), ("shop-2", 2), ("wide", 9)):
        ok(call, "PUT", f"/v1/catalogues/{catalogue}", {"dim": dim, "index": {"kind": "exact"}})
        arms = [
            {
                "id": f"f{i}",
                "features": features(i, dim),
                "metadata": {"group": i % 3},
                "tags": ["new"][: i % 2],
            }
            for i in ARMS
        ]
        ok(call, "PUT", f"/v1/catalogues/{catalogue}/arms", {"arms": arms})
    for name, body in BANDITS.items():
        ok(call, "PUT", f"/v1/bandits/{name}", {"catalogue": "shop", **body})
    ok(call, "PUT", "/v1/bandits/quotas/quotas/by-value", {"filter": {"group": 2}, "most": 40})
    ok(call, "PUT", "/v1/bandits/quotas/quotas/one-arm", {"arm": "f1", "most": 2, "per_s": 31_536_000})
    for key in (*KEYS, "dan", "eva", "fay"):
        items = [
            {"id": f"{key}-{i}", "key": key, "arm": f"f{i}", "value": value(i + ord(key[0]))}
            for i in ARMS[:6]
        ]
        ok(call, "POST", "/v1/bandits/learned/observations?wait=applied", {"observations": items})
    ok(call, "POST", "/v1/bandits/learned/prior/refresh", {})
    for name in BANDITS:
        play(call, name, range(4), wait="?wait=applied")
    play(call, "pooled-wide", range(20, 28), wait="?wait=applied")  # enough for tails
    for name, carry in (("moved", "map"), ("moved-log", "log"), ("moved-back", "map")):
        move(call, name, "shop-2", carry)
    move(call, "moved-back", "shop", "auto")
    ok(call, "POST", "/v1/bandits/learned/prior/refresh", {})
    decide(call)
    ok(call, "PATCH", "/v1/bandits/global", {"exploration": 0.25})
    ok(call, "POST", "/v1/bandits/plain/choose", {"key": "cid", "seed": 1}, "forgotten")
    ok(call, "DELETE", "/v1/bandits/plain/learners/cid")
    ok(call, "DELETE", "/v1/bandits/pooled/learners/cid")
    campaigns(call)
    newest = store.xrevrange("shortlist:{p:0}:log", count=1)[0][0].decode()
    milliseconds, _, number = newest.partition("-")
    store.xadd("shortlist:{p:0}:log", BROKEN, id=f"{int(milliseconds) + 1}-{int(number) + 1}")


def move(call: Caller, name: str, catalogue: str, carry: str) -> None:
    ok(call, "POST", f"/v1/bandits/{name}/move", {"catalogue": catalogue, "carry": carry})
    wait_until_sync(lambda: "move" not in call.http.get(f"/v1/bandits/{name}").json(), what="it is moved")
    play(call, name, range(10, 12), wait="?wait=applied")


def play(call: Caller, name: str, numbers: range, *, wait: str = "") -> None:
    """Choices with their rewards."""
    for number in numbers:
        decision = f"{name}-{number}"
        ok(call, "POST", f"/v1/bandits/{name}/choose", question(name, number), decision)
        ok(call, "POST", f"/v1/rewards{wait}", {"rewards": [reward(name, decision, number)]})


def question(name: str, number: int) -> Json:
    key = {"key": KEYS[number % len(KEYS)]} if BANDITS[name].get("scope") == "per_key" else {}
    return {"seed": number, **key, **(SITUATION if name == "context" else {})}


def reward(name: str, decision: str, number: int) -> Json:
    signal_of = {"signal": ("click", "hide")[number % 2]} if name == "signals" else {}
    at = {"at": 1_000 * number + time.time_ns() // 1_000_000 - 60_000} if name == "revised" else {}
    return {"decision": f"{{{decision}}}", "value": value(number), **signal_of, **at}


def decide(call: Caller) -> None:
    """Decisions that are open when the store is kept, and answers that are kept for events."""
    asked: list[tuple[str, str, Json]] = [
        ("late", "waiting", {"key": "ann", "seed": 11}),
        ("slate", "waiting", {"key": "bob", "seed": 12, "k": 3}),
        ("hidden", "waiting", {"key": "bob", "seed": 13, "activate": False}),
        ("pool", "pooled-waiting", {"key": "dan", "seed": 15}),
        ("event", "plain", {"key": "ann", "seed": 19, "event_id": "visit-1"}),
        ("events", "held-out", {"key": "bob", "seed": 20, "k": 3, "event_id": "visit-2"}),
        ("many", "global", {"seed": 21, "k": 8, "event_id": "visit-3"}),
        ("learned", "learned", {"key": "ann", "seed": 22, "k": 2, "event_id": "visit-4"}),
        ("deferred", "capped", {"key": "ann", "seed": 23, "activate": False}),
    ]
    for decision, name, body in asked:
        ok(call, "POST", f"/v1/bandits/{name}/choose", body, decision)


def campaigns(call: Caller) -> None:
    arms = [f"f{i}" for i in range(4)]
    slate = {"id": "slate", "arms": arms, "k": 2, "method": "sa_foa", "noise_range": 1.0, "seed": 1}
    ok(call, "POST", "/v1/slates", slate)
    asked = ok(call, "POST", "/v1/slates/slate/ask", {"count": 6})
    results = [{"pull": pull["pull"], "total": 0.5} for pull in asked["pulls"]][:4]
    ok(call, "POST", "/v1/slates/slate/tell", {"results": results})
    centers = {
        "id": "points",
        "points": ["p0", "p1", "p2"],
        "k": 2,
        "method": "ns_ucb",
        "noise_std": 0.2,
        "seed": 2,
    }
    ok(call, "POST", "/v1/centers", centers)
    ok(call, "POST", "/v1/centers/points/ask", {"count": 3})


def leave_unfolded(call: Caller) -> None:
    """Rewards and moves that whoever opens the store next has to fold."""
    for name in BANDITS:
        play(call, name, range(4, 7))
    ok(call, "POST", "/v1/bandits/moving/move", {"catalogue": "shop-2", "carry": "map"})
    play(call, "moving", range(7, 9))
    ok(call, "DELETE", "/v1/bandits/fading/learners/bob")


def notes_of(call: Caller) -> list[Json]:
    """Calls with their answers, of a store whose log is folded."""
    steps: list[Json] = []

    def ask(method: str, path: str, body: Json = None, name: str | None = None) -> None:
        step = {
            "method": method,
            "path": path,
            "body": body,
            "name": name,
            **call.ask(method, path, body, name),
        }
        steps.append({part: item for part, item in step.items() if item is not None})

    for catalogue in ("shop", "shop-2", "wide"):
        ask("GET", f"/v1/catalogues/{catalogue}/arms")
    learners(ask, precision=True)
    for name in ("moved", "plain", "waiting", "signals", "placed", "held-out"):
        ask("GET", f"/v1/bandits/{name}/versions")
        if "log" in BANDITS[name]:
            ask("GET", f"/v1/bandits/{name}/log")
    ask("GET", "/v1/bandits/capped/learners/ann/exposures")
    ask("GET", "/v1/bandits/quotas/quotas")
    ask("GET", "/v1/slates/slate")
    ask("GET", "/v1/centers/points")
    for name in SAME:
        if name not in {"capped", "quotas"}:
            ask("POST", f"/v1/bandits/{name}/choose", {**question(name, 20), "dry_run": True, "k": 3})
    for event, name, body in (
        ("visit-1", "plain", {"key": "ann", "seed": 19}),
        ("visit-2", "held-out", {"key": "bob", "seed": 20, "k": 3}),
        ("visit-3", "global", {"seed": 21, "k": 8}),
        ("visit-4", "learned", {"key": "ann", "seed": 22, "k": 2}),
    ):
        ask("POST", f"/v1/bandits/{name}/choose", {**body, "event_id": event})
    for number in range(30, 36):  # others than the dry runs: what they charge is there at the next one
        for name in ("held-out", "quotas", "capped"):
            ask("POST", f"/v1/bandits/{name}/choose", question(name, number))
    ask("GET", "/v1/bandits/quotas/quotas")
    ask("POST", "/v1/decisions/activate", {"decisions": ["{hidden}", "{deferred}"]})
    for name in BANDITS:
        if name != "revised":  # of its rewards the last one counts, by a time that is in the test's future
            ask("POST", "/v1/rewards?wait=applied", {"rewards": [reward(name, f"{name}-5", 5)]})
    for name, decision in (
        ("waiting", "late"), ("waiting", "hidden"), ("pooled-waiting", "pool"), ("plain", "event"),
        ("capped", "deferred"), ("plain", "forgotten"),
    ):  # fmt: skip
        for _ in range(2):
            ask("POST", "/v1/rewards?wait=applied", {"rewards": [reward(name, decision, 9)]})
    learners(ask, precision=False)
    return steps


def learners(ask: Any, *, precision: bool) -> None:
    for name in SAME:
        keys = KEYS if BANDITS[name].get("scope") == "per_key" else ["_global"]
        for key in keys:
            query = "?include=precision" if precision and key in {"ann", "_global"} else ""
            ask("GET", f"/v1/bandits/{name}/learners/{key}{query}")


def commands_of(line: Json) -> Iterator[list[str]]:
    """The commands that write a key, of which ``line`` says what it holds."""
    key, value = word(line["key"]), line["value"]
    match line["type"]:
        case "string":
            yield ["SET", key, word(value)]
        case "set":
            yield ["SADD", key, *map(word, value)]
        case "list":
            yield ["RPUSH", key, *map(word, value)]
        case "hash":
            yield ["HSET", key, *(word(part) for pair in value for part in pair)]
        case "zset":
            yield ["ZADD", key, *(part for member, score in value for part in (repr(score), word(member)))]
        case _:
            yield from (["XADD", key, word(number), *map(word, fields)] for number, fields in value)
    if line["ttl_ms"] >= 0:
        yield ["PEXPIRE", key, str(line["ttl_ms"])]


def word(value: Json) -> str:
    """Printable ASCII as it is, and everything else as "=" with its base64."""
    if not isinstance(value, str):
        return f"={value['base64']}"
    assert not value.startswith("=")
    return value


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        kept, names = Path(scratch) / "kept", dict[str, str]()
        clock = Clock(Path(scratch) / "clock")
        settings = {**PARTITIONS, **clock.settings, **make_plugin(Path(scratch) / "plugin")}
        with opened(kept, **settings) as (http, store):
            build(Caller(http, names), store)
            settle(http, store, due=False)
        with opened(kept, "--no-worker", **settings) as (http, store):
            leave_unfolded(Caller(http, names))
        with EmbeddedServer(kept / "data") as server, redis.Redis.from_url(server.url) as store:
            made_s = int(time.time())
            commands = [command for line in dump(store) for command in commands_of(json.loads(line))]
            text = "".join(f"{json.dumps(command, separators=(',', ':'))}\n" for command in commands)
            (folder / "commands.jsonl").write_text(text, "utf-8")
        copy = Path(scratch) / "copy"
        shutil.copytree(kept, copy, ignore=shutil.ignore_patterns("*.sock"))
        with opened(copy, **settings) as (http, store):
            settle(http, store, due=False)
            path = "/v1/bandits/{}/learners/ann"
            changed = {name: http.get(path.format(name)).raise_for_status().json() for name in CHANGED}
            steps = notes_of(Caller(http, dict(names)))
    used = json.dumps(steps)
    named = {name: token for name, token in names.items() if f"{{{name}}}" in used}
    lines = ",\n".join(json.dumps(step, separators=(",", ":")) for step in steps)
    head = json.dumps({"made_s": made_s, "names": named, "changed": changed})[1:-1]
    (folder / "answers.json").write_text(f'{{{head},\n"steps": [\n{lines}\n]}}\n', "utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
