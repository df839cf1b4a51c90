"""Which packages are plug-ins, by their metadata; and what works where these are damaged."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from app.platform import plugins
from app.platform.errors import StartupError
from fork_server import ROOT
from service_process import environment

METADATA = "Metadata-Version: 2.1\nName: {}\nVersion: 1.2\n"
POINTS = "[shortlist.commands]\nshow-nothing = package_that_is_not_there:command\n"
Install = Callable[..., Path]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Installs the metadata of a package where this process looks for some; returns the folder."""

    def installed(name: str, metadata: str = METADATA, points: str = POINTS) -> Path:
        folder = tmp_path / f"{name}-1.2.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(metadata.format(name))
        (folder / "entry_points.txt").write_text(points)
        monkeypatch.syspath_prepend(tmp_path)
        return tmp_path

    def forget() -> None:
        plugins._installed.cache_clear()  # private: a process looks once
        plugins.plugins.cache_clear()

    forget()
    yield installed
    forget()


@pytest.mark.parametrize(
    "asked", ["my-package", "my.package", "My_Package", "my.package, other", "other,my-package"]
)
def test_a_plugin_is_found_by_any_spelling_of_its_name(
    asked: str, install: Install, monkeypatch: pytest.MonkeyPatch
):
    install("my_package")
    install("other")
    monkeypatch.setenv("SHORTLIST_PLUGINS", asked)
    found = {plugin.name: (plugin.version, plugin.provides) for plugin in plugins.plugins()}
    assert found["my-package"] == ("1.2", ["commands:show-nothing"])
    assert len(found) == 1 + ("other" in asked)


@pytest.mark.parametrize(("metadata", "points"), [("", POINTS), ("Metadata-Version: 2.1\nName: {}\n", POINTS),
    (METADATA, "[shortlist.commands]\nshow-noth")])  # fmt: skip
def test_a_plugin_whose_metadata_are_cut_is_named(metadata: str, points: str, install: Install):
    install("cut", metadata, points)
    with pytest.raises(StartupError, match=r"the metadata .* are damaged: install it again"):
        plugins.plugins()


def test_a_plugin_with_an_entry_point_of_before_is_told_the_new_name(install: Install):
    install("old", METADATA, "[shortlist.arm_sources]\nqdrant = old:Source\n")
    with pytest.raises(StartupError, match=r"the plug-in old: arm_sources:qdrant .* shortlist\.engines"):
        plugins.plugins()


def test_what_says_what_is_wrong_works_where_a_plugin_is_broken(install: Install, tmp_path: Path):
    path = install("broken")

    def shortlist(*words: str) -> tuple[int, str]:
        command = [sys.executable, "-c", "from server.cli import main; raise SystemExit(main())", *words]
        env = environment(PYTHONPATH=f"{path}:{ROOT}")
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
        assert "Traceback" not in done.stderr
        return done.returncode, done.stdout + done.stderr

    assert shortlist("--version")[0] == 0
    status, said = shortlist("doctor", "--port", "1", "--data-dir", str(tmp_path / "data"))
    assert (status, "FAIL plugins    the plug-in broken: shortlist.commands:show-nothing" in said) == (
        1,
        True,
    )
    status, said = shortlist("key", "web", "--scopes", "choose")
    assert (status, "the plug-in broken" in said) == (2, True)
