"""Which tests belong to what was changed: ``make test-changed`` runs them.

A file of ``app/NAME/`` belongs to ``tests/NAME``, one of ``algorithms/shortlist/NAME`` to
``algorithms/tests/NAME``, a test to itself; ``MORE`` and ``ELSEWHERE`` say what does not follow from a name.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCUMENTS = ("tests/test_docs.py", "tests/test_papers.py", "tests/test_figures.py")
# Tests in other folders that hold a folder of code.
MORE = {
    "app/api": ("tests/test_golden.py", "tests/clients"),
    "app/bandits": ("tests/api",),
    "app/campaigns": ("tests/api/test_center_campaigns.py", "tests/api/test_slates.py"),
    "app/quotas": ("tests/api/test_quotas.py", "tests/contracts"),
    "app/decision_log": ("tests/api/test_decision_log.py",),
    "app/frequency_caps": ("tests/api/test_repeats.py", "tests/contracts/test_store_frequency_caps.py"),
    "app/filters": ("tests/api/test_filters.py",),
    "app/filtering": ("tests/api/test_filters.py",),
    "app/learning": ("tests/workers", "tests/contracts"),
    "app/measuring": ("tests/api/test_reports.py", "tests/api/test_evaluations.py"),
    "app/moving": ("tests/api/test_moving.py", "tests/workers/test_carrying.py"),
    "app/policies": ("tests/api/test_policy_contract.py", "tests/test_registries.py"),
    "app/serving": ("tests/api/test_constraint_contract.py", "tests/api/test_choosing.py"),
    "app/storage": ("tests/contracts", "tests/test_golden.py"),
    "algorithms/shortlist": ("algorithms/tests/test_battery.py",),
}
# Folders of code whose tests have another name.
ELSEWHERE = {
    "app/moving": ("tests/learning/test_fold_across_moves.py", "tests/api/test_moving_exactly.py"),
    "clients/cases": ("tests/clients",),
    "clients/python": ("tests/clients",),
    "clients/typescript": ("tests/clients",),
    "deploy": ("tests/test_deploy.py", "tests/test_chart.py"),
    "docs": DOCUMENTS,
    "load_tests": DOCUMENTS,
}
ALWAYS = ("tests/test_architecture.py",)


def tests_of(path: str) -> list[str]:
    """The tests that belong to one file of the project, as paths below it."""
    if "tests" in path.split("/"):
        is_test = Path(path).name.startswith("test_")
        return [path if is_test else str(Path(path).parent)]
    folder = str(Path(path).parent)
    above = [folder, *(str(parent) for parent in Path(folder).parents)]
    home = [test for name in above for test in ELSEWHERE.get(name, ())] or [_namesake(folder)]
    return [*home, *(test for name in above for test in MORE.get(name, ())), *ALWAYS]


def _namesake(folder: str) -> str:
    if folder == "algorithms/shortlist":
        return "algorithms/tests"
    if folder.startswith("algorithms/shortlist/"):
        return f"algorithms/tests/{folder.split('/')[2]}"
    return f"tests/{folder.removeprefix('app/')}" if folder != "." else DOCUMENTS[0]


def selected(paths: Iterable[str], root: Path = ROOT) -> list[str]:
    """The tests of all these files: no file of a folder that is run whole."""
    wanted = {test for path in paths for test in tests_of(path) if (root / test).exists()}
    inside = {test for test in wanted if {str(parent) for parent in Path(test).parents} & wanted}
    return sorted(wanted - inside)


def changed(since: str) -> list[str]:
    """Files that differ from a commit, and those that git does not know yet."""
    commands = (["diff", "--name-only", since], ["ls-files", "--others", "--exclude-standard"])
    texts = [
        subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True, text=True).stdout
        for words in commands
    ]
    return "".join(texts).split()


if __name__ == "__main__":
    print(*selected(changed(sys.argv[1])))
