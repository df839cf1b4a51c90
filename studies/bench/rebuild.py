"""`shortlist bench rebuild`: learners computed again from a lake, beside a replay through the service.

Notation
    rewards         observations of keys for arms of dimension 32; of one learner, or of 1,000 keys
    replay_s        from the first request of one client until all are applied, 5,000 in a request
    export_s        `shortlist export log --partition day` of all of them
    rebuild_s       from the lake to the file of learners, in one process
    parts_s         the same as a map of 4 parts and a reduce, one after the other in one process
    speedup         replay_s / rebuild_s
    error           the largest difference from the service's sums, relative to their largest entry

The service is one process with its embedded store, on the same machine.
"""

from __future__ import annotations

import base64
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import pyarrow as pa

from app.records.records import LearnerState, bytes_to_state, state_to_bytes
from examples.service import SHORTLIST, temporary_service
from shortlist_client import Client
from shortlist_client.errors import Unavailable
from shortlist_lake import rebuild
from shortlist_lake.files import Lake
from studies.measurement import report

SEED = 3_607
REWARDS, QUICK_REWARDS = 200_000, 50_000
ARMS, DIM, KEYS, PARTS, TOGETHER = 2_000, 32, 1_000, 4, 5_000
TIMEOUT_S = 600.0
Scope = Literal["global", "per_key"]
SCOPES: Sequence[Scope] = get_args(Scope)


def run(quick: bool) -> dict[str, Any]:
    """Replay, export and rebuild 50,000 (quick) or 200,000 rewards of each scope; print and return rows."""
    count = QUICK_REWARDS if quick else REWARDS
    return report("rebuild", [_measured(scope, count) for scope in SCOPES], seed=SEED)


def _measured(scope: Scope, count: int) -> dict[str, Any]:
    rng = np.random.default_rng(SEED)
    with (
        tempfile.TemporaryDirectory() as folder,
        temporary_service() as service,
        service.connect(timeout_s=TIMEOUT_S) as client,
    ):
        client.put_catalogue("c", dim=DIM)
        features = rng.normal(size=(ARMS, DIM)) / np.sqrt(DIM)
        client.upsert_arms("c", features, ids=[f"a{arm}" for arm in range(ARMS)])
        client.put_bandit("b", catalogue="c", policy="sub_ts", scope=scope)
        replay_s = _timed(lambda: _replay(client, scope, count, rng))
        command = [sys.executable, "-c", SHORTLIST, "export", "log", "b", "--out", f"{folder}/lake"]
        command += ["--partition", "day", "--url", service.url]
        export_s = _timed(lambda: subprocess.run(command, check=True, capture_output=True))  # noqa: S603 - our own command
        found: dict[str, Mapping[str, LearnerState]] = {}
        rebuild_s = _timed(lambda: found.update(one=_written(f"{folder}/lake", Path(folder, "learners"))))
        parts_s = _timed(lambda: found.update(parts=_in_parts(f"{folder}/lake")))
        learners = client.learners("b", include="state")
        true = {each.key: bytes_to_state(base64.b64decode(each.state or "")) for each in learners}
    return {
        "scope": scope,
        "rewards": count,
        "learners": len(true),
        "replay_s": replay_s,
        "export_s": export_s,
        "rebuild_s": rebuild_s,
        "parts_s": parts_s,
        "speedup": replay_s / rebuild_s,
        "error": max(_error(found["one"], true), _error(found["parts"], true)),
    }


def _replay(client: Client, scope: str, count: int, rng: np.random.Generator) -> None:
    for start in range(0, count, TOGETHER):
        arms, values = rng.integers(0, ARMS, TOGETHER).tolist(), rng.normal(size=TOGETHER).tolist()
        keys: list[Any] = [{"key": f"k{key}"} for key in rng.integers(0, KEYS, TOGETHER).tolist()]
        keys = keys if scope == "per_key" else [{}] * TOGETHER
        rows = zip(range(start, start + TOGETHER), arms, values, keys, strict=True)
        items: list[Any] = [{"id": f"o{n}", "arm": f"a{arm}", "value": v, **key} for n, arm, v, key in rows]
        client.observe("b", items)
    while _backlog(client):
        time.sleep(0.02)


def _backlog(client: Client) -> int:
    try:
        return client.ready().backlog
    except Unavailable:  # there is too much
        return 1


def _written(address: str, out: Path) -> Mapping[str, LearnerState]:
    learners = rebuild.rebuilt(Lake(address))
    out.write_bytes(b"".join(state_to_bytes(state) for state in learners.values()))
    return learners


def _in_parts(address: str) -> Mapping[str, LearnerState]:
    lake = Lake(address)
    plan = rebuild.plan_of(lake)
    rewards = pa.concat_tables([lake.read(name, rebuild.COLUMNS) for name in lake.files("rewards")])
    cuts = np.arange(len(rewards)) % PARTS
    parts = [rebuild.mapped(plan, rewards.filter(pa.array(cuts == part))) for part in range(PARTS)]
    return rebuild.finished(plan, reduce(rebuild.merged_parts, parts))


def _error(found: Mapping[str, LearnerState], true: Mapping[str, LearnerState]) -> float:
    if found.keys() != true.keys():
        raise AssertionError("the learners are not those of the service")
    return max(
        float(np.abs(found[key].sums.total - state.sums.total + state.sums.error).max())
        / float(np.abs(state.sums.total).max())
        for key, state in true.items()
    )


def _timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began
