"""Make a store as a version of Shortlist leaves it, and note what that version answers.

    cd A_CHECKOUT_OF_THAT_VERSION
    .venv/bin/python ITS_PLACE/tests/stores/make_store.py FOLDER

writes ``FOLDER/<version>/content.jsonl``, all keys of the store, and ``answers.json``, calls with answers.
Each call stands under ``at_any_time`` or ``at_its_time``: the latter needs the clock of the day on which the
store was made, because decision tokens expire and decisions are waited for until a certain time.

It runs the processes of the checkout with the helpers of the checkout's tests. All data are synthetic.
``make_store_of_1_0.py`` writes the same of what 1.0 added.
"""

from __future__ import annotations

import json
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import httpx
import redis

sys.path += [str(Path.cwd() / "tests"), str(Path.cwd() / "tests" / "support")]

from kept_store import Caller, dump, settle

from app.storage.embedded.server import EmbeddedServer
from clock_shim import Clock
from service_process import serving

Json = Any

POOL_S = 2.0  # a process looks once a second for the newest pooled prior
PARTITIONS = {"SHORTLIST_PARTITIONS": "4"}
KEYS = ("ann", "bob", "cid")
BROKEN = {"b": "0123456789abcdef", "l": "ann", "f": "1", "p": b"no payload"}

PER_KEY = {"scope": "per_key"}
BANDITS: dict[str, Json] = {
    "ts": {"policy": "sub_ts", "ridge": 0.5, "exploration": 0.7},
    "ts-keys": {"policy": "sub_ts", **PER_KEY, "delta": 0.1, "horizon": 500, "shortlist": 5},
    "linear": {"policy": "linear_ts"},
    "linear-keys": {"policy": "linear_ts", **PER_KEY, "exploration": 0.3},
    "adaptive": {"policy": "sub_ts", "solver": "adaptive", "eta": 0.25},
    "soft": {"policy": "softmax", "temperature": 0.4},
    "soft-keys": {"policy": "softmax", **PER_KEY, "temperature": 2.0},
    "elim": {"policy": "sub_elim", "eta": 0.5, "exploration": 0.2},
    "elim-keys": {"policy": "sub_elim", **PER_KEY, "exploration": "theory"},
    "linear-elim": {"policy": "linear_elim", "exploration": 0.5},
    "linear-elim-keys": {"policy": "linear_elim", **PER_KEY},
    "pooled": {"policy": "linear_ts", **PER_KEY, "prior": "pooled", "prior_strength": 2.0},
    "shifted": {"policy": "linear_ts", "shift_rewards": True},
    "summed": {"policy": "sub_ts", **PER_KEY, "reward": {"min": -1.0, "max": 5.0, "aggregate": "sum"}},
}
TIMED: dict[str, Json] = {
    "fading": {"policy": "sub_ts", **PER_KEY, "half_life_s": 3600.0},
    "waiting": {"policy": "linear_ts", **PER_KEY, "reward": {"wait_s": 600.0, "default": 0.25}},
    "waiting-pooled": {
        "policy": "linear_ts", **PER_KEY, "prior": "pooled", "reward": {"wait_s": 600.0, "aggregate": "sum"},
    },
    "shown": {"policy": "sub_ts", **PER_KEY, "explore": {"centers": 3}},
    "idle": {"policy": "sub_ts", **PER_KEY, "idle_ttl_s": 500.0},
}  # fmt: skip
SLATES: dict[str, Json] = {
    "first": {"k": 2, "method": "sa_foa", "noise_range": 1.0, "seed": 1},
    "second": {"k": 2, "method": "saqm", "noise_std": 0.3, "epsilon": 0.2, "seed": 2},
    "third": {"k": 3, "method": "icb", "noise_range": 1.0, "independent_noise": True, "seed": 3},
    "fourth": {"k": 2, "method": "exhaustive", "noise_range": 1.0, "bound": "paper", "seed": 4},
    "fifth": {"k": 2, "method": "sa_foa", "noise_range": 1.0, "allocation": "g", "seed": 5},
    "done": {"k": 2, "method": "sa_foa", "noise_range": 0.1, "epsilon": 1.0, "delta": 0.2, "seed": 6},
}
CENTERS: dict[str, Json] = {
    "ts": {"k": 3, "method": "ns_ts", "noise_std": 0.2, "seed": 1},
    "ucb": {"k": 2, "method": "ns_ucb", "epsilon": 0.1, "first": "p2", "seed": 2},
    "tands": {"k": 2, "method": "ns_tands", "noise": "bernoulli", "threshold": "heuristic", "seed": 3},
    "done": {"k": 2, "method": "ns_ucb", "noise_std": 0.01, "epsilon": 2.0, "seed": 4},
}
POINTS = [f"p{i}" for i in range(6)]
SLATE_ARMS = [f"f{i}" for i in range(5, 11)]


def features(number: int, dim: int) -> list[float]:
    """Numbers in [-1, 1] without a pattern that matters, none of which needs rounding."""
    return [((number * 37 + place * 101 + number * place * 17) % 129 - 64) / 64 for place in range(dim)]


def value(number: int) -> float:
    return ((number * 29) % 41) / 64


def put_arms(call: Caller, catalogue: str, numbers: range, *, shift: int = 0, dim: int = 4) -> None:
    arms = [
        {
            "id": f"f{i}",
            "features": features(i + shift, dim),
            "tags": ["new", f"group-{i % 3}"][: i % 3],
            "metadata": {"year": 1990 + i, "name": f"Film {i} – „é“"} if i % 4 == 0 else {},
        }
        for i in numbers
    ]
    ok(call, "PUT", f"/v1/catalogues/{catalogue}/arms", {"arms": arms})


def ok(call: Caller, method: str, path: str, body: Json = None, name: str | None = None) -> Json:
    found = call.ask(method, path, body, name)
    assert found["status"] < 300, (method, path, found)
    return found["answer"]


def observe(call: Caller, bandit: str, count: int, *, first: int = 0) -> None:
    items = [
        {"id": f"o{i}", "arm": f"f{4 + i % 16}", "value": value(i), **key_of(bandit, i)}
        for i in range(first, first + count)
    ]
    ok(call, "POST", f"/v1/bandits/{bandit}/observations?wait=applied", {"observations": items})


def key_of(bandit: str, number: int) -> Json:
    per_key = (BANDITS | TIMED)[bandit].get("scope") == "per_key"
    return {"key": KEYS[number % len(KEYS)]} if per_key else {}


def choose_and_reward(call: Caller, bandit: str, count: int) -> None:
    for number in range(count):
        name = f"{bandit}-{number}"
        body = {**key_of(bandit, number), "seed": number}
        ok(call, "POST", f"/v1/bandits/{bandit}/choose", body, name)
        reward = {"decision": f"{{{name}}}", "value": value(number)}
        if bandit == "summed":
            reward["reward_id"] = f"r{number}"
        ok(call, "POST", "/v1/rewards?wait=applied", {"rewards": [reward]})


def total(number: int, names: list[str]) -> float:
    """What a campaign is told: the sum of what its arms are worth, and an error that follows the number."""
    return sum(value(int(name[1:])) for name in names) + ((number * 7) % 11 - 5) / 64


def results_of(kind: str, name: str, asked: Json, *, start: int) -> list[Json]:
    """Results for all that was asked; ``start`` is the number of results that were told before."""
    if kind == "slates":
        return [
            {"pull": pull["pull"], "total": total(start + number, pull["slate"])}
            for number, pull in enumerate(asked["pulls"])
        ]
    return [
        {"query": query["query"], "distance": distance(CENTERS[name], start + number, query["pair"])}
        for number, query in enumerate(asked["queries"])
    ]


def distance(campaign: Json, number: int, pair: list[str]) -> float:
    far = abs(value(int(pair[0][1:])) - value(int(pair[1][1:])))
    if campaign.get("noise") == "bernoulli":
        return float((number * 13) % 64 / 64 < far)
    return far + ((number * 7) % 11 - 5) / 256


def build(call: Caller, store: redis.Redis) -> None:
    """Everything that a store can hold, some of it half-way."""
    for name, index in {"films": {"kind": "exact"}, "songs": {"kind": "hnsw", "m": 8}, "gone": {}}.items():
        body = {"dim": 4 if name == "films" else 3, **({"index": index} if index else {})}
        ok(call, "PUT", f"/v1/catalogues/{name}", body)
        put_arms(call, name, range(24 if name == "films" else 12), dim=body["dim"])
    ok(call, "PUT", "/v1/catalogues/empty", {"dim": 2})
    for name, body in (BANDITS | TIMED).items():
        ok(call, "PUT", f"/v1/bandits/{name}", {"catalogue": "films", **body})
        if name == "waiting":  # chosen of features that are replaced below
            ok(call, "POST", f"/v1/bandits/{name}/choose", {"key": "cid", "seed": 5, "k": 3}, "before")
        if name not in {"shown", "idle"}:
            observe(call, name, 6)
        choose_and_reward(call, name, 3)
    decide(call)
    forget(call)
    for name, body in SLATES.items():
        ok(call, "POST", "/v1/slates", {"id": name, "arms": SLATE_ARMS, **body})
        work_on(call, "slates", name)
    for name, body in CENTERS.items():
        ok(call, "POST", "/v1/centers", {"id": name, "points": POINTS, **body})
        work_on(call, "centers", name)
    put_arms(call, "films", range(6), shift=100)
    ok(call, "POST", "/v1/catalogues/films/arms/delete", {"ids": ["f0", "f21", "f22", "f23"]})
    newest = store.xrevrange("shortlist:{p:0}:log", count=1)[0][0].decode()
    milliseconds, _, number = newest.partition("-")
    store.xadd("shortlist:{p:0}:log", BROKEN, id=f"{int(milliseconds) + 1}-{int(number) + 1}")


def work_on(call: Caller, kind: str, name: str) -> None:
    """Answer 20 of 24 questions of a campaign; go on to its end if it is called ``done``."""
    start, done = 0, False
    while not done:
        asked = ok(call, "POST", f"/v1/{kind}/{name}/ask", {"count": 24})
        results = results_of(kind, name, asked, start=start)[:20]
        answer = ok(call, "POST", f"/v1/{kind}/{name}/tell", {"results": results})
        start += 20
        done = name != "done" or answer["done"]


def decide(call: Caller) -> None:
    """Decisions that are open when the store is kept."""
    ok(call, "POST", "/v1/bandits/waiting/choose", {"key": "ann", "seed": 11}, "late")
    ok(call, "POST", "/v1/bandits/waiting/choose", {"key": "bob", "seed": 12, "k": 3}, "slate")
    ok(call, "POST", "/v1/bandits/waiting/choose", {"key": "bob", "seed": 13, "activate": False}, "hidden")
    ok(call, "POST", "/v1/bandits/waiting/choose", {"key": "ann", "seed": 14, "activate": False}, "unseen")
    ok(call, "POST", "/v1/bandits/waiting-pooled/choose", {"key": "dan", "seed": 15}, "new-key")
    ok(call, "POST", "/v1/bandits/fading/choose", {"key": "ann", "seed": 16}, "fading")
    ok(call, "POST", "/v1/bandits/ts/choose", {"seed": 17}, "ts")
    ok(call, "POST", "/v1/bandits/summed/choose", {"key": "ann", "seed": 18}, "summed")
    ok(call, "POST", "/v1/bandits/ts-keys/choose", {"key": "ann", "seed": 19, "event_id": "visit-1"}, "event")
    ok(
        call,
        "POST",
        "/v1/bandits/soft-keys/choose",
        {"key": "bob", "seed": 20, "k": 3, "event_id": "visit-2"},
    )
    ok(call, "POST", "/v1/bandits/elim/choose", {"seed": 21}, "elim")
    for number in range(2):
        ok(call, "POST", "/v1/bandits/shown/choose", {"key": "eve", "seed": number}, f"shown{number}")


def forget(call: Caller) -> None:
    """What was deleted: a learner, a bandit, a catalogue, campaigns."""
    ok(call, "POST", "/v1/bandits/linear-keys/choose", {"key": "cid", "seed": 1}, "forgotten")
    ok(call, "DELETE", "/v1/bandits/linear-keys/learners/cid")
    ok(call, "DELETE", "/v1/bandits/pooled/learners/cid")
    ok(call, "PUT", "/v1/bandits/gone", {"catalogue": "gone", "policy": "sub_ts"})
    ok(call, "POST", "/v1/bandits/gone/choose", {}, "gone")
    ok(call, "POST", "/v1/rewards?wait=applied", {"rewards": [{"decision": "{gone}", "value": 1.0}]})
    ok(call, "DELETE", "/v1/bandits/gone")
    ok(call, "DELETE", "/v1/catalogues/gone")


def leave_unapplied(call: Caller) -> None:
    """Entries of the log that whoever opens the store next has to apply."""
    for name in ("ts", "linear-keys", "pooled", "elim"):
        items = [{"id": f"u{i}", "arm": f"f{9 + i}", "value": value(i), **key_of(name, i)} for i in range(3)]
        ok(call, "POST", f"/v1/bandits/{name}/observations", {"observations": items})


# Calls that are repeated ----------------------------------------------------------------------------
class Notes:
    """Calls with their answers, in order."""

    def __init__(self, call: Caller, clock: Clock, store: redis.Redis) -> None:
        self.call = call
        self.clock = clock
        self.store = store
        self.steps: list[Json] = []

    def ask(self, method: str, path: str, body: Json = None, *, name: str | None = None) -> Json:
        found = self.call.ask(method, path, body, name)
        if "elim" in path and path.endswith("/choose"):
            del found["answer"]  # it follows from what elimination keeps in memory, not from the store alone
        step = {"method": method, "path": path, "body": body, "name": name, **found}
        self.steps.append({key: item for key, item in step.items() if item is not None})
        return found.get("answer")

    def move_clock(self, seconds: int) -> None:
        """The clock goes forward; what becomes due then is done before the next call."""
        self.clock.jump_to(seconds)
        self.steps.append({"clock_s": seconds})
        settle(self.call.http, self.store)

    def learners(self, names: Iterable[str], *, precision: bool = False) -> None:
        time.sleep(POOL_S)
        for name in names:
            per_key = (BANDITS | TIMED)[name].get("scope") == "per_key"
            for key in (*KEYS, "dan") if per_key else ["_global"]:
                query = "?include=precision" if precision and key in {"ann", "_global"} else ""
                self.ask("GET", f"/v1/bandits/{name}/learners/{key}{query}")

    def choices(self, names: Iterable[str], seeds: range) -> None:
        for name in names:
            for seed in seeds:
                body = {**key_of(name, seed), "seed": seed, "k": 1 + seed % 3, "exclude": ["f7"]}
                self.ask("POST", f"/v1/bandits/{name}/choose", body)

    def campaigns(self) -> None:
        for kind, names in {"slates": SLATES, "centers": CENTERS}.items():
            self.ask("GET", f"/v1/{kind}")
            for name in names:
                self.ask("GET", f"/v1/{kind}/{name}")


def at_any_time(notes: Notes) -> None:
    for path in ("/v1/catalogues", "/v1/bandits", "/v1/catalogues/films/arms", "/v1/catalogues/songs/arms"):
        notes.ask("GET", path)
    notes.ask("GET", "/v1/catalogues/films/arms/f0")
    notes.ask("GET", "/v1/bandits/gone")
    notes.ask("POST", "/v1/catalogues/films/mips", {"query": features(7, 4), "k": 3, "method": "exact"})
    notes.learners(BANDITS, precision=True)
    notes.choices(BANDITS, range(3))
    notes.campaigns()
    # and it goes on
    for name in BANDITS:
        new = [
            {"id": f"n{i}", "arm": f"f{6 + i}", "value": value(i + 3), **key_of(name, i)} for i in range(4)
        ]
        known = [{"id": "o1", "arm": "f5", "value": 0.5, **key_of(name, 1)}]
        notes.ask("POST", f"/v1/bandits/{name}/observations?wait=applied", {"observations": new + known})
    settled = [name for name in BANDITS if name != "pooled"]  # which pool a key knows depends on the moment
    for name in settled:
        body = {**key_of(name, 0), "seed": 50}
        notes.ask("POST", f"/v1/bandits/{name}/choose", body, name=f"any-{name}")
        if "elim" not in name:  # the arm that elimination chooses is not recorded
            rewards = [{"decision": f"{{any-{name}}}", "value": 0.75, "reward_id": "any"}]
            notes.ask("POST", "/v1/rewards?wait=applied", {"rewards": rewards})
            notes.ask("POST", "/v1/rewards?wait=applied", {"rewards": rewards})
    notes.learners(BANDITS)
    notes.choices(settled, range(3, 5))
    for kind, names in {"slates": SLATES, "centers": CENTERS}.items():
        for name in names:
            for cycle in range(3):
                asked = notes.ask("POST", f"/v1/{kind}/{name}/ask", {"count": 8})
                results = results_of(kind, name, asked, start=100 + 8 * cycle)
                if results:
                    notes.ask("POST", f"/v1/{kind}/{name}/tell", {"results": results})
    notes.campaigns()
    notes.ask("POST", "/v1/slates/done/teach?wait=applied", {"bandit": "linear-keys", "key": "ann"})
    notes.ask("POST", "/v1/bandits/linear-keys/choose", {"key": "bob", "k": 2, "baseline": "done"})
    notes.ask("PUT", "/v1/catalogues/films/arms", {"arms": [{"id": "f1", "features": features(200, 4)}]})
    notes.ask("POST", "/v1/catalogues/films/arms/delete", {"ids": ["f2", "f99"]})
    notes.learners(["linear-keys"])
    notes.choices(["ts", "linear-keys"], range(8, 10))


def at_its_time(notes: Notes) -> None:
    notes.learners(TIMED, precision=True)
    notes.choices([name for name in TIMED if name not in {"shown", "waiting", "waiting-pooled"}], range(3))
    notes.ask("POST", "/v1/bandits/ts-keys/choose", {"key": "ann", "seed": 19, "event_id": "visit-1"})
    body = {"key": "bob", "seed": 20, "k": 3, "event_id": "visit-2"}
    notes.ask("POST", "/v1/bandits/soft-keys/choose", body)
    notes.ask("POST", "/v1/bandits/shown/choose", {"key": "eve", "seed": 7}, name="shown2")
    single = [
        "ts",
        "event",
        "elim",
        "fading",
        "summed",
        "new-key",
        "shown0",
        "shown2",
        "forgotten",
        "gone",
        "hidden",
    ]
    for name in single:
        rewards = [{"decision": f"{{{name}}}", "value": 0.5, "reward_id": "timed"}]
        notes.ask("POST", "/v1/rewards?wait=applied", {"rewards": rewards})
        notes.ask("POST", "/v1/rewards?wait=applied", {"rewards": rewards})
    damaged = {"decision": "AAAA" + notes.call.names["ts"][4:], "value": 1.0}
    notes.ask("POST", "/v1/rewards", {"rewards": [damaged]})
    shown = {"decisions": ["{hidden}", "{late}"]}
    notes.ask("POST", "/v1/decisions/activate", shown)
    notes.ask("POST", "/v1/decisions/activate", shown)
    hidden = {"rewards": [{"decision": "{hidden}", "value": 0.5}]}
    notes.ask("POST", "/v1/rewards?wait=applied", hidden)
    notes.move_clock(1_000)
    notes.learners(TIMED)
    late = {"rewards": [{"decision": "{late}", "value": 1.5}]}
    notes.ask("POST", "/v1/rewards?wait=applied", late)
    notes.learners(TIMED)


def main(
    folder: Path,
    fill: Callable[[Caller, redis.Redis], None] = build,
    parts: Sequence[Callable[[Notes], None]] = (at_any_time, at_its_time),
) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        kept = Path(scratch) / "kept"
        clock = Clock(Path(scratch) / "clock")
        settings = {**PARTITIONS, **clock.settings}
        names: dict[str, str] = {}
        with opened(kept, **settings) as (http, store):
            fill(Caller(http, names), store)
            settle(http, store, due=False)
        if fill is build:
            with opened(kept, "--no-worker", **settings) as (http, store):
                leave_unapplied(Caller(http, names))
        with EmbeddedServer(kept / "data") as server, redis.Redis.from_url(server.url) as store:
            made_s = int(time.time())
            (folder / "content.jsonl").write_text("".join(f"{line}\n" for line in dump(store)), "utf-8")
        answers: dict[str, Json] = {}
        for part in parts:
            copy = Path(scratch) / part.__name__
            shutil.copytree(kept, copy, ignore=shutil.ignore_patterns("*.sock"))
            with opened(copy, **settings) as (http, store):
                settle(http, store, due=False)
                notes = Notes(Caller(http, dict(names)), clock, store)
                part(notes)
            answers[part.__name__] = notes.steps
    used = json.dumps(answers)
    answers["names"] = {name: token for name, token in names.items() if f"{{{name}}}" in used}
    answers["made_s"] = made_s
    lines = ",\n".join(f"{json.dumps(name)}: {_lines(part)}" for name, part in answers.items())
    (folder / "answers.json").write_text(f"{{\n{lines}\n}}\n", "utf-8")


@contextmanager
def opened(folder: Path, *arguments: str, **settings: str) -> Iterator[tuple[httpx.Client, redis.Redis]]:
    """A client of a service, and one of its store; at the end the service is stopped."""
    path = str(folder / "data" / "server.sock")
    with serving(folder, *arguments, **settings) as service:
        with (
            httpx.Client(base_url=service.url, timeout=60) as http,
            redis.Redis(unix_socket_path=path) as store,
        ):
            yield http, store
        service.send(signal.SIGTERM)
        assert service.wait() == 0


def _lines(part: Json) -> str:
    """JSON with one line for each call."""
    if not isinstance(part, list):
        return json.dumps(part)
    return "[\n" + ",\n".join(json.dumps(step, separators=(",", ":")) for step in part) + "\n]"


if __name__ == "__main__":
    main(Path(sys.argv[1]) / version("shortlist"))
