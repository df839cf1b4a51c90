"""The console's modules: each is read by Node, and their types are checked where there is a compiler."""

import shutil
import subprocess
from pathlib import Path

import pytest

from node import node

ROOT = Path(__file__).parents[2]
COMPILER = shutil.which("tsc")


def test_every_module_can_be_parsed():
    for path in sorted((ROOT / "app/console").glob("*.js")):
        node("--input-type=module", "--check", given=path.read_text())


@pytest.mark.skipif(COMPILER is None, reason="no TypeScript compiler is installed; see make console-types")
def test_the_types_are_right():
    command = [str(COMPILER), "--project", str(ROOT / "tests/console")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
