"""`make figures`: the files of the README's figures, and of those of the documents, one after the other.

    python -m studies.figures [--minutes N] [--data DIR]

Nothing else should run meanwhile: the figures are of times. A step that has no time left, fails, or lacks
what it needs leaves its file as it was. All such steps are named at the end, and those that take hours.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from examples.service import SHORTLIST

MINUTES = 40.0
FILES, PAGE = "docs/figures", "docs/measurements.md"
_ROOT = Path(__file__).parents[1]
_STOP_S = 60.0  # until a step has stopped the services that it started


@dataclass(frozen=True, slots=True)
class Step:
    """One command of Python. ``seconds``: what it takes on two cores of the machine of docs/measurements.md.

    ``lacks``: why it cannot run here; empty: it can.
    """

    name: str
    arguments: Sequence[str]
    seconds: float
    lacks: str = ""


def steps(data: Path | None) -> list[Step]:
    """All steps, the figures of the README first. ``data``: a folder of MovieLens, for the demonstration."""
    found = [
        _bench("choose", 150, "--quick"),
        _bench("growth", 100, "--quick"),
        _bench("regret", 40, "--quick"),
        _bench("churn", 120, "--quick"),
        Step(
            "load",
            ["-m", "load_tests.http_ceiling", "--json", "load_tests/results/http.json"],
            220,
            "" if shutil.which("wrk") else "wrk is not installed",
        ),
        Step(
            "demo",
            [
                *("-m", "examples.demo", "--data", str(data), "--users", "100", "--rounds", "100"),
                *("--json", f"{FILES}/demo.json", "--picture", f"{FILES}/demo.svg"),
            ],
            180,
            "" if data else "it needs DATA=, a folder of MovieLens",
        ),
        _bench("peers", 260, "--quick"),
    ]
    for name in ("people", "peers"):
        files = (f"{FILES}/{name}.json", f"{FILES}/{name}.svg", PAGE)
        found.append(Step(f"page of {name}", ["-m", f"studies.bench.{name}_page", *files], 2))
    slates = ("-m", "studies.experiments.slate_plot", f"{FILES}/slates.json", f"{FILES}/slates.svg")
    return [*found, Step("page of slates", slates, 5)]


LONGER = (
    "people: shortlist bench people --data DIR --json docs/figures/people.json (hours)",
    "personalizer: shortlist bench personalizer --json docs/figures/personalizer.json (half an hour)",
    "slates: shortlist reproduce slates-figures (an hour)",
    "replicas, scale, failover, ingestion, soak: load_tests/README.md",
)


def _bench(name: str, seconds: float, *options: str) -> Step:
    arguments = ("-c", SHORTLIST, "bench", name, *options, "--json", f"{FILES}/{name}.json")
    return Step(name, arguments, seconds)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the steps; the exit status is 1 when one failed."""
    parser = argparse.ArgumentParser(prog="python -m studies.figures", description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=MINUTES, help="at most; default: %(default).0f")
    parser.add_argument("--data", type=Path, help="a MovieLens directory, for the demonstration")
    parsed = parser.parse_args(arguments)
    return run(steps(parsed.data), 60.0 * parsed.minutes)


def run(todo: Sequence[Step], seconds: float, clock: Callable[[], float] = time.monotonic) -> int:
    """Run the steps for at most so many seconds; 1 when one failed."""
    ends, skipped, failed = clock() + seconds, list[str](), False
    for step in todo:
        left = max(ends - clock(), 0.0)
        lacks = step.lacks
        if not lacks and left < step.seconds:
            lacks = f"it takes {step.seconds:.0f} s, {left:.0f} s are left"
        if lacks:
            skipped.append(f"{step.name}: {lacks}")
            continue
        print(f"== {step.name}", flush=True)
        status = _status(step.arguments, left)
        if status is None:
            skipped.append(f"{step.name}: it was stopped after {left:.0f} s")
        elif status != 0:
            skipped.append(f"{step.name}: it failed with status {status}")
            failed = True
    for each in skipped:
        print(f"skipped: {each}")
    for each in LONGER:
        print(f"not renewed here: {each}")
    return int(failed)


def _status(arguments: Sequence[str], seconds: float) -> int | None:
    """The exit status of a command; None when it was stopped after so many seconds."""
    with subprocess.Popen([sys.executable, *arguments], cwd=_ROOT) as process:  # noqa: S603 - the steps above
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.terminate()
        try:
            process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
    return None


if __name__ == "__main__":
    sys.exit(main())
