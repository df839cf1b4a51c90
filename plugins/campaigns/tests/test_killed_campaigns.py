"""SIGKILL under a slate campaign: pulls and totals that were acknowledged stay, and it goes on to the bit."""

import asyncio
import zlib
from pathlib import Path

import httpx
import pytest

from service_process import Service, serving
from waiting import wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.rest]

ARMS = [f"a{i}" for i in range(10)]
BODY = {"arms": ARMS, "k": 3, "method": "sa_foa", "epsilon": 0.5, "noise_std": 1.0, "seed": 3}
LOST = (httpx.TransportError,)


def total(name: str, slate: list[str], std: float = 1.0) -> float:
    """The total of a pull: arm i has mean i / 4; the noise is fixed by the name."""
    noise = sum(zlib.crc32(f"{name}/{part}".encode()) / 2**32 for part in range(12)) - 6.0
    return sum(ARMS.index(arm) / 4 for arm in slate) + std * noise


class Client:
    """Asks and tells; what was not acknowledged is told again, to the next service if need be."""

    def __init__(self, campaign: str) -> None:
        self.path = f"/v1/slates/{campaign}"
        self.open: list[dict[str, object]] = []
        self.seen: set[str] = set()
        self.acknowledged = 0
        self.again = 0

    async def step(self, http: httpx.AsyncClient) -> bool:
        """One call; False when there was no answer."""
        try:
            if not self.open:
                answer = await http.post(f"{self.path}/ask", json={"count": 9})
                answer.raise_for_status()
                for pull in answer.json()["pulls"]:
                    assert pull["pull"] not in self.seen
                    self.seen.add(pull["pull"])
                    # Names are drawn, and so is the noise. With a tenth of what the campaign expects, its
                    # estimates of 480 totals are off by .014: arms change places with a probability of 1e-30.
                    told = total(pull["pull"], pull["slate"], std=0.1)
                    self.open.append({"pull": pull["pull"], "total": told})
                return True
            answer = await http.post(f"{self.path}/tell", json={"results": self.open})
        except LOST:
            self.again += 1
            return False
        told = answer.raise_for_status().json()
        assert told["observed"] + told["duplicate"] == len(self.open)
        self.acknowledged += len(self.open)
        self.open = []
        return True

    async def run(self, http: httpx.AsyncClient, stop: asyncio.Event) -> None:
        while not stop.is_set() and await self.step(http):
            pass


async def view(http: httpx.AsyncClient, name: str) -> dict[str, object]:
    found: dict[str, object] = (await http.get(f"/v1/slates/{name}")).raise_for_status().json()
    return found


@pytest.mark.slow
async def test_two_clients_and_a_service_that_is_killed(tmp_path: Path):
    clients = [Client("c"), Client("c")]
    kills = 3
    for number in range(kills + 1):
        with serving(tmp_path) as service:
            async with service.client() as http:
                if number == 0:
                    body = {"id": "c", **BODY, "epsilon": 0.01}
                    (await http.post("/v1/slates", json=body)).raise_for_status()
                if number < kills:
                    await under_way(clients, service, http)
                    continue
                for client in clients:
                    while client.open:
                        assert await client.step(http)
                found = await view(http, "c")
                assert not clients[0].seen & clients[1].seen
                assert found["observed"] == sum(client.acknowledged for client in clients)
                assert found["progress"]["asked"] >= found["observed"]
                assert found["best"] == ["a9", "a8", "a7"]
    assert sum(client.again for client in clients) >= 1, "kills hit calls under way"


async def under_way(clients: list[Client], service: Service, http: httpx.AsyncClient) -> None:
    """Kill it after some more totals, while others are on their way."""
    before, stop = sum(client.acknowledged for client in clients), asyncio.Event()
    running = [asyncio.create_task(client.run(http, stop)) for client in clients]

    async def enough() -> bool:
        return sum(client.acknowledged for client in clients) - before > 120

    await wait_until(enough, what="totals are acknowledged")
    service.kill()
    await asyncio.gather(*running)


async def test_a_killed_campaign_is_the_same_to_the_bit_as_one_that_was_not(tmp_path: Path):
    """Both have the same seed and the same totals; one lives through a kill after every few calls."""
    calls = 24
    with serving(tmp_path) as service:
        async with service.client() as http:
            for name in ("whole", "killed"):
                (await http.post("/v1/slates", json={"id": name, **BODY, "epsilon": 0.2})).raise_for_status()
            await drive(http, "whole", range(calls))
            whole = await view(http, "whole")
    for first in range(0, calls, 12):
        with serving(tmp_path) as service:
            async with service.client() as http:
                await drive(http, "killed", range(first, first + 12))
                before = await view(http, "killed")
                service.kill()
        with serving(tmp_path) as service:
            async with service.client() as http:
                assert await view(http, "killed") == before
    assert {**before, "id": "whole"} == whole
    assert whole["progress"]["looked_at"] > 100  # type: ignore[index]


async def drive(http: httpx.AsyncClient, name: str, calls: range) -> None:
    for call in calls:
        pulls = (await http.post(f"/v1/slates/{name}/ask", json={"count": 25})).json()["pulls"]
        results = [
            {"pull": pull["pull"], "total": total(f"{call}/{place}", pull["slate"])}
            for place, pull in enumerate(pulls)
        ]
        if results:
            (await http.post(f"/v1/slates/{name}/tell", json={"results": results})).raise_for_status()
