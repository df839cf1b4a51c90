"""A rolling upgrade: a replica of this version beside one of a newer version, over one store.

The newer one is a copy of the code with one more setting, one more field of a rule, and one more word.
"""

import shutil
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import pytest

from fork_server import ROOT
from service_process import serving
from store_clients import connect
from store_server import store_server
from waiting import wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.rest]

ARMS = {"arms": [{"id": f"a{i}", "features": [1.0, i / 10]} for i in range(6)]}
BANDIT = {"catalogue": "c", "policy": "sub_ts"}
PATH = "/v1/bandits/b"
ADDED = {
    "    default: Value | None = None\n": "    weekly: bool | None = None\n",
    'each direction"),\n    ] = None\n': "    mood: str | None = None\n",
}


@pytest.fixture(scope="module")
def replicas(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str, str]]:
    """The addresses of the older replica, of the newer one, and of their store."""
    folder = tmp_path_factory.mktemp("two-versions")
    copy = folder / "newer"
    shutil.copytree(ROOT / "app", copy / "app", ignore=shutil.ignore_patterns("__pycache__"))
    settings = copy / "app/bandits/settings.py"
    source = settings.read_text()
    for line, added in ADDED.items():
        assert source.count(line) == 1
        source = source.replace(line, line + added)
    words = 'aggregate: Literal["first", "sum"'
    assert words in source
    settings.write_text(source.replace(words, f'{words}, "mean"'))
    with (
        store_server(folder / "redis") as url,
        serving(folder / "1", "--redis-url", url) as older,
        serving(folder / "2", "--redis-url", url, PYTHONPATH=f"{copy}:{ROOT}") as newer,
    ):
        yield older.url, newer.url, url


@pytest.fixture(autouse=True)
async def emptied(replicas: tuple[str, str, str]) -> AsyncIterator[None]:
    """Afterwards both know of no bandit and no catalogue."""
    yield
    async with httpx.AsyncClient(timeout=60) as http:
        for path in (PATH, "/v1/bandits/other", "/v1/catalogues/c"):
            assert (await http.delete(f"{replicas[1]}{path}")).status_code in {204, 404}

            async def gone(path: str = path) -> bool:
                return (await http.get(f"{replicas[0]}{path}")).status_code == 404

            await wait_until(gone, what="the older one knows that it is deleted")


async def ok(http: httpx.AsyncClient, method: str, path: str, body: Any = None) -> Any:
    answer = await http.request(method, path, json=body)
    assert answer.status_code < 300, (path, answer.text)
    return answer.json()


async def test_the_older_one_serves_what_it_does_not_know_keeps_it_and_does_not_change_it(
    replicas: tuple[str, str, str],
):
    async with (
        httpx.AsyncClient(base_url=replicas[0], timeout=60) as older,
        httpx.AsyncClient(base_url=replicas[1], timeout=60) as newer,
        connect(replicas[2]) as store,
    ):
        await ok(older, "PUT", "/v1/catalogues/c", {"dim": 2})
        await ok(older, "PUT", "/v1/catalogues/c/arms", ARMS)
        made = {**BANDIT, "mood": "calm", "reward": {"max": 1, "weekly": True}}
        view = await ok(newer, "PUT", PATH, made)
        assert (view["mood"], view["reward"]["weekly"]) == ("calm", True)

        async def stored() -> bytes:
            found: bytes = await store.hget("shortlist3:{registry}:bandits", "b")
            return found

        before = await stored()
        known = await ok(older, "GET", PATH)
        assert {**known, "mood": "calm", "reward": {**known["reward"], "weekly": True}} == view
        assert "mood" not in known
        assert known in (await ok(older, "GET", "/v1/bandits"))["items"]
        decision = (await ok(older, "POST", f"{PATH}/choose", {}))["decision"]
        reward = {"rewards": [{"decision": decision, "value": 1.0}]}
        assert (await ok(older, "POST", "/v1/rewards?wait=applied", reward))["accepted"] == 1
        same = {**BANDIT, "reward": {"max": 1}}
        for method, body in (("PATCH", {"ridge": 2}), ("PATCH", {}), ("PUT", same)):
            answer = await older.request(method, PATH, json=body)
            assert (answer.status_code, answer.json()["code"]) == (409, "conflict")
            assert "newer version of the service (reward.weekly, mood): change it there" in answer.text
        assert await stored() == before
        assert await ok(newer, "GET", PATH) == view
        assert (await ok(newer, "GET", f"{PATH}/learners/_global"))["observations"] == 1

        changed = await ok(newer, "PATCH", PATH, {"ridge": 2})
        assert (changed["mood"], changed["version"]) == ("calm", 2)

        async def seen() -> bool:
            return bool((await ok(older, "GET", PATH))["version"] == 2)

        await wait_until(seen, what="the older one knows the change")
        decision = (await ok(newer, "POST", f"{PATH}/choose", {}))["decision"]
        reward = {"rewards": [{"decision": decision, "value": 1.0}]}
        assert (await ok(older, "POST", "/v1/rewards", reward))["accepted"] == 1
        assert len((await ok(older, "GET", f"{PATH}/versions"))["items"]) == 2


async def test_what_is_new_and_has_its_default_is_no_hindrance(replicas: tuple[str, str, str]):
    async with (
        httpx.AsyncClient(base_url=replicas[0], timeout=60) as older,
        httpx.AsyncClient(base_url=replicas[1], timeout=60) as newer,
    ):
        await ok(older, "PUT", "/v1/catalogues/c", {"dim": 2})
        await ok(newer, "PUT", PATH, {**BANDIT, "mood": "calm"})
        await ok(newer, "PATCH", PATH, {"mood": None})
        assert (await ok(older, "PUT", PATH, BANDIT))["version"] == 2
        assert (await ok(older, "PATCH", PATH, {"ridge": 2}))["version"] == 3


async def test_a_value_that_the_older_one_does_not_know_is_not_served_there(replicas: tuple[str, str, str]):
    async with (
        httpx.AsyncClient(base_url=replicas[0], timeout=60) as older,
        httpx.AsyncClient(base_url=replicas[1], timeout=60) as newer,
    ):
        await ok(older, "PUT", "/v1/catalogues/c", {"dim": 2})
        await ok(older, "PUT", "/v1/catalogues/c/arms", ARMS)
        await ok(older, "PUT", "/v1/bandits/other", BANDIT)
        await ok(newer, "PUT", PATH, {**BANDIT, "reward": {"aggregate": "mean"}})
        decision = (await ok(newer, "POST", f"{PATH}/choose", {}))["decision"]
        reward = {"rewards": [{"decision": decision, "value": 1.0}]}
        for method, path, body in (
            ("GET", PATH, None), ("PATCH", PATH, {"ridge": 2}), ("PUT", PATH, BANDIT),
            ("POST", f"{PATH}/choose", {}), ("POST", "/v1/rewards", reward),
        ):  # fmt: skip
            answer = await older.request(method, path, json=body)
            assert (answer.status_code, answer.json()["code"]) == (503, "unavailable"), (path, answer.text)
            assert "newer version of the service" in answer.text
        assert [item["id"] for item in (await ok(older, "GET", "/v1/bandits"))["items"]] == ["other"]
        await ok(older, "POST", "/v1/bandits/other/choose", {})
        await ok(older, "GET", "/readyz")
        assert (await ok(newer, "POST", "/v1/rewards", reward))["accepted"] == 1
        await ok(newer, "PATCH", PATH, {"reward": None})

        async def served() -> bool:
            return (await older.get(PATH)).status_code == 200

        await wait_until(served, what="the older one serves it")
