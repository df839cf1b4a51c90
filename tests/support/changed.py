"""Which tests belong to what was changed: ``make test-changed`` runs them.

A file of ``app/NAME/`` belongs to ``tests/NAME``, one of ``algorithms/shortlist/NAME`` to
``algorithms/tests/NAME``, one of ``plugins/NAME/`` to ``plugins/NAME/tests``, a test to itself, a helper of
tests to the files that import it; ``MORE`` and ``ELSEWHERE`` say what does not follow from a name.

A test file that was changed itself runs with its tests that are marked `rest`; of a folder only those
run that `make test` has.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from selection import LOOP

ROOT = Path(__file__).parents[2]
PLUGINS = sorted(path.relative_to(ROOT).as_posix() for path in ROOT.glob("plugins/*/tests"))
FOLDERS = ("tests", "algorithms/tests", *PLUGINS)
DOCUMENTS = ("tests/test_docs.py",)
# Tests in other folders that hold a folder of code.
MORE = {
    "app/api": ("tests/test_golden.py", "tests/clients"),
    "app/engines": ("tests/workers/test_arm_following.py", "plugins/milvus/tests"),
    "app/bandits": ("tests/api",),
    "app/console": ("tests/test_console_types.py",),
    "app/decision_log": ("tests/api/test_decision_log.py",),
    "app/exposure_limits": ("tests/api/test_quotas.py", "tests/api/test_repeats.py", "tests/contracts"),
    "app/filters": ("tests/api/test_filters.py",),
    "app/filtering": ("tests/api/test_filters.py",),
    "app/fold": ("tests/workers", "tests/contracts"),
    "app/learners": ("tests/workers", "tests/rewards"),
    "app/rewards": ("tests/workers", "tests/contracts", "tests/learners"),
    "app/measuring": ("tests/api/test_reports.py", "plugins/evaluation"),
    "app/moving": ("tests/api/test_moving.py", "tests/workers/test_bandit_moves.py"),
    "app/selection": ("tests/policies", "tests/api/test_choosing.py"),
    "app/policies": ("tests/api/test_policy_contract.py", "tests/test_registries.py"),
    "app/serving": ("tests/api/test_constraint_contract.py", "tests/api/test_choosing.py"),
    "app/storage": ("tests/contracts", "tests/test_golden.py"),
    "algorithms/shortlist/index": ("tests/indexes", "tests/filtering"),
    "algorithms/shortlist": ("algorithms/tests/test_battery.py",),
}
# Folders whose tests have another name.
ELSEWHERE = {
    "app/moving": ("tests/fold/test_fold_across_moves.py", "tests/api/test_move_requests.py"),
    "clients/cases": ("tests/clients",),
    "clients/files": ("tests/clients",),
    "clients/python": ("tests/clients",),
    "clients/typescript": ("tests/clients",),
    "deploy": ("tests/test_deploy.py", "tests/test_chart.py"),
    "docs": DOCUMENTS,
    "examples/plugin": ("tests/processes/test_plugins.py", "tests/processes/test_plugin_environment.py"),
    "shortlist_service": ("tests/processes/test_plugins.py", *PLUGINS),
    "shortlist_service/testing": (
        "tests/policies/test_each_policy.py",
        "tests/serving/test_each_constraint.py",
        "tests/indexes/test_index_contract.py",
        "tests/engines",
        "tests/processes/test_plugin_environment.py",
    ),
    "load_tests": DOCUMENTS,
    "tests/golden": ("tests/test_golden.py",),
}
ALWAYS = ("tests/test_architecture.py",)


def tests_of(path: str) -> list[str]:
    """The tests that belong to one file of the project, as paths below it."""
    folder, name = str(Path(path).parent), Path(path).name
    above = [folder, *(str(parent) for parent in Path(folder).parents)]
    elsewhere = [test for parent in above for test in ELSEWHERE.get(parent, ())]
    if elsewhere:
        home = elsewhere
    elif not set(FOLDERS) & set(above):
        home = [_namesake(folder)]
    elif name.startswith("test_"):
        home = [path]
    elif name.endswith(".py") and name != "conftest.py":
        home = importers(path)
    else:
        home = [_with_tests(folder)]
    return [*home, *(test for parent in above for test in MORE.get(parent, ())), *ALWAYS]


def importers(helper: str) -> list[str]:
    """The files of tests that import a helper, also through another helper."""
    sources = {path: path.read_text() for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")}
    modules, files = [_module(ROOT / helper)], dict[Path, None]()
    while modules:
        imports = re.compile(rf"^(?:from|import) {re.escape(modules.pop())}\b", re.MULTILINE)
        for path in [path for path in sources if path not in files and imports.search(sources[path])]:
            files[path] = None
            modules.append(_module(path))
    # What a conftest.py imports reaches its whole folder.
    users = [path.parent if path.name == "conftest.py" else path for path in files]
    tests = [path for path in users if path.is_dir() or path.name.startswith("test_")]
    return [str(path.relative_to(ROOT)) for path in tests]


def _module(path: Path) -> str:
    """The name that tests import a file by: its folder, or `support`, is on the path of modules."""
    support = next((parent for parent in path.parents if parent.name == "support"), path.parent)
    return ".".join(path.relative_to(support).with_suffix("").parts)


def _namesake(folder: str) -> str:
    if folder == ".":
        return DOCUMENTS[0]
    if folder.startswith("algorithms/shortlist"):
        return _with_tests(f"algorithms/tests{folder.removeprefix('algorithms/shortlist')}")
    if folder.startswith("plugins/"):
        return "/".join([*folder.split("/")[:2], "tests"])
    return _with_tests(f"tests/{folder.removeprefix('app/')}")


def _with_tests(folder: str) -> str:
    """The folder, or the one above it that has test files; "tests" of a folder without any is none."""
    path = Path(folder)
    while str(path) not in FOLDERS and not any((ROOT / path).glob("test_*.py")):
        path = path.parent
    return "" if str(path) == "tests" and folder != "tests" else str(path)


def selected(paths: Iterable[str], root: Path = ROOT) -> list[str]:
    """The tests of all these files: no file of a folder that is run whole."""
    wanted = {test for path in paths for test in tests_of(path) if test and (root / test).exists()}
    inside = {test for test in wanted if {str(parent) for parent in Path(test).parents} & wanted}
    return sorted(wanted - inside)


def changed(since: str, root: Path = ROOT) -> list[str]:
    """Files that differ from a commit, and those that git does not know yet."""
    commands = (["diff", "--name-only", "-z", since], ["ls-files", "--others", "--exclude-standard", "-z"])
    texts = [
        subprocess.run(["git", *words], cwd=root, check=True, capture_output=True, text=True).stdout
        for words in commands
    ]
    return [name for name in "".join(texts).split("\0") if name]


def main(since: str, options: Sequence[str]) -> int:
    """Run the tests of what differs from a commit."""
    paths = changed(since)
    tests = selected(paths)
    if not tests:
        print(f"Nothing differs from {since}.")
        return 0
    edited = [path for path in tests if path in paths]
    command = [sys.executable, "-m", "pytest", *options]
    print("The tests of what differs:", *tests, flush=True)
    runs = [(LOOP, [test for test in tests if test not in edited]), ("not slow", edited)]
    codes = [
        subprocess.run([*command, "-m", marks, *part], cwd=ROOT, check=False).returncode
        for marks, part in runs
        if part
    ]
    return max(codes)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
