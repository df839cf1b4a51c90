"""`make test` is waited for: it stays small, and `make test-changed` finds what belongs to a change."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import changed
from selection import LOOP, left_out, loop_lines, targets

ROOT = Path(__file__).parents[1]
FOLDERS = ("tests", "algorithms/tests")
MAX_LINES = 42_000
CODE = ("app", "algorithms/shortlist", "workers", "server", "studies", "examples", "mutation_tests")


def loop_files() -> dict[Path, str]:
    """The files with a test of `make test`, and of the others those that they import."""
    sources = {path: path.read_text() for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")}
    by_module = {path.stem: path for path in sources}
    found = dict[Path, str]()
    left = [path for path in sources if path.match("test_*.py") and not left_out(sources[path], LOOP)]
    left += [path for path in sources if path.name == "conftest.py"]
    while left:
        path = left.pop()
        if path not in found:
            found[path] = sources[path]
            names = re.findall(r"^(?:from|import) (\w+)", sources[path], re.MULTILINE)
            left += [by_module[name] for name in names if name in by_module]
    return found


def test_what_everybody_waits_for_is_bounded():
    lines = sum(map(loop_lines, loop_files().values()))
    assert lines <= MAX_LINES, f"{lines:,}: mark what finds no further mistake as rest"


def test_a_test_runs_in_the_target_of_its_marker_or_of_its_file():
    head, body = "pytestmark = [\n    pytest.mark.anyio,\n    pytest.mark.rest,\n]\n", "def test_it(): ...\n"
    assert dict(targets(body)) == {"test_it": "make test"}
    assert dict(targets(f"@pytest.mark.rest\n{body}")) == {"test_it": "make test-rest"}
    assert dict(targets(f"{head}@pytest.mark.slow\n{body}")) == {"test_it": "make test-slow"}
    assert dict(targets(head + body)) == {"test_it": "make test-rest"}
    assert left_out(head, LOOP)
    assert not left_out(head, "rest and not slow")
    assert not left_out(head, "slow or not slow")
    assert not left_out(f"@pytest.mark.rest\n{body}", LOOP)


def test_code_of_every_folder_has_tests_of_its_own():
    for code in CODE:
        for folder in {path.parent.relative_to(ROOT) for path in (ROOT / code).rglob("*.py")} - {Path("app")}:
            found = changed.selected([f"{folder}/file.py"])
            assert len(found) > len(changed.ALWAYS), folder


def test_every_test_of_the_table_exists():
    for table in (changed.MORE, changed.ELSEWHERE):
        for folder, tests in table.items():
            assert (ROOT / folder).is_dir(), folder
            assert all((ROOT / test).exists() for test in tests), folder


def test_a_folder_is_run_once_and_a_test_for_itself():
    assert changed.selected(["tests/quotas/test_ledger.py"]) == ["tests/quotas/test_ledger.py"]
    several = changed.selected(["app/quotas/ledger.py", "tests/quotas/test_ledger.py", "CHANGELOG.md"])
    assert "tests/quotas" in several
    assert "tests/quotas/test_ledger.py" not in several
    assert "tests/test_docs.py" in several


def test_no_two_files_of_tests_have_one_name():
    """Without packages pytest imports a file by its name alone: with two of them it collects neither."""
    names = Counter(path.name for folder in FOLDERS for path in (ROOT / folder).rglob("test_*.py"))
    assert [name for name, count in names.items() if count > 1] == []


def test_every_file_of_tests_has_a_name_of_its_own():
    """Else pytest cannot collect both in one run."""
    names = Counter(path.name for folder in FOLDERS for path in (ROOT / folder).rglob("test_*.py"))
    assert [name for name, count in names.items() if count > 1] == []
