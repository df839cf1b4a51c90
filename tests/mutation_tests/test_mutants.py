"""Mutation testing itself: its areas, the list of equivalent mutants, and a sample of mutants."""

from __future__ import annotations

import os
import re
from datetime import UTC, datetime

import pytest
from scipy import stats

from mutation_tests.areas import AREAS, ROOT
from mutation_tests.run import WANTED, Equivalent, Mutant, equivalents, tidy, try_all

pytestmark = pytest.mark.rest

SMALL = ("bounds", "evaluation", "sampling", "slates")


def test_every_algorithm_is_in_one_area():
    listed = [file for area in AREAS.values() for file in area.files()]
    assert len(listed) == len(set(listed))
    modules = {path.relative_to(ROOT) for path in ROOT.glob("algorithms/shortlist/**/*.py")}
    assert {path for path in modules if path.name != "__init__.py"} <= set(listed)


def test_tests_and_sources_of_an_area_exist():
    for name, area in AREAS.items():
        for test in area.tests:
            assert (ROOT / test).exists(), f"{name}: {test}"
        for pattern in area.sources:
            assert list(ROOT.glob(pattern)), f"{name}: {pattern}"


def test_an_equivalent_mutant_is_of_a_line_as_it_reads_and_has_a_reason():
    lines = {
        str(file): {tidy(line) for line in (ROOT / file).read_text().splitlines()}
        for area in AREAS.values()
        for file in area.files()
    }
    lines["*"] = set().union(*lines.values())
    for entry in equivalents():
        assert (entry.line is None) != (entry.part is None), entry
        if entry.part is None:
            assert entry.line in lines[entry.file], entry
            assert entry.becomes != entry.line, entry
        else:
            assert any(entry.part in line for line in lines[entry.file]), entry
            assert entry.becomes not in {None, entry.part}, entry
        assert len(entry.reason.split()) >= 4, entry


def test_an_entry_covers_one_mutant_or_all_of_a_line():
    pytest.importorskip("cosmic_ray", reason="the extra mutants is not installed")
    source = "x = 1\n\ny = 2\n"
    mutant = Mutant("bounds", "a.py", 3, "y = 2", "core/NumberReplacer", 2)
    assert re.fullmatch(r"y = +3", mutant.after(source))
    after = mutant.after(source)
    assert Equivalent("a.py", "for any change", "y = 2").covers(mutant, source)
    assert Equivalent("a.py", "for this change", "y = 2", after).covers(mutant, source)
    assert Equivalent("*", "for any file", "y = 2").covers(mutant, source)
    assert Equivalent("*", "for any line", part="2", becomes=after.removeprefix("y = ")).covers(
        mutant, source
    )
    for other in (
        Equivalent("a.py", "", "y = 2", "y = 1"),
        Equivalent("b.py", "", "y = 2"),
        Equivalent("a.py", "", "x = 1"),
        Equivalent("*", "", part="2", becomes="1"),
        Equivalent("*", "", part="1", becomes=after.removeprefix("y = ")),
        Equivalent("b.py", "", part="2", becomes=after.removeprefix("y = ")),
    ):
        assert not other.covers(mutant, source)


def test_a_part_of_a_line_is_changed_in_one_place():
    pytest.importorskip("cosmic_ray", reason="the extra mutants is not installed")
    source = "x = f(a=True), g(a=True), True\n"
    name = "core/ReplaceTrueWithFalse"
    covers = Equivalent("*", "", part="a=True", becomes="a=False").covers
    found = [covers(Mutant("bounds", "a.py", 1, source.strip(), name, n), source) for n in range(3)]
    assert found == [True, True, False]


@pytest.mark.slow
@pytest.mark.timeout(3_600)
def test_a_sample_of_mutants_is_killed():
    """Another sample every day; SHORTLIST_MUTANTS_SEED repeats one.

    Were the share of killed mutants what is wanted, more survivors would have probability below 1e-4.
    """
    pytest.importorskip("cosmic_ray", reason="the extra mutants is not installed")
    seed = int(os.environ.get("SHORTLIST_MUTANTS_SEED", datetime.now(UTC).toordinal()))
    print(f"SHORTLIST_MUTANTS_SEED={seed}")
    found = try_all(SMALL, sample=40, seed=seed)
    survivors = [mutant for _, some in found.values() for mutant in some]
    assert sum(tried for tried, _ in found.values()) == 40
    assert len(survivors) <= stats.binom.isf(1e-4, 40, 1.0 - WANTED), survivors
