"""Signals through SIGKILL and of several processes: late, sent twice, missing and revised, each counts once.

Values are integers, so what must have been learned is known exactly. In the end the bandit with signals is
held beside one, of the same name in a store of its own, that learned the mix from the start.
"""

import asyncio
import itertools
import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from traffic import ARMS, KEYS, LOST

from service_process import Service, run, serving
from store_server import store_server
from waiting import wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.rest]

DIAL = {"click": 1.0, "buy": 20.0, "watch": 0.25}
DEFAULTS = {"click": 0.0, "buy": 2.0, "watch": 0.0}
SIGNALS: dict[str, Any] = {
    "click": {"weight": DIAL["click"]},
    "buy": {"weight": DIAL["buy"], "default": DEFAULTS["buy"]},
    "watch": {"weight": DIAL["watch"], "aggregate": "last"},
}
# A ridge that is "auto" is one of all signals, which one mix of them would not have.
SETTINGS = {
    "catalogue": "c", "policy": "sub_ts", "scope": "per_key", "intercept": False, "prior": "plain",
    "ridge": 1.0,
}  # fmt: skip
NOW = 1_700_000_000_000


@dataclass
class Shown:
    """A decision that was acknowledged, what is still to be sent of it, and what has come of its signals."""

    key: str
    token: str
    arm: str
    to_send: list[dict[str, Any]]
    came: dict[str, tuple[int, float]] = field(default_factory=dict)

    @property
    def values(self) -> dict[str, float]:
        return {name: self.came[name][1] if name in self.came else DEFAULTS[name] for name in DIAL}


class SignalTraffic:
    """Clients who choose and reward. What was not answered for is sent again, to whoever serves then."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.shown: list[Shown] = []
        self.acknowledged = 0
        self.sent_again = 0

    def planned(self, token: str) -> list[dict[str, Any]]:
        """Some signals, some of them twice, one revised several times, in any order."""
        rng, items = self.rng, list[dict[str, Any]]()
        for name in DIAL:
            if rng.random() < 0.6:
                times = rng.randint(1, 3) if name == "watch" else 1
                for _ in range(times):
                    said = {"signal": name, "value": float(rng.randint(-5, 5)), "at": NOW + rng.randrange(9)}
                    items += [{"decision": token, **said}] * rng.randint(1, 2)
        rng.shuffle(items)
        return items

    async def step(self, http: httpx.AsyncClient) -> None:
        """Choose, or send what is left of some decision. Raises TransportError when the service is gone."""
        open_ones = [each for each in self.shown if each.to_send]
        if len(open_ones) < 20:
            key = self.rng.choice(KEYS)
            answer = await http.post("/v1/bandits/b/choose", json={"key": key})
            if answer.status_code == 200:
                choice = answer.json()
                token = choice["decision"]
                self.shown.append(Shown(key, token, choice["arms"][0]["id"], self.planned(token)))
            return
        await self.send(http, self.rng.choice(open_ones))

    async def send(self, http: httpx.AsyncClient, shown: Shown) -> None:
        item = shown.to_send[-1]
        if item.get("sent"):
            self.sent_again += 1
        item["sent"] = True
        body = {name: value for name, value in item.items() if name != "sent"}
        answer = await http.post("/v1/rewards", json={"rewards": [body]})
        if answer.status_code not in {200, 202}:
            return
        receipt = answer.json()
        assert receipt["accepted"] + receipt["duplicate"] == 1, receipt
        if item in shown.to_send:  # another client may have sent it too
            shown.to_send.remove(item)
            self.acknowledged += 1
        said = (item["at"], item["value"])
        had = shown.came.get(item["signal"])
        if had is None or (item["signal"] == "watch" and said > had):
            shown.came[item["signal"]] = said

    async def client(self, http: httpx.AsyncClient, stop: asyncio.Event) -> None:
        while not stop.is_set():
            try:
                await self.step(http)
            except LOST:
                return

    async def settle(self, http: httpx.AsyncClient) -> None:
        """Send the rest, and compare every learner with what it must be."""
        for shown in self.shown:
            while shown.to_send:
                await self.send(http, shown)

        async def applied() -> bool:
            return bool((await http.get("/readyz")).json().get("backlog") == 0)

        await wait_until(applied, what="the backlog is applied")
        for key in KEYS:
            learner = (await http.get(f"/v1/bandits/b/learners/{key}?include=precision")).json()
            rows = [each for each in self.shown if each.key == key and each.came]
            assert learner["observations"] == len(rows), key
            if rows:
                X = np.array([ARMS[each.arm] for each in rows])
                V = np.array(learner["precision"])
                assert np.array_equal(V, learner["used"]["ridge"] * np.eye(3) + X.T @ X), key
                for name in DIAL:
                    r = np.array([each.values[name] for each in rows])
                    theta = np.array(learner["signals"][name]["theta"])
                    np.testing.assert_allclose(V @ theta, X.T @ r, rtol=1e-9, atol=1e-7)


async def build(http: httpx.AsyncClient, **more: Any) -> None:
    arms = [{"id": name, "features": row} for name, row in ARMS.items()]
    (await http.put("/v1/catalogues/c", json={"dim": 3})).raise_for_status()
    (await http.put("/v1/catalogues/c/arms", json={"arms": arms})).raise_for_status()
    (await http.put("/v1/bandits/b", json={**SETTINGS, **more})).raise_for_status()


async def traffic_until_killed(
    traffic: SignalTraffic, services: list[Service], killed: Service, rewards: int
) -> None:
    """Clients of all services, until one of them is killed in the midst."""
    before, stop = traffic.acknowledged, asyncio.Event()
    opened = [service.client() for service in services]
    clients = [asyncio.create_task(traffic.client(http, stop)) for http in itertools.chain(*[opened] * 4)]

    async def enough() -> bool:
        return traffic.acknowledged - before > rewards

    await wait_until(enough, what="rewards are acknowledged")
    killed.kill()
    stop.set()
    await asyncio.gather(*clients)
    for http in opened:
        await http.aclose()


async def same_as_the_mix(traffic: SignalTraffic, http: httpx.AsyncClient, folder: Path) -> None:
    """The same theta, and the same choices with the same seeds, as a bandit that learned the mix."""
    with serving(folder) as service:
        async with service.client() as mixed:
            await build(mixed)
            items = [
                {
                    "id": f"o{number}",
                    "key": each.key,
                    "arm": each.arm,
                    "value": sum(DIAL[name] * value for name, value in each.values.items()),
                }
                for number, each in enumerate(traffic.shown)
                if each.came
            ]
            for start in range(0, len(items), 500):
                body = {"observations": items[start : start + 500]}
                (await mixed.post("/v1/bandits/b/observations?wait=applied", json=body)).raise_for_status()
            for key in KEYS:
                path = f"/v1/bandits/b/learners/{key}"
                thetas = [(await each.get(path)).json()["theta"] for each in (http, mixed)]
                scale = max(map(abs, thetas[1]))
                np.testing.assert_allclose(*thetas, rtol=1e-9, atol=1e-9 * scale)
                for seed in range(10):
                    asked = {"key": key, "seed": seed, "k": 3}
                    choices = [
                        (await each.post("/v1/bandits/b/choose", json=asked)).json() for each in (http, mixed)
                    ]
                    names = [[arm["id"] for arm in choice["arms"]] for choice in choices]
                    assert names[0] == names[1], (key, seed)


async def kill_one_service(folder: Path, kills: int) -> SignalTraffic:
    traffic = SignalTraffic(seed=kills)
    for number in range(kills + 1):
        with serving(folder / "dial") as service:
            async with service.client() as http:
                if number == 0:
                    await build(http, signals=SIGNALS)
                if number < kills:
                    await traffic_until_killed(traffic, [service], service, 150)
                else:
                    await traffic.settle(http)
                    await same_as_the_mix(traffic, http, folder / "mix")
    checked = await asyncio.to_thread(
        run, "replay", "--check", "--data-dir", str(folder / "dial" / "data"), cwd=folder
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
    return traffic


async def test_a_killed_service_counts_every_signal_once(tmp_path: Path):
    await kill_one_service(tmp_path, kills=1)


@pytest.mark.slow
@pytest.mark.timeout(1_800)
async def test_a_service_killed_many_times_counts_every_signal_once(tmp_path: Path):
    traffic = await kill_one_service(tmp_path, kills=15)
    assert traffic.sent_again > 0, "kills hit rewards under way"


@pytest.mark.slow
async def test_replicas_learn_every_signal_once(tmp_path: Path):
    """Two processes of one store, one of which is killed and comes back."""
    traffic = SignalTraffic(seed=7)
    with store_server(tmp_path / "store") as url, serving(tmp_path / "1", "--redis-url", url) as first:
        async with first.client() as http:
            await build(http, signals=SIGNALS)
            with serving(tmp_path / "2", "--redis-url", url) as second:
                await traffic_until_killed(traffic, [first, second], second, 200)
            with serving(tmp_path / "2", "--redis-url", url) as second:
                async with second.client() as other:
                    await traffic.settle(other)
                    await traffic.settle(http)
                    await same_as_the_mix(traffic, other, tmp_path / "mix")
