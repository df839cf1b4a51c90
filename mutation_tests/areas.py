"""What is mutated, and the tests that should notice: the quick ones first, for a run ends with a failure."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
ALGORITHMS = "algorithms/shortlist"
TESTS = "algorithms/tests"


@dataclass(frozen=True, slots=True)
class Area:
    """``sources``: patterns of files that are mutated. ``tests``: what is run, in this order.

    The statistical tests are not among them: a mistake should be noticed by a test that draws nothing.

    ``plugins``: plugins of pytest that the tests need. ``conftest``: whether they need ``tests/conftest.py``,
    which makes a store; without it a run starts much sooner.
    """

    sources: tuple[str, ...]
    tests: tuple[str, ...]
    plugins: tuple[str, ...] = ("pytest_timeout",)
    conftest: bool = False

    def files(self, root: Path = ROOT) -> list[Path]:
        """The files that are mutated, as paths below ``root``, in a fixed order."""
        found = {path.relative_to(root) for pattern in self.sources for path in root.glob(pattern)}
        return sorted(path for path in found if path.name != "__init__.py")

    def test_files(self, root: Path = ROOT) -> list[str]:
        """The files of ``tests``, those of a folder that are not named by themselves in its place.

        Given a folder and files of it, pytest would run them in the order of their names.
        """
        found: dict[str, None] = {}
        for test in self.tests:
            inside = sorted((root / test).rglob("test_*.py"))
            named = [str(path.relative_to(root)) for path in inside] or [test]
            found |= dict.fromkeys(name for name in named if name not in found)
        return list(found)


AREAS = {
    "bounds": Area(
        (f"{ALGORITHMS}/*.py",),
        (
            f"{TESTS}/mips/test_mips_constants.py",
            f"{TESTS}/test_checks.py",
            f"{TESTS}/test_confidence.py",
            f"{TESTS}/test_finite_population.py",
            f"{TESTS}/test_battery.py",
        ),
    ),
    "evaluation": Area(
        (f"{ALGORITHMS}/evaluation/*.py",),
        (f"{TESTS}/evaluation",),
    ),
    "embedding": Area(
        (f"{ALGORITHMS}/embedding/*.py",),
        (f"{TESTS}/embedding",),
    ),
    "kcenter": Area(
        (f"{ALGORITHMS}/kcenter/*.py",),
        (
            f"{TESTS}/kcenter/test_kcenter_steps.py",
            f"{TESTS}/kcenter/test_kcenter_constants.py",
            f"{TESTS}/kcenter/test_intervals.py",
            f"{TESTS}/kcenter/test_naive_greedy.py",
            f"{TESTS}/kcenter/test_tracking_weights.py",
            f"{TESTS}/kcenter",
        ),
    ),
    "linear": Area(
        (f"{ALGORITHMS}/linear/*.py",),
        (
            *(f"{TESTS}/linear/test_{name}.py" for name in ("sub_elim", "elimination", "ridge_sums")),
            f"{TESTS}/linear",
        ),
    ),
    "mips": Area(
        (f"{ALGORITHMS}/mips/*.py", f"{ALGORITHMS}/mips/screening/*.py"),
        (f"{TESTS}/mips/test_mips_constants.py", f"{TESTS}/mips"),
    ),
    "sampling": Area(
        (f"{ALGORITHMS}/sampling/*.py",),
        (
            f"{TESTS}/sampling/test_sampler_steps.py",
            f"{TESTS}/sampling/test_sampler_constants.py",
            f"{TESTS}/sampling/test_races.py",
            f"{TESTS}/sampling",
        ),
    ),
    "slates": Area(
        (f"{ALGORITHMS}/slates/*.py",),
        (
            *(f"{TESTS}/slates/test_{name}.py" for name in ("slate_constants", "certified_bounds")),
            f"{TESTS}/slates",
        ),
    ),
    # The one function that decides what a log says about learners.
    "fold": Area(
        ("app/fold/fold.py",),
        (
            "tests/fold/test_fold_by_hand.py",
            "tests/fold",
            "tests/rewards",
            "tests/learners",
            "tests/contracts/test_store_folding.py",
            "tests/contracts/test_store_tails.py",
            "tests/workers/test_reward_ingestion.py",
            "tests/workers/test_workers_on_one_log.py",
        ),
        plugins=("pytest_timeout", "anyio.pytest_plugin"),
        conftest=True,
    ),
    # What else the library has of indexes; those of the service are tested by it as well.
    "index": Area(
        tuple(
            f"{ALGORITHMS}/index/{name}.py"
            for name in (
                "arm_ids",
                "arm_index",
                "arrays",
                "cancellation",
                "graph_file",
                "hnsw",
                "hnsw_build",
                "index",
                "inverted_file",
                "probes",
                "quality",
                "searched_table",
                "shared_format",
                "table",
            )
        ),
        (f"{TESTS}/index", f"{TESTS}/linear/test_linear_bandit.py", "tests/indexes"),
        plugins=("pytest_timeout", "anyio.pytest_plugin"),
        conftest=True,
    ),
    # What decides that an answer is exact.
    "exact": Area(
        (
            *(f"{ALGORITHMS}/index/{name}.py" for name in ("exact", "norm_pruned", "planner")),
            "app/indexes/filtered_search.py",
            "app/filtering/filter_plan.py",
            "app/filtering/index_search.py",
            "app/filtering/row_copy.py",
        ),
        (
            "tests/indexes/test_search_plans.py",
            "algorithms/tests/index/test_planner.py",
            "tests/indexes/test_planner_rules.py",
            "algorithms/tests/index/test_exact_searches.py",
            "tests/filtering",
            "tests/indexes/test_live.py",
        ),
        plugins=("pytest_timeout", "anyio.pytest_plugin"),
        conftest=True,
    ),
}


@contextmanager
def copied() -> Iterator[Path]:
    """A copy of what git knows, or would, in a temporary folder."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split("\0")
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        for name in names:
            if name and (ROOT / name).is_file():
                target = Path(folder, name)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(ROOT / name, target)
        yield Path(folder)
