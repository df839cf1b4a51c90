"""How fast `shortlist import` reads files into a service: arms a second, from NPY and Parquet.

    python -m load_tests.file_import [--arms N] [--dim N] [--kind auto] [--json FILE]

The time is that of the whole command: its start, the check of the file, and sending; the memory is the most
that the command has had. ``--kind`` is that of the catalogue's index, which is built while arms come in.
Parquet needs the extra of that name.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from examples.service import temporary_service
from shortlist_client import Client
from studies.measurement import report

ARMS, DIM, SEED = 500_000, 32, 1
# The command, which ends with what Linux knows of its memory: there, what a parent has used does not count.
COMMAND = (
    "import sys; from server.cli import main; status = main(); "
    "print(open('/proc/self/status').read()); sys.exit(status)"
)
PEAK_KB = re.compile(r"VmHWM:\s*(\d+) kB")


def main(arguments: list[str] | None = None) -> int:
    """Measure, print, and write the figures."""
    parser = argparse.ArgumentParser(prog="python -m load_tests.file_import", description=__doc__)
    parser.add_argument("--arms", type=int, default=ARMS)
    parser.add_argument("--dim", type=int, default=DIM)
    parser.add_argument("--kind", choices=("auto", "exact", "hnsw"), default="auto")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write machine, versions and all figures")
    parsed = parser.parse_args(arguments)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for path in _files(Path(folder), parsed.arms, parsed.dim):
            rows.append(_row(path, parsed.arms, parsed.dim, parsed.kind))
            row = rows[-1]
            print(
                f"{row['file']:8} {row['arms_per_s']:9,.0f} arms a second {row['peak_mb']:5.0f} MB",
                flush=True,
            )
    if parsed.json is not None:
        parsed.json.write_text(json.dumps(report("file_import", rows, seed=SEED), indent=1) + "\n")
    return 0


def _files(folder: Path, arms: int, dim: int) -> list[Path]:
    """The same arms as a matrix and as a table."""
    rows = np.random.default_rng(SEED).normal(size=(arms, dim)).astype(np.float32)
    ids = [f"arm-{number}" for number in range(arms)]
    np.save(folder / "arms.npy", rows)
    (folder / "arms.ids").write_text("\n".join(ids) + "\n")
    features = pa.FixedSizeListArray.from_arrays(pa.array(rows.reshape(-1)), dim)
    pq.write_table(pa.table({"id": ids, "features": features}), folder / "arms.parquet")
    return [folder / "arms.npy", folder / "arms.parquet"]


def _row(path: Path, arms: int, dim: int, kind: Literal["auto", "exact", "hnsw"]) -> dict[str, Any]:
    """One import into a service of its own."""
    with temporary_service() as server:
        url = server.url
        with Client(url) as client:
            client.put_catalogue("c", dim=dim, index={"kind": kind})
            began = time.perf_counter()
            command = [sys.executable, "-c", COMMAND, "import", "c", str(path), "--url", url]
            ended = subprocess.run(command, check=True, capture_output=True, text=True)
            seconds = time.perf_counter() - began
            assert client.get_catalogue("c").size == arms
    peak = PEAK_KB.search(ended.stdout)
    assert peak is not None, ended.stdout
    return {
        "file": path.suffix.removeprefix("."),
        "arms": arms,
        "dim": dim,
        "kind": kind,
        "seconds": seconds,
        "arms_per_s": arms / seconds,
        "peak_mb": int(peak[1]) / 1_024,
    }


if __name__ == "__main__":
    raise SystemExit(main())
