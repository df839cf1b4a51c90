"""Which tests a run takes: a folder has those of `make test`, a file that is named has all of its own."""

import tomllib
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

from selection import LOOP, left_out

PLUGINS = sorted(Path(__file__).parent.glob("plugins/*/pyproject.toml"))


def pytest_configure(config: pytest.Config) -> None:
    for plugin in PLUGINS:
        name = tomllib.loads(plugin.read_text())["project"]["name"]
        try:
            version(name)
        except PackageNotFoundError:
            pytest.exit(f"{name} is not installed: `make install`, or pip install -e {plugin.parent}", 4)
    names_a_file = any(".py" in argument for argument in config.args)
    if not config.option.markexpr and not names_a_file:
        config.option.markexpr = LOOP


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """A file of which no test is selected is not imported: half of the time of a collection."""
    is_test = collection_path.match("test_*.py")
    return True if is_test and left_out(collection_path.read_text(), config.option.markexpr) else None
