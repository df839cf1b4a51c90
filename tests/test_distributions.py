"""Library, client and service as wheels, in an environment that has a stranger's package ``app``."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from code_blocks import blocks_of
from wheels import ROOT, build, environment, told

pytestmark = pytest.mark.slow  # `make release` builds and tries the wheels too

FOLDERS = {
    "shortlist": "algorithms",
    "shortlist_campaigns": "plugins/campaigns",
    "shortlist_evaluation": "plugins/evaluation",
    "shortlist_client": "clients/python",
    "shortlist_files": "clients/files",
    "shortlist_embeddings": "plugins/embeddings",
    "shortlist_service": ".",
    "shortlist_lake": "plugins/lake",
    "shortlist_mcp": "plugins/mcp",
    "shortlist_milvus": "plugins/milvus",
    "shortlist_personalizer": "plugins/personalizer",
    "shortlist_streams": "plugins/streams",
    "shortlist_upgrade": "plugins/upgrade",
}
STRANGER = """[project]
name = "stranger"
version = "1"
[tool.setuptools]
packages = ["app"]
"""


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """By name: those of the project, and the stranger's."""
    folder = tmp_path_factory.mktemp("wheels")
    stranger = folder / "stranger"
    (stranger / "app").mkdir(parents=True)
    (stranger / "app" / "__init__.py").write_text("OWNER = 'stranger'\n")
    (stranger / "pyproject.toml").write_text(STRANGER)
    return build(folder, (*(ROOT / name for name in FOLDERS.values()), stranger))


@pytest.fixture(scope="module")
def python(wheels: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment that has the wheels, the stranger's last."""
    return environment(tmp_path_factory.mktemp("clean"), (wheels[name] for name in (*FOLDERS, "stranger")))


def printed(python: Path, code: str) -> str:
    return told(python, "-c", code, cwd=python.parents[1])


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
        "shortlist_evaluation": {"shortlist_evaluation"},
        "shortlist_client": {"shortlist_client"},
        "shortlist_files": {"shortlist_files"},
        "shortlist_embeddings": {"shortlist_embeddings"},
        "shortlist_service": {"app", "server", "shortlist_service", "workers"},
        "shortlist_lake": {"shortlist_lake"},
        "shortlist_mcp": {"shortlist_mcp"},
        "shortlist_milvus": {"shortlist_milvus"},
        "shortlist_personalizer": {"shortlist_personalizer"},
        "shortlist_streams": {"shortlist_streams"},
        "shortlist_upgrade": {"shortlist_upgrade"},
    }


def test_library_and_client_do_not_mind_a_stranger_who_is_called_app(python: Path):
    session, shown = blocks_of("algorithms/README.md")[1:3]
    checks = (
        "\nimport sys, app, shortlist_client\n"
        "assert app.OWNER == 'stranger' and 'workers' not in sys.modules\n"
        "assert {name.split('.')[0] for name in sys.modules} & {'redis', 'fastapi', 'hnswlib'} == set()"
    )
    assert printed(python, session.text + checks) == shown.text
    assert printed(python, "import sys, shortlist_client; print('app' in sys.modules)") == "False\n"


def test_the_service_comes_with_the_files_of_its_console(wheels: dict[str, Path]):
    files = {f"app/console/{path.name}" for path in (ROOT / "app/console").iterdir()}
    assert files <= set(zipfile.ZipFile(wheels["shortlist_service"]).namelist())
    for package, page in (("campaigns", "page-campaigns.js"), ("evaluation", "page-what-if.js")):
        name = f"shortlist_{package}"
        assert f"{name}/{page}" in zipfile.ZipFile(wheels[name]).namelist()


def test_the_library_comes_typed(wheels: dict[str, Path]):
    assert "shortlist/py.typed" in zipfile.ZipFile(wheels["shortlist"]).namelist()
