"""How many cores a process may use: the fewest that its affinity and its control groups give."""

import os
from pathlib import Path

import pytest

from app.platform.cpus import usable_cpus

pytestmark = pytest.mark.rest


def counted(folder: Path, own: str, **quotas: str) -> int:
    for group, quota in quotas.items():
        place = folder / "cgroup" / group.replace("_", "/").strip("/")
        place.mkdir(parents=True, exist_ok=True)
        (place / "cpu.max").write_text(quota)
    (folder / "own").write_text(own)
    return usable_cpus(folder / "cgroup", folder / "own")


@pytest.mark.parametrize(
    ("own", "quotas", "most"),
    [
        ("0::/", {}, None),
        ("0::/", {"_": "max 100000"}, None),
        ("0::/", {"_": "100000 100000"}, 1),
        ("0::/", {"_": "150000 100000"}, 2),
        ("0::/pods/web", {"pods": "50000 100000", "pods_web": "max 100000"}, 1),
        ("0::/gone/elsewhere", {"_": "20000 100000"}, 1),  # a container that sees its own group as the root
        ("4:cpu:/old\n", {"_": "nonsense"}, None),
    ],
)
def test_a_quota_of_any_group_counts(tmp_path: Path, own: str, quotas: dict[str, str], most: int | None):
    of_affinity = len(os.sched_getaffinity(0))
    assert counted(tmp_path, own, **quotas) == min(of_affinity, most or of_affinity)


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="there is one core")
def test_affinity_counts(tmp_path: Path):
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    try:
        assert counted(tmp_path, "0::/", _="max 100000") == 1
    finally:
        os.sched_setaffinity(0, before)
