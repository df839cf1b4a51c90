"""How many cores this process may use, which in a container are fewer than the machine has."""

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
    """Those of its affinity, and no more than ``cpu.max`` of its control group (version 2) gives, rounded up.

    A group has no more than those that it is in. What changes later is not seen.
    """
    affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min([affinity, *_quotas(cgroups, own_cgroup)]))


def _quotas(cgroups: Path, own_cgroup: Path) -> Iterator[int]:
    path = Path("/")
    with suppress(OSError):
        for line in own_cgroup.read_text().splitlines():
            if line.startswith("0::"):  # of version 2
                path = Path(line.removeprefix("0::"))
    for group in (path, *path.parents):
        # "max 100000", or microseconds of how many; a container may see only the last of its groups
        with suppress(OSError, ValueError):
            quota, period = (cgroups / group.relative_to("/") / "cpu.max").read_text().split()
            yield math.ceil(int(quota) / int(period))
