"""`make test` is waited for: it stays small, and `make test-changed` finds what belongs to a change."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

import changed
from selection import LOOP, left_out, loop_lines, targets

ROOT = Path(__file__).parents[1]
MAX_LINES = 35_300
CODE = (
    "app",
    "algorithms/shortlist",
    "workers",
    "server",
    "studies",
    "examples",
    "mutation_tests",
    *(path.relative_to(ROOT).as_posix() for path in ROOT.glob("plugins/*/shortlist_*")),
)


def loop_files() -> dict[Path, str]:
    """The files with a test of `make test`, and of the others those that they import."""
    sources = {path: path.read_text() for folder in changed.FOLDERS for path in (ROOT / folder).rglob("*.py")}
    by_module = {path.stem: path for path in sources}
    found = dict[Path, str]()
    left = [path for path in sources if path.match("test_*.py") and not left_out(sources[path], LOOP)]
    folders = {parent for path in left for parent in path.parents}
    left += [path for path in sources if path.name == "conftest.py" and path.parent in folders]
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
    alone = changed.selected(["tests/exposure_limits/test_pacing.py"])
    assert alone == ["tests/exposure_limits/test_pacing.py", *changed.ALWAYS]
    several = changed.selected(
        ["app/exposure_limits/quotas.py", "tests/exposure_limits/test_pacing.py", "CHANGELOG.md"]
    )
    assert "tests/exposure_limits" in several
    assert "tests/exposure_limits/test_pacing.py" not in several
    assert "tests/test_docs.py" in several


@pytest.mark.parametrize(
    ("path", "tests"),
    [
        ("tests/api/endpoints.py", "tests/api/test_strictness.py"),
        ("tests/support/contracts/store.py", "tests/contracts/test_store_contract.py"),
        ("tests/support/console_world.py", "tests/console/test_console_truth.py"),
        ("tests/console/conftest.py", "tests/console"),
        ("tests/golden/http.json", "tests/test_golden.py"),
        ("app/storage/scripts/fold.lua", "tests/storage"),
        ("algorithms/shortlist/mips/screening/heads.py", "algorithms/tests/mips"),
        ("clients/typescript/src/client.ts", "tests/clients"),
        ("plugins/streams/shortlist_streams/ingesting.py", "plugins/streams/tests"),
        ("Makefile", "tests/test_docs.py"),
    ],
)
def test_what_is_no_module_of_the_code_has_tests_too(path, tests):
    """Helpers, fixtures, data and scripts, in any folder, also after they were deleted."""
    assert tests in changed.selected([path])


def test_no_two_files_of_tests_have_one_name():
    """Without packages pytest imports a file by its name alone: with two of them it collects neither."""
    names = Counter(path.name for folder in changed.FOLDERS for path in (ROOT / folder).rglob("test_*.py"))
    assert [name for name, count in names.items() if count > 1] == []
