"""Changes of a bandit over real processes: followed within a second, and whole after kills."""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from service_process import serving
from store_server import store_server
from waiting import wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.rest]

ARMS = {"arms": [{"id": f"a{i}", "features": [1.0, i / 10]} for i in range(6)]}
PATH = "/v1/bandits/b"


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    with store_server(tmp_path / "redis") as url:
        yield url


async def ok(http: httpx.AsyncClient, method: str, path: str, body: Any = None, **headers: str) -> Any:
    answer = await http.request(method, path, json=body, headers=headers)
    assert answer.status_code < 300, (path, answer.text)
    return answer.json()


async def build(http: httpx.AsyncClient, **fields: Any) -> None:
    await ok(http, "PUT", "/v1/catalogues/c", {"dim": 2})
    await ok(http, "PUT", "/v1/catalogues/c/arms", ARMS)
    await ok(http, "PUT", PATH, {"catalogue": "c", "policy": "sub_ts", "scope": "per_key", **fields})


async def test_a_change_by_one_process_is_used_by_the_other_within_a_second(tmp_path: Path, url: str):
    with (
        serving(tmp_path / "1", "--redis-url", url) as first,
        serving(tmp_path / "2", "--redis-url", url) as second,
    ):
        async with first.client() as one, second.client() as two:
            await build(one, reward={"max": 1})
            old = await ok(two, "POST", f"{PATH}/choose", {"key": "ann"})
            longest = 0.0
            for number in range(2, 8):
                changer, other = (one, two) if number % 2 else (two, one)
                body = {"exploration": 1 / number, "reward": {"max": 1 / number}}
                assert (await ok(changer, "PATCH", PATH, body))["version"] == number
                started = time.monotonic()

                async def used(other: httpx.AsyncClient = other, number: int = number) -> bool:
                    choice = await ok(other, "POST", f"{PATH}/choose", {"key": "ann"})
                    return bool(choice["bandit_version"] == number)

                await wait_until(used, what="the change is used")
                longest = max(longest, time.monotonic() - started)
                one_tag, two_tag = [(await http.get(PATH)).headers["etag"] for http in (one, two)]
                assert one_tag == two_tag
            print(f"a change was followed after at most {longest * 1e3:.0f} ms")
            rewards = {"rewards": [{"decision": old["decision"], "value": 1}]}
            assert (await ok(one, "POST", "/v1/rewards?wait=applied", rewards))["accepted"] == 1


async def test_two_processes_change_at_the_same_time(tmp_path: Path, url: str):
    """Every change without If-Match is made, in some order; of those with it, one for each ETag."""
    with (
        serving(tmp_path / "1", "--redis-url", url) as first,
        serving(tmp_path / "2", "--redis-url", url) as second,
    ):
        async with first.client() as one, second.client() as two:
            await build(one)
            await ok(two, "GET", PATH)
            bodies = [{"shortlist": 40 + i} for i in range(20)]
            asked = [ok((one, two)[i % 2], "PATCH", PATH, body) for i, body in enumerate(bodies)]
            answers = await asyncio.gather(*asked)
            assert sorted(answer["version"] for answer in answers) == list(range(2, 22))
            by_version = {answer["version"]: answer["shortlist"] for answer in answers}
            for http in (one, two):
                await ok(http, "PATCH", PATH, {})  # which asks for what is there now
                page = await ok(http, "GET", f"{PATH}/versions")
                assert {i["version"]: i["shortlist"] for i in page["items"]} == {1: 30, **by_version}
            tag = (await one.get(PATH)).headers["etag"]
            headers = {"if-match": tag}
            asked = [(one, two)[i % 2].patch(PATH, json={"ridge": 2 + i}, headers=headers) for i in range(10)]
            statuses = sorted(answer.status_code for answer in await asyncio.gather(*asked))
            assert statuses == [200] + [412] * 9


class Changes:
    """Changes one after the other, each of which counts up; ``made`` is the last that was acknowledged."""

    def __init__(self, http: httpx.AsyncClient, made: int) -> None:
        self._http = http
        self.made = made

    async def run(self) -> None:
        while True:
            self.made = (await ok(self._http, "PATCH", PATH, {"horizon": self.made + 1}))["horizon"]

    async def reach(self, made: int) -> None:
        async def reached() -> bool:
            return self.made >= made

        await wait_until(reached, what="changes are acknowledged")


async def test_changes_are_whole_after_kills(tmp_path: Path):
    """Killed under changes: what was acknowledged is there, and versions have no gap and no twin."""
    acknowledged = 1
    for number in range(4):
        with serving(tmp_path) as service:
            async with service.client() as http:
                if number == 0:
                    await build(http, horizon=1)
                now = await ok(http, "GET", PATH)
                assert now["horizon"] in {acknowledged, acknowledged + 1}, "the last one may have been made"
                page = await ok(http, "GET", f"{PATH}/versions")
                versions = [(item["version"], item["horizon"]) for item in page["items"]]
                assert versions == [(n, n) for n in range(now["version"], 0, -1)]
                changes = Changes(http, now["horizon"])
                changing = asyncio.create_task(changes.run())
                await changes.reach(now["horizon"] + 20 + number)
                service.kill()
                with pytest.raises(httpx.HTTPError):
                    await changing
                acknowledged = changes.made
