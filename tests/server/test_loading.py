"""What a start loads: the time until a service is ready is that of loading modules."""

import subprocess
import sys

import pytest

# Large, and only some requests need them, or the documentation.
LATE = ("scipy.optimize", "scipy.stats", "pydantic.v1", "pyarrow", "matplotlib", "pandas")
CODE = "import sys, server.serving; print(*(name for name in sys.argv[1:] if name in sys.modules))"


def test_a_start_loads_nothing_large_that_it_does_not_need():
    done = subprocess.run([sys.executable, "-c", CODE, *LATE], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


@pytest.mark.slow
def test_a_start_makes_no_documentation():
    code = (
        "from fastapi.routing import APIRoute; APIRoute.__init__ = None\n"
        "import server.serving\n"
        "print('loaded')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["loaded"]
