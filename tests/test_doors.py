"""What ``shortlist_service`` exports: importing it loads no plug-in, which would be half loaded then."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOORS = sorted(path.stem for path in ROOT.glob("shortlist_service/*.py") if path.stem != "__init__")
OF_API = {"bandits"}
LOADED = """
import sys
from importlib import import_module
for door in sys.argv[1:]:
    import_module(f"shortlist_service.{door}")
from app.policies.registry import POLICIES
assert not POLICIES.is_loaded, "policies of plug-ins are loaded"
assert "app.serving.constraints.of_plugins" not in sys.modules
"""


@pytest.mark.rest
def test_no_door_but_that_of_bodies_loads_policies_or_constraints_of_plugins():
    names = [name for name in DOORS if name not in OF_API]
    subprocess.run([sys.executable, "-c", LOADED, *names], cwd=ROOT, check=True)


@pytest.mark.rest
def test_the_first_page_names_each_door():
    page = (ROOT / "shortlist_service/__init__.py").read_text()
    assert [name for name in (*DOORS, "testing") if f"``{name}``" not in page] == []
