"""The example of every family runs, in its docstring and in the README, which has the same."""

from __future__ import annotations

import doctest
import importlib
import textwrap
from pathlib import Path

import pytest

HOME = Path(__file__).parents[1]
FAMILIES = sorted(path.parent.name for path in HOME.glob("shortlist/*/__init__.py"))


@pytest.mark.parametrize("family", FAMILIES)
def test_the_example_of_a_family_is_true_and_in_the_readme(family: str):
    module = importlib.import_module(f"shortlist.{family}")
    found = doctest.testmod(module)
    assert found.attempted > 3
    assert not found.failed
    lines = (module.__doc__ or "").splitlines()
    first = next(place for place, line in enumerate(lines) if line.lstrip().startswith(">>>"))
    example = textwrap.dedent("\n".join(lines[first:])).strip()
    assert f"```pycon\n{example}\n\n```" in (HOME / "README.md").read_text()


@pytest.mark.rest
def test_the_readme_is_a_doctest_itself():
    """A fence right below an output was taken for its last line."""
    found = doctest.testfile(str(HOME / "README.md"), module_relative=False)
    assert found.attempted > 40
    assert not found.failed
