"""A log that is exported as a lake through kills: whether each row is there once, and how fast it goes.

    python -m load_tests.lake_export [--quick] [--json FILE]

Decisions are made and rewarded, and observations sent. Then `shortlist export log --partition day` is killed
(SIGKILL) five times, each time within a second after it has brought a further sixth of the rows, and runs to
its end. Every run goes on where the one before was. Needs the extra ``lake``.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from app.platform.errors import ShortlistError
from examples.service import SHORTLIST, temporary_service
from shortlist_client import Client
from shortlist_client.errors import Unavailable
from shortlist_lake.files import Lake
from studies.measurement import report

SEED = 36
KILLS = 5
ROWS, QUICK_ROWS = 1_000_000, 300_000
ARMS, DIM, TOGETHER = 500, 16, 5_000


def main(arguments: list[str] | None = None) -> int:
    """Measure, print, and write the figures; 1 if a row is missing, or there twice."""
    parser = argparse.ArgumentParser(prog="python -m load_tests.lake_export", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="300,000 rows, not 1,000,000")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write machine, versions and every ratio")
    parsed = parser.parse_args(arguments)
    row = _measured(QUICK_ROWS if parsed.quick else ROWS)
    result = report("lake_export", [row], seed=SEED)
    if parsed.json is not None:
        parsed.json.write_text(json.dumps(result, indent=1) + "\n")
    return 0 if row["missing"] == row["twice"] == 0 else 1


def _measured(rows: int) -> dict[str, Any]:
    """A fifth of the rows are decisions, as many are their rewards, and the rest are observations."""
    rng = random.Random(SEED)
    with (
        tempfile.TemporaryDirectory() as folder,
        temporary_service() as service,
        service.connect(timeout_s=600.0) as client,
    ):
        tokens = _fill(client, rows // 5, rows - 2 * (rows // 5))
        command = [sys.executable, "-c", SHORTLIST, "export", "log", "b", "--out", f"{folder}/lake"]
        command += ["--partition", "day", "--url", service.url]
        kills, began = 0, time.monotonic()
        for kill in range(1, KILLS + 1):
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            while process.poll() is None and _there(f"{folder}/lake") < rows * kill / (KILLS + 1):
                time.sleep(0.05)
            time.sleep(rng.random())
            kills += process.poll() is None
            process.kill()
            process.wait()
        subprocess.run(command, check=True, capture_output=True)
        seconds = time.monotonic() - began
        return {
            "rows": rows,
            "kills": kills,
            "seconds": seconds,
            **_counted(Lake(f"{folder}/lake"), tokens, rows),
        }


def _fill(client: Client, decisions: int, observations: int) -> list[str]:
    """Returns the tokens of the decisions, when all rows are written."""
    rng = np.random.default_rng(SEED)
    client.put_catalogue("c", dim=DIM)
    client.upsert_arms("c", rng.normal(size=(ARMS, DIM)), ids=[f"a{arm}" for arm in range(ARMS)])
    client.put_bandit("b", catalogue="c", policy="sub_ts", scope="per_key", log={})
    tokens: list[str] = []
    for start in range(0, decisions, TOGETHER):
        some = range(start, min(start + TOGETHER, decisions))
        choices = client.choose_batch("b", [{"key": f"u{number % 997}"} for number in some]).results
        client.reward_batch([{"decision": choice.decision, "value": 1.0} for choice in choices])
        tokens += [choice.decision for choice in choices]
    for start in range(0, observations, TOGETHER):
        some = range(start, min(start + TOGETHER, observations))
        client.observe(
            "b",
            [{"id": f"o{n}", "arm": f"a{n % ARMS}", "value": n % 7, "key": f"u{n % 997}"} for n in some],
        )
    while _backlog(client):
        time.sleep(0.1)
    time.sleep(3.0)
    return tokens


def _backlog(client: Client) -> int:
    try:
        return client.ready().backlog
    except Unavailable:  # there is too much
        return 1


def _there(address: str) -> int:
    """How many rows are in the lake, but for arms."""
    try:
        rows = Lake(address).manifest["rows"]
    except ShortlistError:  # not yet
        return 0
    return int(rows["decisions"] + rows["rewards"])


def _counted(lake: Lake, tokens: list[str], rows: int) -> dict[str, int]:
    decided = _column(lake, "decisions", "decision")
    rewarded, observed = _column(lake, "rewards", "decision_id"), _column(lake, "rewards", "observation_id")
    ids = [each for each in (*rewarded, *observed) if each is not None]
    return {
        "commits": lake.manifest["commit"],
        "missing": len(set(tokens) - set(decided)) + rows - len(tokens) - len(set(ids)),
        "twice": len(decided) - len(set(decided)) + len(ids) - len(set(ids)),
    }


def _column(lake: Lake, table: str, name: str) -> list[Any]:
    found: list[Any] = []
    for file in lake.files(table):
        for batch in lake.batches(file, 1 << 16, [name]):
            found += batch.column(0).to_pylist()
    return found


if __name__ == "__main__":
    sys.exit(main())
