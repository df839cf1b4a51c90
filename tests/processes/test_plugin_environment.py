"""The example of a plug-in tests itself in an environment of its own: wheels, without the checkout."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from wheels import ROOT, build, environment, told

pytestmark = [pytest.mark.rest, pytest.mark.timeout(900)]  # wheels are built

PACKAGES = ("algorithms", "clients/python", ".", "examples/plugin")


def test_the_example_keeps_the_contracts_in_an_environment_of_its_own(tmp_path: Path):
    wheels = build(tmp_path, (ROOT / name for name in PACKAGES))
    python = environment(tmp_path / "own", wheels.values())
    tests = tmp_path / "example"
    tests.mkdir()
    shutil.copytree(ROOT / "examples/plugin/tests", tests / "tests")
    shutil.copy(ROOT / "examples/plugin/pyproject.toml", tests)
    own = {"SHORTLIST_PLUGINS": "shortlist-example"}  # the environment of the tests has others
    where = told(python, "-c", "import server, shortlist_example; print(server.__file__)", cwd=tests, **own)
    assert where.startswith(str(tmp_path))
    words = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "--strict-config")
    passed = told(python, *words, cwd=tests, **own)
    assert "15 passed" in passed
