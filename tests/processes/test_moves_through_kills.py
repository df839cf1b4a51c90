"""A process is killed while it moves a bandit, after ever more steps; another one serves and learns on."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import httpx
import numpy as np
import pytest
from traffic import ARMS, KEYS, LOST, Traffic

from app.storage.store import Store
from deployment import Town, town
from service_process import run, serving
from store_server import patient_store, store_server
from waiting import wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.rest]

TURN = np.array([[1.0, 0.5, 0.0], [0.0, 2.0, 1.0], [-1.0, 0.0, 1.0]])  # from c to d


class MovedTraffic(Traffic):
    """The features of d are linear in those of c, so learners know the same however they were carried."""

    async def build(self, http: httpx.AsyncClient) -> None:
        await super().build(http)
        arms = [{"id": name, "features": (TURN @ row).tolist()} for name, row in ARMS.items()]
        (await http.put("/v1/catalogues/d", json={"dim": 3})).raise_for_status()
        (await http.put("/v1/catalogues/d/arms", json={"arms": arms})).raise_for_status()

    async def finish(self, *replicas: httpx.AsyncClient) -> None:
        """Every acknowledged reward is learned once, with the features of now, and replicas agree."""
        first = replicas[0]
        for key in list(self.pending):
            await wait_until(lambda key=key: self.step(first, key), what="the reward is acknowledged")

        async def applied() -> bool:
            return bool((await first.get("/readyz")).json().get("backlog") == 0)

        await wait_until(applied, what="the backlog is applied")
        catalogue = (await first.get("/v1/bandits/b")).json()["catalogue"]
        turn = TURN if catalogue == "d" else np.eye(3)
        for key in KEYS:
            path = f"/v1/bandits/b/learners/{key}?include=precision"
            learner, *others = [(await http.get(path)).json() for http in replicas]
            assert all(other == learner for other in others)
            rows = self.expected[key]
            assert learner["observations"] == learner["version"] == len(rows), key
            X = np.array([row for row, _ in rows]).reshape(-1, 3) @ turn.T
            r = np.array([value for _, value in rows])
            V = np.array(learner["precision"])
            scale = 1e-5 * np.abs(X.T @ X).max(initial=1.0)
            np.testing.assert_allclose(V - learner["used"]["ridge"] * np.eye(3), X.T @ X, atol=scale)
            moment = X.T @ r
            scale = 1e-4 * np.abs(moment).max(initial=1.0)
            np.testing.assert_allclose(V @ np.array(learner["theta"]), moment, atol=scale)


async def moved(http: httpx.AsyncClient, body: dict[str, str]) -> bool:
    """Whether the move is done, and all learners are carried; the same call again finishes it."""
    try:
        answer = await http.post("/v1/bandits/b/move", json=body)
        if answer.status_code != 200:
            assert answer.status_code in {409, 503}, answer.text
            return False
        return "move" not in (await http.get("/v1/bandits/b")).json()
    except LOST:
        return False


async def kill_movers(folder: Path, carries: list[str], *, step: int) -> None:
    traffic, stop = MovedTraffic(), asyncio.Event()
    with store_server(folder / "store") as url, serving(folder / "1", "--redis-url", url) as standing:
        async with standing.client() as http:
            await traffic.build(http)
            visitors = [asyncio.create_task(traffic.run(http, key, stop, endure=True)) for key in KEYS]
            for number, carry in enumerate(carries):
                body = {"catalogue": "cd"[(number + 1) % 2], "carry": carry}
                with serving(folder / f"killed-{number}", "--redis-url", url) as killed:
                    async with killed.client() as other:
                        before = traffic.acknowledged
                        move = asyncio.create_task(moved(other, body))

                        async def enough(before: int = before, number: int = number) -> bool:
                            return traffic.acknowledged - before > step * number

                        await wait_until(enough, what="rewards are acknowledged meanwhile")
                        killed.kill()
                        await move
                await wait_until(lambda body=body: moved(http, body), what="the move is done")
            stop.set()
            await asyncio.gather(*visitors)
            with serving(folder / "2", "--redis-url", url) as last:
                async with last.client() as replica:
                    await traffic.finish(http, replica)
        done = await asyncio.to_thread(run, "replay", "--check", "--redis-url", url, cwd=folder)
        assert done.returncode == 0, done.stdout + done.stderr
    assert traffic.statuses <= {200, 202, 503}
    assert traffic.acknowledged > len(KEYS)


async def has_come(store: Store, uid: str, number: int, point: float) -> bool:
    """Whether this share of the steps of a move is done. In each partition: its entry is in the log, it is
    folded, all learners are carried.
    """
    progress = await store.moves.progress(uid)
    return float(np.mean([step >= number for each in progress for step in each])) >= point


async def kill_workers(folder: Path, carries: list[str], points: list[float], *, movers: bool) -> None:
    """The only worker is killed once the steps of a move have come so far; another one goes on.

    ``movers``: the replica that moves the bandit is killed and replaced at these points too.
    """
    traffic, stop = MovedTraffic(), asyncio.Event()
    with town(folder, replicas=2) as made:
        store = patient_store(made.redis.url)
        await store.open()
        async with made.replicas[0].client() as http:
            await traffic.build(http)
            visitors = [asyncio.create_task(traffic.run(http, key, stop, endure=True)) for key in KEYS]
            uid = (await http.get("/v1/bandits/b/log/terms")).json()["id"]
            for number, carry in enumerate(carries, 1):
                body = {"catalogue": "cd"[number % 2], "carry": carry}
                for point in points:
                    come = partial(has_come, store, uid, number, point)
                    await move_and_kill(made, body, come, movers=movers)
                before = traffic.acknowledged
                await wait_until(partial(moved, http, body), what="the move is done")

                async def more(before: int = before) -> bool:
                    return traffic.acknowledged > before

                await wait_until(more, what="rewards come after it")
            stop.set()
            await asyncio.gather(*visitors)
            async with made.replicas[1].client() as replica:
                await traffic.finish(http, replica)
        await store.close()
        await asyncio.to_thread(made.check_replay)
    assert traffic.statuses <= {200, 202, 503}


async def move_and_kill(
    made: Town, body: dict[str, str], point: Callable[[], Awaitable[bool]], *, movers: bool
) -> None:
    async with made.replicas[1].client() as other:
        move = asyncio.create_task(moved(other, body))

        async def is_there() -> bool:
            return move.done() or await point()

        await wait_until(is_there, what="the move comes so far")
        made.crew.kill(made.crew.pids[0])
        if movers:
            made.replace(1)
        made.crew.hire()
        await move


@pytest.mark.slow
async def test_a_killed_worker_loses_no_reward(tmp_path: Path):
    await kill_workers(tmp_path, ["map"], [0.3], movers=False)


@pytest.mark.slow
@pytest.mark.parametrize("movers", [False, True], ids=["workers", "workers and movers"])
async def test_workers_that_are_killed_at_every_step_lose_no_reward(tmp_path: Path, movers: bool):
    points = [0.0, 0.05, 0.33, 0.4, 0.6, 0.67, 0.75, 0.9]
    await kill_workers(tmp_path, ["map"] * 4, points, movers=movers)


async def test_a_killed_mover_loses_no_reward(tmp_path: Path):
    await kill_movers(tmp_path, ["map"] * 2, step=4)


@pytest.mark.slow
async def test_movers_that_are_killed_after_ever_more_steps_lose_no_reward(tmp_path: Path):
    await kill_movers(tmp_path, ["map"] * 24, step=2)
