"""SIGKILL under a slate campaign: pulls and totals that were acknowledged stay, and it goes on to the bit."""

import zlib
from pathlib import Path

import httpx
import pytest

from service_process import serving

pytestmark = [pytest.mark.anyio, pytest.mark.rest]

ARMS = [f"a{i}" for i in range(10)]
BODY = {"arms": ARMS, "k": 3, "method": "sa_foa", "epsilon": 0.5, "noise_std": 1.0, "seed": 3}


def total(name: str, slate: list[str], std: float = 1.0) -> float:
    """The total of a pull: arm i has mean i / 4; the noise is fixed by the name."""
    noise = sum(zlib.crc32(f"{name}/{part}".encode()) / 2**32 for part in range(12)) - 6.0
    return sum(ARMS.index(arm) / 4 for arm in slate) + std * noise


async def view(http: httpx.AsyncClient, name: str) -> dict[str, object]:
    found: dict[str, object] = (await http.get(f"/v1/slates/{name}")).raise_for_status().json()
    return found


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
