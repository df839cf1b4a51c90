"""SIGKILL while decisions are waited for: each counts once, as its reward or as the default, early or late.

Every decision is for a key of its own, so a learner says what became of one decision: the features of its arm
once, and one value. All numbers are integers, so nothing is rounded.
"""

import asyncio
import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from service_process import Service, run, serving
from waiting import wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.rest]

ARMS = {f"a{i}": [1.0, float(i), float(i * i)] for i in range(5)}
DEFAULT = -7.0
CLIENTS = 8
LATE_BETWEEN_KILLS = 60


@dataclass
class Made:
    """A decision that was acknowledged; ``value`` None: it is never rewarded."""

    key: str
    token: str
    arm: str
    value: float | None
    rewarded: bool = False


class Traffic:
    def __init__(self) -> None:
        self.made: list[Made] = []
        self.numbers = itertools.count(1)
        self.late = 0

    async def client(self, http: httpx.AsyncClient) -> None:
        """A third of the decisions gets a reward at once, a third never, a third later; until it is gone."""
        while True:
            number = next(self.numbers)
            try:
                answer = await http.post("/v1/bandits/b/choose", json={"key": f"k{number}"})
                answer.raise_for_status()
                choice = answer.json()
                value = None if number % 3 == 0 else float(number)
                made = Made(f"k{number}", choice["decision"], choice["arms"][0]["id"], value)
                self.made.append(made)
                if number % 3 == 1:
                    await self.reward(http, made)
            except httpx.TransportError:
                return

    async def reward(self, http: httpx.AsyncClient, made: Made) -> None:
        body = {"rewards": [{"decision": made.token, "value": made.value}]}
        receipt = (await http.post("/v1/rewards", json=body)).json()
        assert receipt["accepted"] + receipt["duplicate"] == 1, receipt
        made.rewarded = True

    async def reward_late(self, http: httpx.AsyncClient, most: int | None = None) -> None:
        """What was decided before the last kill and is not yet rewarded, the oldest first."""
        for made in [made for made in self.made if made.value is not None and not made.rewarded][:most]:
            await self.reward(http, made)
            self.late += 1

    async def check(self, http: httpx.AsyncClient) -> None:

        async def applied() -> bool:
            return bool((await http.get("/readyz")).json().get("backlog") == 0)

        await wait_until(applied, what="late rewards are applied")
        for made in self.made:
            learner = await wait_until(lambda made=made: settled(http, made), what=f"{made.key} is counted")
            x = np.array(ARMS[made.arm])
            V = np.array(learner["precision"])
            assert learner["observations"] == 1, made
            assert np.array_equal(V, learner["used"]["ridge"] * np.eye(3) + np.outer(x, x)), made
            value = DEFAULT if made.value is None else made.value
            np.testing.assert_allclose(V @ learner["theta"], value * x, rtol=1e-9, atol=1e-9)


async def settled(http: httpx.AsyncClient, made: Made) -> Any:
    """The learner, once it has learned something."""
    learner = (await http.get(f"/v1/bandits/b/learners/{made.key}?include=precision")).json()
    return learner if learner["observations"] else None


async def build(http: httpx.AsyncClient) -> None:
    arms = [{"id": name, "features": row} for name, row in ARMS.items()]
    (await http.put("/v1/catalogues/c", json={"dim": 3})).raise_for_status()
    (await http.put("/v1/catalogues/c/arms", json={"arms": arms})).raise_for_status()
    rule = {"wait_s": 0.4, "default": DEFAULT}
    body = {
        "catalogue": "c", "policy": "sub_ts", "scope": "per_key", "reward": rule,
        "intercept": False, "prior": "plain",
    }  # fmt: skip
    (await http.put("/v1/bandits/b", json=body)).raise_for_status()


async def one_kill(traffic: Traffic, service: Service, http: httpx.AsyncClient) -> None:
    before = len(traffic.made)
    clients = [asyncio.create_task(traffic.client(http)) for _ in range(CLIENTS)]
    await traffic.reward_late(http, LATE_BETWEEN_KILLS)  # all would be more each time

    async def enough() -> bool:
        return len(traffic.made) - before > 60

    await wait_until(enough, what="decisions are made")
    service.kill()
    await asyncio.gather(*clients)


async def kill_while_waiting(folder: Path, kills: int) -> Traffic:
    traffic = Traffic()
    for number in range(kills + 1):
        with serving(folder) as service:
            async with service.client() as http:
                if number == 0:
                    await build(http)
                if number < kills:
                    await one_kill(traffic, service, http)
                else:
                    await traffic.reward_late(http)
                    await traffic.check(http)
    return traffic


async def test_a_killed_service_counts_every_decision_once(tmp_path: Path):
    traffic = await kill_while_waiting(tmp_path, kills=2)
    assert len(traffic.made) > 120
    assert traffic.late > 20
    checked = run("replay", "--check", "--data-dir", str(tmp_path / "data"), cwd=tmp_path)
    assert checked.returncode == 0, checked.stderr
    assert " 0 differ" in checked.stdout


@pytest.mark.slow
@pytest.mark.timeout(1_800)
async def test_a_service_killed_many_times_counts_every_decision_once(tmp_path: Path):
    traffic = await kill_while_waiting(tmp_path, kills=25)
    assert traffic.late > 250
