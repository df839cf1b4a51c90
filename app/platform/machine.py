"""The cores and the memory that this process may use: in a container, less than the machine has."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")
OWN_CGROUP = Path("/proc/self/cgroup")


@cache
def usable_cpus(cgroups: Path = CGROUPS, own_cgroup: Path = OWN_CGROUP) -> int:
    """The number of CPUs of its affinity, and no more than ``cpu.max`` of its control group (version 2),
    rounded up.

    A group has no more than its parents. Later changes are not seen.
    """
    affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    limits = [affinity]
    for text in _limits("cpu.max", cgroups, own_cgroup):
        with suppress(ValueError):  # "max 100000", or microseconds of how many
            quota, period = text.split()
            limits.append(math.ceil(int(quota) / int(period)))
    return max(1, min(limits))


def usable_memory(cgroups: Path = CGROUPS, own_cgroup: Path = OWN_CGROUP) -> int:
    """Bytes of the machine, and no more than ``memory.max`` of its control group gives, as above."""
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for text in _limits("memory.max", cgroups, own_cgroup):
        with suppress(ValueError):  # "max"
            limits.append(int(text))
    return min(limits)


def _limits(name: str, cgroups: Path, own_cgroup: Path) -> Iterator[str]:
    path = Path("/")
    with suppress(OSError):
        for line in own_cgroup.read_text().splitlines():
            if line.startswith("0::"):  # of version 2
                path = Path(line.removeprefix("0::"))
    for group in (path, *path.parents):
        # a container may see only the last of its groups
        with suppress(OSError):
            yield (cgroups / group.relative_to("/") / name).read_text()
