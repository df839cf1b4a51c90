"""The table of semantic mutants fits the code."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

import pytest

from mutation_tests.areas import ROOT
from mutation_tests.semantic import TESTS, Semantic, is_noticed, table

MUTANTS = table()


def test_a_mutant_changes_one_place_and_says_what_it_breaks():
    for mutant in MUTANTS:
        source = (ROOT / mutant.file).read_text()
        assert source.count(mutant.before) == 1, mutant.described()
        assert mutant.after != mutant.before, mutant.described()
        if mutant.file.endswith(".py"):
            ast.parse(source.replace(mutant.before, mutant.after))  # else any test would notice
        assert len(mutant.promise.split()) >= 5, mutant.described()
        assert mutant.area in TESTS, mutant.described()
        assert not mutant.equivalent or len(mutant.equivalent.split()) >= 4, mutant.described()


def test_no_mutant_comes_twice():
    assert set(Counter((mutant.file, mutant.before, mutant.after) for mutant in MUTANTS).values()) == {1}


def test_the_tests_of_an_area_exist():
    for tests in TESTS.values():
        assert all((ROOT / test).exists() for test in tests), tests


@pytest.mark.slow
def test_a_mutant_is_noticed_by_a_test_that_fails_and_the_file_is_as_before(tmp_path: Path):
    (tmp_path / "doubling.py").write_text("def double(x):\n    return 2 * x\n")
    (tmp_path / "test_doubling.py").write_text(
        "from doubling import double\n\n\ndef test_it():\n    assert double(2) == 4\n"
    )
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = slow\n rest\npythonpath = .\n")
    for after, noticed in (("x + x", False), ("3 * x", True)):
        mutant = Semantic("quotas", "doubling.py", "2 * x", after, "double is twice as much")
        assert bool(is_noticed(mutant, tmp_path, ["test_doubling.py"])) is noticed
        assert (tmp_path / "doubling.py").read_text().endswith("return 2 * x\n")
