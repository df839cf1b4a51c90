"""Memory that runs out while a graph is made, in a process of its own: the kernel refuses it."""

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.rest

SCRIPT = """
import asyncio, resource, sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from app.indexes.index_limits import IndexLimits
from app.indexes.live import IndexOptions, LiveIndex
from workers.index_maintenance import maintain

COUNT, DIM = 4_000, 32
features = np.random.default_rng(0).standard_normal((COUNT, DIM))


def answers():
    snapshot = index.snapshot()
    return [snapshot.search(query, 5).rows.tolist() for query in features[:50]]


never_rests = IndexLimits(work_rest=0.0, short_rest=0.0)  # the next try is due at once
index = LiveIndex(DIM, IndexOptions(kind="hnsw", m=8, ef_construction=40), limits=never_rests)
catalogue = SimpleNamespace(name="shop", uid="shop", index=index, in_memory=index)
index.upsert([str(row) for row in range(COUNT)], features, range(COUNT))
before, status = answers(), index.status()

held = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (held + (11 << 20), resource.RLIM_INFINITY))
outcome = asyncio.run(maintain(catalogue))
failure = index.failure
resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
print("failure:", outcome, failure, file=sys.stderr)
assert outcome == "failed", outcome
assert index.status().failure == failure, index.status()
assert index.status().kind == status.kind
assert answers() == before

assert asyncio.run(maintain(catalogue)) == "done"
assert index.status().failure is None
assert index.status().arms_in_graph
"""


# What is freed goes back to the kernel: otherwise only arrays larger than all that was freed are refused.
ALLOCATOR = {"MALLOC_ARENA_MAX": "1", "MALLOC_MMAP_THRESHOLD_": "65536"}


def test_what_served_serves_on_the_reason_is_shown_and_the_next_try_succeeds() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        check=False,
        capture_output=True,
        text=True,
        env=os.environ | ALLOCATOR,
    )
    assert done.returncode == 0, done.stderr
    reason = next(line for line in done.stderr.splitlines() if line.startswith("failure: failed"))
    assert "memory" in reason.lower() or "bad_alloc" in reason, reason
