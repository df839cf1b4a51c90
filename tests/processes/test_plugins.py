"""The plug-in of examples/plugin, installed as a user would: served, and taken away again."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from packaging.requirements import Requirement

from app.api.api_keys import new_key
from app.platform.settings import VERSION
from fork_server import ROOT
from service_process import Service, environment, serving
from waiting import wait_until_sync

pytestmark = pytest.mark.rest

ARMS = [
    {"id": f"a{i}", "features": [1.0, i / 10], "metadata": {"added_s": time.time() - 86_400 * i}}
    for i in range(8)
]
PATH = "/v1/bandits/b"
BANDIT = {
    "catalogue": "c", "policy": "ensemble", "options": {"models": 5}, "log": {},
    "constraints": {"fresh": {"days": 3.5}},
}  # fmt: skip
ONCE = {"most": 1, "within_s": 3_600}
KEY, ENTRY = new_key("reader", ["read"])
ADMIN, ADMIN_ENTRY = new_key("admin", ["admin"])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the installed package."""
    folder = tmp_path_factory.mktemp("plugin")
    shutil.copytree(ROOT / "examples/plugin", folder / "source")
    words = ["install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--no-cache-dir"]
    target = ["--target", str(folder / "site"), str(folder / "source")]
    subprocess.run([sys.executable, "-m", "pip", *words, *target], check=True)
    return folder / "site"


def shortlist(site: Path, *words: str, **settings: str) -> tuple[int, list[str]]:
    """Exit status and all lines of a command that finds the plug-in."""
    env = environment(PYTHONPATH=f"{site}:{ROOT}", **settings)
    command = [sys.executable, "-c", "from server.cli import main; raise SystemExit(main())", *words]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False, cwd=site)
    return done.returncode, (done.stdout + done.stderr).splitlines()


def ok(http: httpx.Client, method: str, path: str, body: Any = None, status: int = 0) -> Any:
    answer = http.request(method, path, json=body)
    assert answer.status_code == status if status else answer.is_success, answer.text
    return answer.json() if answer.content else None


def provided(http: httpx.Client) -> dict[str, list[str]]:
    """What each plug-in of a service provides; others than the example are installed too."""
    return {plugin["name"]: plugin["provides"] for plugin in ok(http, "GET", "/v1/status")["plugins"]}


def reward(http: httpx.Client, choice: dict[str, Any]) -> None:
    """Reward the first arm of a choice."""
    rewards = [{"decision": choice["decision"], "arm": choice["arms"][0]["id"], "value": 1.0}]
    assert ok(http, "POST", "/v1/rewards?wait=applied", {"rewards": rewards})["accepted"] == 1


def observations(http: httpx.Client) -> int:
    return int(ok(http, "GET", f"{PATH}/learners/_global")["observations"])


@pytest.fixture
def http(site: Path, tmp_path: Path) -> Iterator[httpx.Client]:
    with serving(tmp_path, PYTHONPATH=f"{site}:{ROOT}") as service, client(service) as http:
        ok(http, "PUT", "/v1/catalogues/c", {"dim": 2})
        ok(http, "PUT", "/v1/catalogues/c/arms", {"arms": ARMS})
        yield http


def client(service: Service) -> httpx.Client:
    return httpx.Client(base_url=service.url, timeout=60.0)


def test_the_example_and_the_documents_ask_for_this_version():
    """The example is installed without what it needs above."""
    project = tomllib.loads((ROOT / "examples/plugin/pyproject.toml").read_text())["project"]
    (needed,) = project["dependencies"]
    assert Requirement(needed).specifier.contains(VERSION)
    assert f'"{needed}"' in (ROOT / "docs/plugins.md").read_text()


def test_a_bandit_of_the_plugin_chooses_and_learns(http: httpx.Client):
    assert "policies:ensemble" in provided(http)["shortlist-example"]
    ok(http, "PUT", PATH, BANDIT, 201)
    ok(http, "PUT", PATH, BANDIT, 200)
    for seed in range(10):
        choice = ok(http, "POST", f"{PATH}/choose", {"k": 2, "seed": seed})
        assert {arm["id"] for arm in choice["arms"]} <= {"a0", "a1", "a2", "a3"}
        reward(http, choice)
    assert observations(http) == 10
    choice = ok(http, "POST", f"{PATH}/choose", {"k": 2})

    def explained() -> Any:
        answer = http.post(f"{PATH}/log/explain", json={"decision": choice["decision"]})
        return answer.json() if answer.status_code == 200 else None

    assert wait_until_sync(explained, what="the row is in the log")["repeated"] is True
    schema = {item["name"]: item for item in ok(http, "GET", "/v1/policies")["items"]}["ensemble"]["options"]
    assert "models" in str(schema)
    assert ok(http, "GET", "/v1/sizes/c") == {"arms": 8}
    ok(http, "PUT", "/v1/catalogues/flat", {"dim": 2, "index": {"kind": "flat8"}}, 201)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"options": {"models": 0}}, ["body", "options", "models"]),
        ({"options": {"gamma": 1}}, ["body", "options", "gamma"]),
        ({"policy": "sub_ts"}, ["body", "options"]),
        ({"policy": "top_three"}, ["body", "policy"]),
        ({"constraints": {"fresh": {}}}, ["body", "constraints", "fresh", "days"]),
        ({"constraints": {"never": {}}}, ["body", "constraints", "never"]),
    ],
)
def test_wrong_options_are_refused_by_name(http: httpx.Client, changes: dict[str, Any], field: list[str]):
    answer = http.put(PATH, json={**BANDIT, **changes})
    assert answer.status_code == 422, answer.text
    assert field in [error["loc"] for error in answer.json()["errors"]]


def test_choices_of_one_key_at_once_differ_over_processes(site: Path, tmp_path: Path):
    """All 64 are answered, and no two of them show one arm."""
    path = {"PYTHONPATH": f"{site}:{ROOT}"}
    with serving(tmp_path, "--workers", "2", **path) as service, client(service) as http:
        arms = [{"id": f"a{number}", "features": [1.0, number / 64]} for number in range(64)]
        ok(http, "PUT", "/v1/catalogues/c", {"dim": 2})
        ok(http, "PUT", "/v1/catalogues/c/arms", {"arms": arms})
        ok(http, "PUT", PATH, {"catalogue": "c", "policy": "linear_ts", "repeats": ONCE})

        def choose(_: int) -> Any:
            with client(service) as own:  # a connection of its own: the kernel gives it to either process
                return ok(own, "POST", f"{PATH}/choose", {"visitor": "ann"})

        with ThreadPoolExecutor(64) as pool:
            choices = list(pool.map(choose, range(64)))
        shown = {choice["arms"][0]["id"] for choice in choices}
        assert len(shown) == 64
        found = ok(http, "GET", f"{PATH}/learners/ann/exposures")
        assert sorted(shown) == sorted(item["arm"] for item in found["items"])


def test_without_its_plugin_a_bandit_learns_and_chooses_nothing(site: Path, tmp_path: Path):
    data = tmp_path / "data"
    with serving(tmp_path / "1", data_dir=data, PYTHONPATH=f"{site}:{ROOT}") as service:
        with client(service) as http:
            ok(http, "PUT", "/v1/catalogues/c", {"dim": 2, "index": {"kind": "flat8"}})
            ok(http, "PUT", "/v1/catalogues/c/arms", {"arms": ARMS})
            ok(http, "PUT", PATH, BANDIT)
            choice = ok(http, "POST", f"{PATH}/choose", {})
        service.process.terminate()
        service.wait()
    with serving(tmp_path / "2", data_dir=data) as service:
        with client(service) as http:
            assert "shortlist-example" not in provided(http)
            assert ok(http, "GET", PATH)["state"] == "plugin_missing"
            assert [item["state"] for item in ok(http, "GET", "/v1/bandits")["items"]] == ["plugin_missing"]
            assert ok(http, "GET", "/v1/catalogues/c")["state"] == "plugin_missing"
            refused = http.post(f"{PATH}/choose", json={})
            assert (refused.status_code, refused.json()["code"]) == (503, "unavailable")
            for needed in ("the policy ensemble", "the constraint fresh", "the index flat8"):
                assert needed in refused.json()["detail"]
            findings = ok(http, "GET", "/v1/status")["findings"]
            assert [each["good"] for each in findings if each["name"] == "plugins"] == [False]
            reward(http, choice)
            assert observations(http) == 1
            assert http.put(PATH, json=BANDIT).status_code == 422
            assert http.get("/v1/sizes/c").status_code == 404
            exported = http.get(f"{PATH}/log").json()["items"]
            assert [row["decision"] for row in exported] == [choice["decision"]]
        service.process.terminate()
        service.wait()
    with (
        serving(tmp_path / "3", data_dir=data, PYTHONPATH=f"{site}:{ROOT}") as service,
        client(service) as http,
    ):
        assert "state" not in ok(http, "GET", PATH)
        ok(http, "POST", f"{PATH}/choose", {})
        assert observations(http) == 1
        ok(http, "DELETE", PATH)


def test_routes_of_a_plugin_need_the_scope_that_they_declare(site: Path, tmp_path: Path):
    keys = f"{ENTRY} {ADMIN_ENTRY}"
    with (
        serving(tmp_path, PYTHONPATH=f"{site}:{ROOT}", SHORTLIST_API_KEYS=keys) as service,
        client(service) as http,
    ):
        assert http.get("/v1/sizes/c").status_code == 401
        for key, status in ((KEY, 404), (ADMIN, 404)):
            answer = http.get("/v1/sizes/none", headers={"authorization": f"Bearer {key}"})
            assert answer.status_code == status
        answer = http.post("/v1/sizes/none", headers={"authorization": f"Bearer {KEY}"})
        assert answer.status_code == 403


def test_commands_find_the_plugin_as_the_service_does(site: Path):
    status, lines = shortlist(site, "inside", "--names")
    assert status == 0
    assert "shortlist-example" in lines
    status, lines = shortlist(site, "doctor")
    assert any("shortlist-example 1.0.0 provides" in line for line in lines)
    assert shortlist(site, "inside", SHORTLIST_PLUGINS="")[0] == 2
    assert shortlist(site, "inside", SHORTLIST_PLUGINS="shortlist_example")[0] == 0
    absent = {
        ("ingest", "--from", "kafka://h/t"): "ingest needs the package shortlist-streams (extra kafka)",
        ("mcp",): "mcp needs the package shortlist-mcp (extra mcp)",
        ("export", "log", "b", "--out", "x", "--partition", "day"): (
            "export --partition day needs the package shortlist-lake (extra lake)"
        ),
        ("rebuild", "--log", "l", "--out", "x"): "rebuild needs the package shortlist-lake (extra lake)",
    }
    for words, reason in absent.items():
        status, (line,) = shortlist(site, *words, SHORTLIST_PLUGINS="")
        assert status == 2
        assert line.startswith(f"shortlist: {reason}")
    status, lines = shortlist(site, "doctor", SHORTLIST_PLUGINS="other")
    assert status == 1
    assert any(line.startswith("FAIL") and "other" in line for line in lines)


BROKEN = {
    "a name that is taken": ("shortlist.policies", "sub_ts = broken:Policy", "has a name that is taken"),
    "no policy": ("shortlist.policies", "mine = broken:NotAPolicy", "is no Policy"),
    "another name": ("shortlist.policies", "mine = broken:Policy", "must have name"),
    "an absent module": ("shortlist.policies", "mine = absent:Policy", "ModuleNotFoundError"),
    "abstract": ("shortlist.policies", "mine = broken:Abstract", "TypeError"),
    "an error of two lines": ("shortlist.policies", "mine = broken:TwoLines", "ValueError: first second"),
    "an exit": ("shortlist.policies", "mine = broken:Exit", "SystemExit"),
    "no summary": ("shortlist.policies", "mine = broken:NoSummary", "must have a summary"),
    "options that are none": ("shortlist.policies", "mine = broken:NoDocument", "own_options"),
    "an import that is too early": ("shortlist.policies", "mine = early:Policy", "a module of its own"),
    "no constraint": ("shortlist.constraints", "mine = broken:NotAPolicy", "is no PluginConstraint"),
    "no routes": ("shortlist.routes", "mine = broken:NotAPolicy", "is no Routes"),
    "no router": ("shortlist.routes", "mine = broken:NoRouter", "need a router of json_router"),
    "no services": ("shortlist.routes", "mine = broken:NoServices", "cannot make their services: KeyError"),
    "a prefix of ours": (
        "shortlist.routes",
        "mine = broken:OurPath",
        "a prefix of one part that is not taken",
    ),
    "a path of ours": ("shortlist.routes", "mine = broken:OurCall", "have a path that is taken"),
    "a path that hides ours": ("shortlist.routes", "mine = broken:AnyCall", "have a path that is taken"),
    "a path of another": ("shortlist.routes", "mine = broken:TheirCall", "have a path that is taken"),
    "a protocol of no call": ("shortlist.routes", "mine = broken:NoCalls", "have a key_header and no call"),
    "a scope that is none": ("shortlist.routes", "mine = broken:NoScope", "scopes that there are not: some"),
    "a service of ours": (
        "shortlist.routes",
        "mine = broken:OurService",
        "have a service bandits, which is taken",
    ),
    "a second arm list": ("shortlist.routes", "mine = broken:SecondList", "the second with lists of arms"),
    "a command of ours": ("shortlist.commands", "serve = broken:NotAPolicy", "has a name that is taken"),
    "no options of a command": ("shortlist.commands", "mine = broken:NoOptions", "cannot be added: KeyError"),
    "settings that are none": ("shortlist.settings", "mine = broken:NotAPolicy", "is no PluginSettings"),
    "a setting of ours": ("shortlist.settings", "mine = broken:OurSetting", "names that are taken: port"),
    "a setting out of bounds": (
        "shortlist.settings",
        "mine = broken:NegativeSetting",
        "cannot be loaded: setting mine_mb: Input should be greater than 0",
    ),
    "no page": ("shortlist.console_pages", "mine = broken:NotAPolicy", "is no ConsolePage"),
    "a page of ours": ("shortlist.console_pages", "bandits = broken:OUR_PAGE", "has a name that is taken"),
    "a file of ours": ("shortlist.console_pages", "mine = broken:OUR_PAGE", "a file of its own"),
    "a file that is absent": ("shortlist.console_pages", "mine = broken:ABSENT_PAGE", "a file of its own"),
    "an index of ours": ("shortlist.indexes", "hnsw = broken:NotAPolicy", "has a name that is taken"),
}
SOURCE = """
from pathlib import Path
from pydantic import Field
from shortlist_service import arm_lists, commands, console, policies, routes, settings
class Policy(policies.Policy):
    name, summary = "other", "chooses nothing"
    def rank(self, *arguments): ...
class Abstract(policies.Policy):
    name, summary = "mine", "has no rank"
class NotAPolicy: ...
class TwoLines(Policy):
    def __init__(self):
        raise ValueError("first\\nsecond")
class Exit(Policy):
    def __init__(self):
        raise SystemExit(3)
class NoSummary(Policy):
    name, summary = "mine", ""
class NoDocument(NoSummary):
    own_options = dict
class NoOptions(commands.Command):
    def add_arguments(self, parser):
        raise KeyError("x")
    def run(self, given): ...
class NoRouter(routes.Routes): ...
class NoServices(routes.Routes):
    router = routes.json_router(prefix="/v1/mine", tags=["x"])
    def services(self, dependencies):
        raise KeyError("x")
class OurPath(routes.Routes):
    router = routes.json_router(prefix="/v1/bandits", tags=["x"])
class NoCalls(routes.Routes):
    key_header = "Mine-Key"
    router = routes.json_router(prefix="/mine", tags=["x"])
class OurCall(routes.Routes):
    router = routes.json_router(prefix="/v1/catalogues/{catalogue}", tags=["x"])
    router.post("/mips")(lambda: None)
class AnyCall(routes.Routes):
    router = routes.json_router(prefix="/v1/bandits/{bandit}", tags=["x"])
    router.get("/{what}")(lambda: None)
class TheirCall(routes.Routes):
    router = routes.json_router(prefix="/v1/catalogues/{catalogue}", tags=["x"])
    router.post("/centers")(lambda: None)
class NoScope(routes.Routes):
    router = routes.json_router(prefix="/v1/mine", tags=["x"])
    scopes = {"GET": "some"}
class OurService(routes.Routes):
    router = routes.json_router(prefix="/v1/mine", tags=["x"])
    def services(self, dependencies):
        return {"bandits": dependencies.bandits}
class Lists(arm_lists.ArmList):
    async def arms_of(self, name): ...
class SecondList(routes.Routes):
    router = routes.json_router(prefix="/v1/mine", tags=["x"])
    def services(self, dependencies):
        return {"lists": Lists()}
class OurSetting(settings.PluginSettings):
    port: int = 1
class NegativeSetting(settings.PluginSettings):
    mine_mb: int = Field(-1, gt=0, validate_default=True)
OUR_PAGE = console.ConsolePage("Mine", Path("main.js"))
ABSENT_PAGE = console.ConsolePage("Mine", Path("page-absent.js"))
"""


def write_broken(folder: Path, what: str) -> None:
    """Put the package of a row of ``BROKEN`` where Python finds it."""
    group, entry, _ = BROKEN[what]
    information = folder / "broken_plugin-0.1.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: broken-plugin\nVersion: 0.1\n")
    (information / "entry_points.txt").write_text(f"[{group}]\n{entry}\n")
    (folder / "broken.py").write_text(SOURCE)
    (folder / "early.py").write_text(f"from shortlist_service import bandits\n{SOURCE}")


@pytest.mark.parametrize(
    "what", [pytest.param(what, marks=pytest.mark.rest if place else ()) for place, what in enumerate(BROKEN)]
)
def test_a_broken_plugin_ends_the_start_with_one_line(what: str, tmp_path: Path):
    write_broken(tmp_path, what)
    status, lines = shortlist(tmp_path, "serve", "--port", "0", "--data-dir", str(tmp_path / "data"))
    assert status == 2, lines
    assert len(lines) == 1, lines
    # of two that want one path, the one that is loaded second is named
    assert re.search("broken-plugin|of a plug-in|the plug-in shortlist-campaigns", lines[0])
    assert BROKEN[what][2] in lines[0]
