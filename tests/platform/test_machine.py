"""The cores and the memory that a process may use: the least that it and its control groups give."""

import os
from pathlib import Path

import pytest

from app.platform.machine import usable_cpus, usable_memory

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


def test_the_least_memory_of_any_group_counts(tmp_path: Path):
    of_machine = usable_memory(tmp_path, tmp_path / "own")
    assert of_machine > 1 << 20
    (tmp_path / "own").write_text("0::/pods/web")
    (tmp_path / "pods/web").mkdir(parents=True)
    (tmp_path / "pods/web/memory.max").write_text("max\n")
    assert usable_memory(tmp_path, tmp_path / "own") == of_machine
    (tmp_path / "pods/memory.max").write_text("1048576\n")
    assert usable_memory(tmp_path, tmp_path / "own") == 1 << 20
