"""What every benchmark ends with: a table to read, and a record that says where it was measured."""

from __future__ import annotations

import os
import platform
import resource
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_info

from app.platform.command_line import table

PACKAGES = ("shortlist", "shortlist-service", "numpy", "scipy", "hnswlib", "redis", "fastapi", "uvicorn")


def report(name: str, rows: Sequence[Mapping[str, Any]], *, seed: int) -> dict[str, Any]:
    """Print ``rows`` as a table; return their ``record``."""
    print(table(rows))
    return record(name, rows, seed=seed)


def record(name: str, rows: Sequence[Mapping[str, Any]], *, seed: int) -> dict[str, Any]:
    """Return ``rows`` with what was run, the machine, the versions and the seed."""
    return {
        "benchmark": name,
        "machine": machine(),
        "versions": {package: version(package) for package in PACKAGES},
        "seed": seed,
        "rows": list(rows),
    }


def machine() -> dict[str, Any]:
    """What the figures depend on: processor, cores, memory, Python, BLAS and its threads."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 1),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "system": platform.platform(),
        "python": platform.python_version(),
        "blas": [
            {key: library[key] for key in ("internal_api", "version", "num_threads", "architecture")}
            for library in threadpool_info()
            if library["user_api"] == "blas"
        ],
    }


def peak_mb() -> float:
    """The largest memory that this process has had, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1_024


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor()
