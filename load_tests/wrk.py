"""Runs wrk with one of the scenarios."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from examples.service import Server

SCENARIOS = Path(__file__).parent / "scenarios"
GRACE_S = 30


class LoadError(Exception):
    """A measurement that says nothing: wrk is missing, or requests failed."""


@dataclass(frozen=True)
class Run:
    """One run. ``cpu_us`` is the time of the server's process per request, where the system tells it."""

    requests: int
    seconds: float
    p50_ms: float
    p99_ms: float
    cpu_us: float | None

    @property
    def per_s(self) -> float:
        return self.requests / self.seconds


def check() -> None:
    """Raise LoadError when there is no wrk."""
    if shutil.which("wrk") is None:
        raise LoadError(
            "wrk is not on the PATH: install it (apt install wrk, brew install wrk) and try again"
        )


def start(
    server: Server, scenario: str, *arguments: object, seconds: int, connections: int
) -> subprocess.Popen[str]:
    """Start wrk on one thread, so that a scenario can count."""
    script = str(SCENARIOS / f"{scenario}.lua")
    options = ["-t", "1", "-c", str(connections), "-d", f"{seconds}s", "-s", script]
    command = ["wrk", *options, server.url, "--", *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def drive(server: Server, scenario: str, *arguments: object, seconds: int, connections: int) -> Run:
    """Run wrk to its end. Raises LoadError when a request failed: a ceiling of refusals is none."""
    before = cpu_s(server.pid)
    process = start(server, scenario, *arguments, seconds=seconds, connections=connections)
    try:
        return finish(process, server, before, seconds)
    finally:
        process.kill()
        process.wait()


def finish(process: subprocess.Popen[str], server: Server, cpu_before: float | None, seconds: int) -> Run:
    """Wait for wrk and read what it says."""
    output, _ = process.communicate(timeout=seconds + GRACE_S)
    if process.returncode != 0:
        raise LoadError(f"wrk failed:\n{output}")
    said = json.loads(output.splitlines()[-1])
    refused, broken = said.pop("refused"), said.pop("broken")
    if refused or broken or not said["requests"]:
        raise LoadError(f"of {said['requests']} requests {refused} were refused and {broken} broke")
    after = cpu_s(server.pid)
    spent = None if cpu_before is None or after is None else 1e6 * (after - cpu_before) / said["requests"]
    return Run(**said, cpu_us=spent)


def family_cpu_s(pid: int) -> float | None:
    """The time of a process and of those it has started, such as its store; None where it is unknown."""
    try:
        found = Path(f"/proc/{pid}/task").glob("*/children")
        children = [int(child) for path in found for child in path.read_text().split()]
    except OSError:
        return None
    times = [cpu_s(each) for each in (pid, *children)]
    return sum(time for time in times if time is not None) if times[0] is not None else None


def cpu_s(pid: int) -> float | None:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
