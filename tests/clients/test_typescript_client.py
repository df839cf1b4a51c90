"""The TypeScript client, in Node: the shared cases, a real service, lost replies, and what it must have."""

import json
import re
import shutil
import tarfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from app.api.api_keys import new_key
from dropping_proxy import DroppingProxy
from node import CLIENT as HOME
from node import build, node, npm
from openapi_document import openapi_document
from service_process import Service, serving
from shortlist_client import Client, visitor_pass
from shortlist_client.errors import BY_CODE
from waiting import wait_until_sync

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent / "typescript"
CASES = ROOT / "clients/cases/cases.json"
CALLS = {"choose", "dry_run", "reward", "reward_batch", "activate"}
NAMES = [case["name"] for case in json.loads(CASES.read_text("utf-8")) if case["call"] in CALLS]
DROPPED = 1 / 12
MANY = [1_000, pytest.param(100_000, marks=[pytest.mark.slow, pytest.mark.timeout(1_200)])]

# Each type of the client and the schema that it stands for.
SCHEMAS = {
    "ChooseRequest": "ChooseItem",
    "Rules": "RulesBody",
    "Pin": "PinBody",
    "AtMost": "AtMostBody",
    "Choice": "ChoiceView",
    "Candidate": "CandidateBody",
    "ChosenArm": "ChosenArmView",
    "RankedCandidate": "RankedCandidateView",
    "DryRun": "DryRunView",
    "DryRunArm": "DryRunArmView",
    "Reward": "RewardItem",
    "Receipt": "ReceiptView",
    "Rejected": "RejectedView",
    "Activation": "ActivationView",
}
# Calls and the paths that they lead to; the client has no other.
PATHS = {
    ("get", "/v1/bandits/{bandit}"),
    ("post", "/v1/bandits/{bandit}/choose"),
    ("post", "/v1/choose/batch"),
    ("post", "/v1/rewards"),
    ("post", "/v1/decisions/activate"),
}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("client"))


@pytest.fixture(scope="module")
def module(built: Path) -> Path:
    return built / "index.js"


@pytest.fixture(scope="module")
def outcome(module: Path) -> dict[str, str]:
    found: dict[str, str] = json.loads(node(HERE / "cases.mjs", module, CASES))
    return found


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with serving(tmp_path_factory.mktemp("typescript")) as service:
        with Client(service.url) as client:
            client.put_catalogue("c", dim=2)
            client.upsert_arms("c", [[1.0, 0.0], [0.0, 1.0]], ids=["a", "b"])
        yield service


@pytest.mark.parametrize("name", NAMES)
def test_a_shared_case(outcome: dict[str, str], name: str):
    assert outcome[name] == ""


def test_it_runs_every_case_of_its_calls(outcome: dict[str, str]):
    assert list(outcome) == NAMES
    assert len(NAMES) > 30


def test_a_session(module: Path, service: Service):
    with Client(service.url) as client:
        client.put_bandit("home", catalogue="c", policy="sub_ts", scope="per_key")
    assert node(HERE / "session.mjs", module, service.url) == "done\n"
    with Client(service.url) as client:
        wait_until_sync(lambda: client.ready().backlog == 0, what="all rewards are applied")
        assert client.get_learner("home", "user-42").observations == 4


def test_passes(module: Path, tmp_path: Path):
    key, entry = new_key("web", ["choose", "reward"], {"bandits": "own", "visitors": "3600"})
    admin, admin_entry = new_key("admin", ["admin"])
    settings = {"SHORTLIST_API_KEYS": f"{entry} {admin_entry}"}
    with serving(tmp_path, **settings) as service, Client(service.url, key=admin) as client:
        client.put_catalogue("c", dim=2)
        client.upsert_arms("c", [[1.0, 0.0], [0.0, 1.0]], ids=["a", "b"])
        client.put_bandit("own", catalogue="c", policy="sub_ts", scope="per_key")
        assert node(HERE / "passes.mjs", module, service.url, key) == "done\n"
        wait_until_sync(lambda: client.ready().backlog == 0, what="all rewards are applied")
        learned = {name: client.get_learner("own", name).observations for name in ("ann", "bob")}
        assert learned == {"ann": 3, "bob": 2}


@pytest.mark.rest
def test_npm_pack_works_from_a_clone(tmp_path: Path):
    """What is built is not there before, nor made by hand."""
    clone = tmp_path / "clone"
    shutil.copytree(HOME, clone, ignore=shutil.ignore_patterns("dist", "node_modules", "*.tgz"))
    npm("pack", "--silent", cwd=clone)
    (package,) = clone.glob("*.tgz")
    with tarfile.open(package) as files:
        names = set(files.getnames())
        (about,) = (json.load(files.extractfile(name)) for name in names if name == "package/package.json")
    assert {"package/dist/index.js", "package/dist/index.d.ts", "package/README.md"} <= names
    # Also of a TypeScript with "moduleResolution": "node", which does not read `exports`.
    entry = about["exports"]["."]
    assert (about["main"], about["types"]) == (entry["default"], entry["types"])
    assert {f"package/{about[name][2:]}" for name in ("main", "types")} <= names


def test_long_lists_go_in_several_calls(module: Path):
    assert node(HERE / "batches.mjs", module) == ""


def test_only_what_is_absent_has_a_default(module: Path):
    """A value of 0 in the place of the options counted as 1; a batch of 0 was sent forever."""
    assert node(HERE / "defaults.mjs", module, timeout_s=60.0) == ""


@pytest.mark.rest
def test_workers_of_pages_and_pages_without_https(module: Path):
    assert node(HERE / "workers.mjs", module) == ""


@pytest.mark.rest
def test_a_service_that_is_being_started_is_waited_for(module: Path):
    assert node(HERE / "waits.mjs", module) == ""


@pytest.mark.rest
def test_the_readme_runs(module: Path, service: Service, tmp_path: Path):
    with Client(service.url) as client:
        client.put_bandit("home", catalogue="c", policy="sub_ts", scope="per_key")
    found = re.search(r"```js\n(.*?)```", (HOME / "README.md").read_text(), re.DOTALL)
    assert found
    script = found[1].replace("@shortlist/client", module.as_uri())
    assert "http://127.0.0.1:8080" in script
    path = tmp_path / "readme.mjs"
    path.write_text(script.replace("http://127.0.0.1:8080", service.url))
    assert sorted(re.findall("[ab]", node(path))) == ["a", "b"]


# The few things of a page that the example needs.
PAGE = """
const shown = { replaceChildren(...items) { this.items = items; } };
globalThis.document = {
  createElement: () => ({}), getElementById: () => shown, addEventListener() {}, removeEventListener() {},
};
Object.defineProperty(globalThis, "localStorage", { value: { getItem: () => null, setItem() {} } });
"""
# The server of a page, which gives passes to whom it knows.
SERVER = """
const send = globalThis.fetch;
const own = async () => new Response(passes.shift());
globalThis.fetch = (url, options) => (url === "/pass" ? own() : send(url, options));
"""
CLICK = """
while (shown.items === undefined) await new Promise((go) => setTimeout(go, 10));
console.log(shown.items.map((item) => item.textContent).join(" "));
shown.items[0].onclick();
await rewards.close();
"""


@pytest.mark.rest
def test_pages_show_arms_and_reward_a_click_with_passes_of_their_server(module: Path, tmp_path: Path):
    """The example page, and the block of the recipe; the first pass that the server gives has expired."""
    key, entry = new_key("web", ["choose", "reward"], {"bandits": "home", "visitors": "3600"})
    admin, admin_entry = new_key("admin", ["admin"])
    with monkey_clock(-7_200):
        expired = visitor_pass(key, visitor="ann")
    passes = f"const passes = {json.dumps([expired, visitor_pass(key, visitor='ann')])};\n"
    example = re.search(
        r'<script type="module">\n(.*?)</script>', (HOME / "example.html").read_text(), re.DOTALL
    )
    recipe = re.search(r"```js\n(.*?)```", (ROOT / "docs/recipes/in-a-page.md").read_text(), re.DOTALL)
    assert example
    assert recipe
    settings = {"SHORTLIST_API_KEYS": f"{entry} {admin_entry}"}
    with serving(tmp_path, **settings) as service, Client(service.url, key=admin) as client:
        client.put_catalogue("c", dim=2)
        client.upsert_arms("c", [[1.0, 0.0], [0.0, 1.0]], ids=["a", "b"])
        client.put_bandit("home", catalogue="c", policy="sub_ts", scope="per_key")
        for count, text in ((1, f"{example[1]}{CLICK}"), (2, recipe[1])):
            script = re.sub(r"\./dist/index\.js|@shortlist/client", module.as_uri(), text)
            lines = script.replace("http://127.0.0.1:8080", service.url).splitlines()
            imports = [line for line in lines if line.strip().startswith("import ")]
            rest = [line for line in lines if line not in imports]
            path = tmp_path / "page.mjs"
            path.write_text("\n".join([*imports, passes, SERVER, PAGE, *rest]))
            assert re.findall("[ab]", node(path))

            def is_learned(count: int = count) -> bool:
                return client.get_learner("home", "ann").observations == count

            wait_until_sync(is_learned, what="the click is a reward")


@contextmanager
def monkey_clock(by_s: float) -> Iterator[None]:
    """As if the clock of who signs passes were wrong."""
    now = time.time
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(time, "time", lambda: now() + by_s)
        yield


@pytest.mark.rest
@pytest.mark.parametrize("count", MANY)
def test_rewards_through_a_connection_that_loses_replies(module: Path, service: Service, count: int):
    """None is lost, none counts twice."""
    with Client(service.url) as client:
        if any(bandit.id == "b" for bandit in client.bandits()):
            client.delete_bandit("b")
        client.put_bandit("b", catalogue="c", policy="sub_ts")
        decisions = [c.decision for c in client.choose_batch("b", ({} for _ in range(count))).results]
        with DroppingProxy(service.port, seed=1) as proxy:
            proxy.drop = DROPPED
            url = f"http://127.0.0.1:{proxy.port}"
            said = node(HERE / "rewards.mjs", module, url, given="\n".join(decisions), timeout_s=1_000)
            assert proxy.dropped > 0
        assert json.loads(said) == {"count": count, "rejected": []}
        wait_until_sync(lambda: client.ready().backlog == 0, what="all rewards are applied")
        assert client.get_learner("b").observations == count


def test_the_types_have_the_fields_of_the_service():
    text = (HOME / "src/types.ts").read_text()
    for name, schema_name in SCHEMAS.items():
        schema = openapi_document()["components"]["schemas"][schema_name]
        found = fields_of(text, name)
        assert found.keys() == schema["properties"].keys(), name
        needed = {field for field, optional in found.items() if not optional}
        filled = {"pinned"} & found.keys()  # by the client, for older services
        assert needed - filled == set(schema.get("required", ())), name


def fields_of(text: str, name: str) -> dict[str, bool]:
    """The fields of an interface, and whether they may be missing."""
    match = re.search(rf"^export interface {name} \{{\n(.*?)^\}}", text, re.MULTILINE | re.DOTALL)
    assert match, name
    return {field: bool(mark) for field, mark in re.findall(r"^  (\w+)(\?)?: ", match[1], re.MULTILINE)}


def test_every_path_is_one_of_the_service():
    source = (HOME / "src/client.ts").read_text()
    assert set(re.findall(r'[`"](/v1/[a-z/]+)', source)) == {
        "/v1/bandits/",
        "/v1/choose/batch",
        "/v1/rewards",
        "/v1/decisions/activate",
    }
    assert "`${path}/choose`" in source
    assert all(method in openapi_document()["paths"][path] for method, path in PATHS)


@pytest.mark.rest
def test_the_declarations_are_those_of_the_code(module: Path, tmp_path: Path):
    """Names of what is exported, what each class extends, and its members; no compiler is at hand here."""
    script = """
      const found = {};
      for (const [name, value] of Object.entries(await import(process.argv[1]))) {
        found[name] = typeof value !== "function" ? null : {
          of: Object.getPrototypeOf(value).name,
          members: Object.getOwnPropertyNames(value.prototype ?? {}).filter((each) => each !== "constructor"),
        };
      }
      console.log(JSON.stringify(found));
    """
    code: dict[str, Any] = json.loads(node("--input-type=module", "--eval", script, module.as_uri()))
    text = (HOME / "index.d.ts").read_text()
    told: dict[str, Any] = dict.fromkeys(re.findall(r"^export declare const (\w+)", text, re.MULTILINE))
    classes = re.findall(
        r"^export declare class (\w+)(?: extends (\w+))? \{(\}|.*?^\})", text, re.MULTILINE | re.DOTALL
    )
    functions = re.findall(r"^export declare function (\w+)", text, re.MULTILINE)
    told |= {name: {"of": "", "members": []} for name in functions}
    for name, base, body in classes:
        members = set(re.findall(r"^  (?:get )?(\w+)\(", body, re.MULTILINE))  # one may have several types
        told[name] = {"of": base, "members": [each for each in members if each != "constructor"]}
    assert {name: each and {**each, "members": sorted(each["members"])} for name, each in code.items()} == {
        name: each and {**each, "members": sorted(each["members"])} for name, each in told.items()
    }


def test_the_errors_are_those_of_the_python_client():
    text = (HOME / "src/errors.ts").read_text()
    assert dict(re.findall(r"^  (\w+): (\w+),$", text, re.MULTILINE)) == {
        code: kind.__name__ for code, kind in BY_CODE.items()
    }
