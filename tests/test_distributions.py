"""Library, client and service as wheels, in an environment that has a stranger's package ``app``."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import httpx
import pytest

from code_blocks import blocks_of

pytestmark = pytest.mark.slow  # `make release` builds and tries the wheels too

ROOT = Path(__file__).parents[1]
FOLDERS = {
    "shortlist": "algorithms",
    "shortlist_campaigns": "plugins/campaigns",
    "shortlist_client": "clients/python",
    "shortlist_service": ".",
    "shortlist_lake": "plugins/lake",
    "shortlist_streams": "plugins/streams",
}
LEFT_OUT = (".*", "build", "*.egg-info", "__pycache__", "docs", "node_modules", "tests")
STRANGER = """[project]
name = "stranger"
version = "1"
[tool.setuptools]
packages = ["app"]
"""


def run(*words: str | Path, cwd: Path, **variables: str) -> str:
    done = subprocess.run(
        [str(word) for word in words],
        cwd=cwd,
        env={**os.environ, **variables},
        text=True,
        capture_output=True,
        check=False,
    )
    assert not done.returncode, done.stdout + done.stderr
    return done.stdout


def pip(*words: str | Path, cwd: Path) -> None:
    run(sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *words, cwd=cwd)


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """By name: built as `pip install FOLDER` builds them, from a copy without what earlier builds left."""
    folder = tmp_path_factory.mktemp("wheels")
    stranger = folder / "stranger"
    (stranger / "app").mkdir(parents=True)
    (stranger / "app" / "__init__.py").write_text("OWNER = 'stranger'\n")
    (stranger / "pyproject.toml").write_text(STRANGER)
    sources = folder / "sources"
    shutil.copytree(ROOT, sources, ignore=shutil.ignore_patterns(*LEFT_OUT))
    for source in (*(sources / name for name in FOLDERS.values()), stranger):
        pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", folder / "built", source, cwd=folder)
    return {path.name.split("-")[0]: path for path in (folder / "built").glob("*.whl")}


@pytest.fixture(scope="module")
def python(wheels: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment that has the wheels, the stranger's last."""
    folder = tmp_path_factory.mktemp("clean")
    venv.create(folder, with_pip=False, symlinks=True)
    interpreter = folder / "bin" / "python"
    for name in (*FOLDERS, "stranger"):
        where = ["--python", interpreter, "install", "--no-deps", "--no-index", "--ignore-installed"]
        pip(*where, wheels[name], cwd=folder)
    return interpreter


def told(python: Path, code: str) -> str:
    """What the code prints. numpy, scipy and httpx are those of the tests; the checkout is not seen."""
    installed = str(Path(httpx.__file__).parents[1])
    return run(python, "-c", code, cwd=python.parents[1], PYTHONPATH=installed, PYTHONSAFEPATH="1")


def test_each_wheel_holds_its_own_packages_alone(wheels: dict[str, Path]):
    held = {
        name: {Path(entry).parts[0] for entry in zipfile.ZipFile(wheels[name]).namelist()} for name in FOLDERS
    }
    packages = {
        name: {each for each in entries if not each.endswith("-info")} for name, entries in held.items()
    }
    assert packages == {
        "shortlist": {"shortlist"},
        "shortlist_campaigns": {"shortlist_campaigns"},
        "shortlist_client": {"shortlist_client"},
        "shortlist_service": {"app", "server", "shortlist_service", "workers"},
        "shortlist_lake": {"shortlist_lake"},
        "shortlist_streams": {"shortlist_streams"},
    }


def test_library_and_client_do_not_mind_a_stranger_who_is_called_app(python: Path):
    session, shown = blocks_of("algorithms/README.md")[1:3]
    checks = (
        "\nimport sys, app, shortlist_client\n"
        "assert app.OWNER == 'stranger' and 'workers' not in sys.modules\n"
        "assert {name.split('.')[0] for name in sys.modules} & {'redis', 'fastapi', 'hnswlib'} == set()"
    )
    assert told(python, session.text + checks) == shown.text
    assert told(python, "import sys, shortlist_client; print('app' in sys.modules)") == "False\n"


def test_the_service_comes_with_the_files_of_its_console(wheels: dict[str, Path]):
    files = {f"app/console/{path.name}" for path in (ROOT / "app/console").iterdir()}
    assert files <= set(zipfile.ZipFile(wheels["shortlist_service"]).namelist())


def test_the_library_comes_typed(wheels: dict[str, Path]):
    assert "shortlist/py.typed" in zipfile.ZipFile(wheels["shortlist"]).namelist()
