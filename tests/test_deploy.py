"""The image and the compose file, checked without an engine: by reading, and by doing the same."""

import json
import os
import re
import shutil
import subprocess
import tomllib
from importlib.metadata import requires
from pathlib import Path
from typing import Any

import pytest
import redis
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import shortlist
from app.api.api_keys import new_key
from app.platform.settings import Settings
from server import cli
from service_process import ShortlistProcess, serving
from store_clients import connect_sync, flush_sync
from waiting import wait_until_sync

pytestmark = pytest.mark.rest

ROOT = Path(__file__).parents[1]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, Any] = COMPOSE["services"]
DOCKERFILE = (ROOT / "Dockerfile").read_text()
STAGES = re.split(r"^FROM ", DOCKERFILE, flags=re.MULTILINE)[1:]


def instructions(stage: str, word: str) -> list[str]:
    return re.findall(rf"^{word} (.*)$", stage, flags=re.MULTILINE)


def test_the_image_has_every_distribution_of_the_project_that_the_service_needs():
    """None is taken from a registry, where the name may be a stranger's."""
    own = {name: project for name, project in PROJECTS.items() if name != "shortlist-service"}
    assert own.keys() <= {Requirement(each).name for each in requirements_of_the_image()}
    (install,) = re.findall(r"pip install .*", STAGES[0])
    words = install.split()
    folders = [f"./{folder}" for folder in own.values()]
    assert {*folders} <= {*words}
    (service,) = (place for place, word in enumerate(words) if word.startswith("'.["))
    assert all(words.index(each) > service for each in folders if each.startswith("./plugins/"))


PROJECTS = {
    tomllib.loads(path.read_text())["project"]["name"]: path.parent.relative_to(ROOT).as_posix()
    for folder in ("", "algorithms/", "clients/*/", "plugins/*/")
    for path in ROOT.glob(f"{folder}pyproject.toml")
}


def requirements_of_the_image() -> list[str]:
    """What the service asks for, and its extras that the image has."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = re.findall(r"'\.\[([\w,]+)\]'", STAGES[0])[0].split(",")
    optional = (each for extra in extras for each in project["optional-dependencies"][extra])
    return [*project["dependencies"], *optional]


def locked() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text().split()
    return {canonicalize_name(name): version for name, _, version in (line.partition("==") for line in lines)}


def packages_of_the_image() -> set[str]:
    """All that the words of the Dockerfile install, as the metadata of the packages say, without our own."""
    extras = re.findall(r"'\.\[([\w,]+)\]'", STAGES[0])[0].split(",")
    found, left = set(), [("shortlist-service", extra) for extra in ["", *extras]]
    while left:
        place = left.pop()
        if place in found:
            continue
        found.add(place)
        name, extra = place
        for text in requires(name) or []:
            wanted = Requirement(text)
            if wanted.marker is None or wanted.marker.evaluate({"extra": extra}):
                left += [(canonicalize_name(wanted.name), each) for each in ["", *wanted.extras]]
    return {name for name, _ in found} - PROJECTS.keys()


def test_the_version_of_everything_in_the_image_is_locked():
    assert packages_of_the_image() <= locked().keys()
    (install,) = re.findall(r"pip install (.*)", STAGES[0])
    assert "-c constraints.txt" in install


def test_what_the_image_sets_are_settings():
    (names,) = [re.findall(r"SHORTLIST_(\w+)=", line) for line in instructions(STAGES[1], "ENV")]
    assert {name.lower() for name in names} <= set(Settings.model_fields)


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_every_service_is_confined_and_watched(name: str):
    service = SERVICES[name]
    assert service["read_only"]
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["restart"] == "unless-stopped"
    assert "healthcheck" in service or (name == "web" and instructions(STAGES[1], "HEALTHCHECK"))


@pytest.mark.parametrize("name", ["web", "worker"])
def test_commands_and_settings_of_the_compose_file_exist(name: str):
    service = SERVICES[name]
    cli.command_parser().parse_args(service["command"])
    names = {variable.removeprefix("SHORTLIST_").lower() for variable in service["environment"]}
    assert names <= set(Settings.model_fields)
    url = service["environment"]["SHORTLIST_REDIS_URL"]
    assert re.fullmatch(r"redis://:\$\{SHORTLIST_REDIS_PASSWORD:\?[^}]+\}@redis:6379", url)
    assert service["depends_on"]["redis"] == {"condition": "service_healthy"}
    assert service["deploy"]["replicas"] == 2


def redis_command() -> list[str]:
    """As the container runs it."""
    return [word.replace("$$", "$") for word in SERVICES["redis"]["command"]]


@pytest.mark.skipif(shutil.which("redis-server") is None, reason="no redis-server is installed")
def test_redis_keeps_what_was_acknowledged_and_wants_the_password(tmp_path: Path):
    assert SERVICES["redis"]["volumes"] == ["redis:/data"]
    *shell, script = redis_command()
    own_port = script.replace(" - ", f" - --port 0 --unixsocket {tmp_path}/redis.sock ")

    def start(password: str) -> subprocess.Popen[str]:
        environment = {**os.environ, "REDISCLI_AUTH": password}
        return subprocess.Popen(
            [*shell, own_port],
            cwd=tmp_path,
            env=environment,
            text=True,
            stderr=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    refused = start("")
    assert "is to be set" in refused.communicate()[1]
    assert refused.returncode
    server = start("right-secret")
    try:
        client = redis.Redis(unix_socket_path=f"{tmp_path}/redis.sock", password="right-secret")
        wait_until_sync((tmp_path / "redis.sock").exists, what="it listens")
        wanted = {"appendonly": "yes", "appendfsync": "always", "maxmemory-policy": "noeviction"}
        assert {name: client.config_get(name)[name] for name in wanted} == wanted
        with pytest.raises(redis.AuthenticationError):
            redis.Redis(unix_socket_path=f"{tmp_path}/redis.sock").ping()
        words = Path(f"/proc/{server.pid}/cmdline")
        assert not words.exists() or b"secret" not in words.read_bytes()
    finally:
        server.terminate()  # the shell has become the server: else nobody would tell it
        server.communicate()


MAKEFILE = (ROOT / "Makefile").read_text()


def test_the_folders_of_tests_that_the_makefile_names_exist():
    lists = re.findall(r"^\w+ *:= (.*tests/.*)$", MAKEFILE, re.MULTILINE)
    named = {word for line in lists for word in re.findall(r"(?<![\w/])(?:tests|plugins)/[\w/.]+", line)}
    for names in re.findall(r"\$\(addprefix (tests/[\w/]*,[^)]+)\)", MAKEFILE):
        folder, _, rest = names.partition(",")
        named |= {f"{folder}{name}" for name in rest.split()}
    assert len(named) > 20
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []


MANIFEST: list[dict[str, Any]] = list(yaml.safe_load_all((ROOT / "deploy/kubernetes.yaml").read_text()))
PODS = {
    each["metadata"]["name"]: each["spec"]["template"]["spec"]
    for each in MANIFEST
    if "template" in each.get("spec", {})
}


@pytest.mark.parametrize("name", ["shortlist", "shortlist-worker"])
def test_commands_settings_and_ports_of_the_manifest_exist(name: str):
    (container,) = PODS[name]["containers"]
    cli.command_parser().parse_args(container["args"])
    names = [each["name"] for each in container["env"] if each["name"] != "REDIS_PASSWORD"]
    variables = {name.removeprefix("SHORTLIST_").lower() for name in names}
    assert variables <= set(Settings.model_fields)
    assert not PODS[name]["enableServiceLinks"], "SHORTLIST_PORT would be an address"
    assert f"{PODS[name]['securityContext']['runAsUser']}" in instructions(STAGES[1], "USER")[0]
    assert "/data" in {mount["mountPath"] for mount in container["volumeMounts"]}


@pytest.mark.parametrize("name", sorted(PODS))
def test_every_pod_is_confined(name: str):
    (container,) = PODS[name]["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert PODS[name]["securityContext"]["runAsNonRoot"]
    assert PODS[name]["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}


def test_packages_pins_tags_of_images_and_the_changelog_have_one_version():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    version = project["version"]
    pins = {Requirement(pin) for pin in requirements_of_the_image() if pin.startswith("shortlist")}
    assert {canonicalize_name(pin.name) for pin in pins} == PROJECTS.keys() - {"shortlist-service"}
    for plugin in ROOT.glob("plugins/*/pyproject.toml"):
        own = tomllib.loads(plugin.read_text())["project"]
        assert own["version"] == version
        pins |= {Requirement(pin) for pin in own["dependencies"] if pin.startswith("shortlist")}
    assert {str(pin.specifier) for pin in pins} == {f"=={version}"}
    released = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert released[:2] == ["Unreleased", version]
    chart = yaml.safe_load((ROOT / "deploy/helm/shortlist/Chart.yaml").read_text())
    assert chart["version"] == chart["appVersion"] == version
    places = ("Dockerfile", "docker-compose.yml", "deploy/kubernetes.yaml", "deploy/smoke.sh")
    for place in (*places, "docs/commands.md", "docs/operations.md", "docs/upgrading.md"):
        text = (ROOT / place).read_text()
        found = re.findall(r"\bshortlist:(?:\$\{SHORTLIST_VERSION:-)?([\d.]+\d)", text)
        assert set(found) == {version}, place
    client = tomllib.loads((ROOT / "clients/python/pyproject.toml").read_text())["project"]["version"]
    page = json.loads((ROOT / "clients/typescript/package.json").read_text())["version"]
    assert {client, page, shortlist.__version__} == {version}


@pytest.mark.skipif(shutil.which("docker-compose") is None, reason="no docker-compose is installed")
def test_the_compose_file_is_one():
    environment = {**os.environ, "SHORTLIST_API_KEYS": "x", "SHORTLIST_REDIS_PASSWORD": "y"}
    command = ["docker-compose", "-f", str(ROOT / "docker-compose.yml"), "config", "-q"]
    checked = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr


@pytest.mark.skipif(shutil.which("curl") is None, reason="no curl is installed")
def test_two_replicas_and_two_workers_pass_the_smoke_test(store_url: str, tmp_path: Path):
    """The processes of the compose file without their containers, with the calls of its smoke test."""
    with connect_sync(store_url) as client:  # an earlier test may have left one of fewer partitions
        flush_sync(client)
    key, entry = new_key("smoke", ["admin"])
    settings = {"SHORTLIST_API_KEYS": entry, "SHORTLIST_REDIS_URL": store_url}
    workers = [ShortlistProcess(tmp_path / f"worker-{n}", ["worker"], settings) for n in range(2)]
    try:
        with (
            serving(tmp_path / "one", "--no-worker", **settings) as one,
            serving(tmp_path / "two", "--no-worker", **settings) as two,
        ):
            done = subprocess.run(
                [str(ROOT / "deploy/smoke_calls.sh"), key, one.url, two.url],
                capture_output=True,
                text=True,
                check=False,
            )
        assert done.stdout == "all is well\n", done.stdout + done.stderr
    finally:
        for worker in workers:
            worker.kill()
