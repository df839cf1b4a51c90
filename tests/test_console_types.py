"""The console's modules: each is read by Node, and their types are checked where there is a compiler."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from node import node

ROOT = Path(__file__).parents[1]
COMPILER = shutil.which("tsc")


def test_the_page_names_every_module_so_that_none_is_waited_for_after_another():
    named = re.findall(r'"console/([a-z-]+\.js)"', (ROOT / "app/console/index.html").read_text())
    assert sorted(named) == sorted(path.name for path in (ROOT / "app/console").glob("*.js"))


def test_every_module_can_be_parsed():
    pages_of_plugins = sorted(ROOT.glob("plugins/*/shortlist_*/*.js"))
    assert pages_of_plugins
    for path in (*sorted((ROOT / "app/console").glob("*.js")), *pages_of_plugins):
        node("--input-type=module", "--check", given=path.read_text())


@pytest.mark.skipif(COMPILER is None, reason="no TypeScript compiler is installed; see make console-types")
def test_the_types_are_right():
    command = [str(COMPILER), "--project", str(ROOT / "tests/console")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
