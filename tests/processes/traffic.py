"""Clients who choose and reward, and remember what must have been learned.

Every reward is of one bandit with aggregate "first" and has a value of its own. A client that got no answer
sends the same reward again, to the next service if need be. In the end each reward was sent until it was
acknowledged, so the sums are known exactly: values are integers and their sums have no rounding.
"""

import asyncio
from collections import defaultdict
from typing import Any, ClassVar

import httpx
import numpy as np
import pytest

from shortlist.linear import ridge_sums
from shortlist.linear.scales import Scales
from waiting import wait_until

KEYS = [f"u{i}" for i in range(12)]
ARMS = {f"a{i}": [1.0, float(i % 3), float(i)] for i in range(8)}
LOST = (httpx.TransportError,)


class Traffic:
    """Clients, one per key, who choose and reward, and remember what must have been learned.

    ``options`` are those of the bandit, ``dim`` is how many numbers a learner has.
    """

    options: ClassVar[dict[str, Any]] = {}
    dim = 3
    least_ratio = (
        0.0  # of the variance of a reward to its noise: with a context 320 for each number of a decision
    )

    def request(self, key: str) -> dict[str, Any]:
        """The body of the next choice."""
        return {"key": key}

    def learned_from(self, arm: str, request: dict[str, Any]) -> list[float]:
        """The features that a reward of this arm teaches."""
        return ARMS[arm]

    def estimate(self, learner: dict[str, Any]) -> list[float]:
        """What a learner shows, as ``dim`` numbers."""
        return list(learner["theta"])

    def __init__(self) -> None:
        self.expected: dict[str, list[tuple[list[float], float]]] = defaultdict(list)
        self.pending: dict[str, tuple[str, list[float], float]] = {}
        self.numbers = iter(range(1, 10**9))
        self.statuses: set[int] = set()
        self.acknowledged = 0
        self.sent_again = 0

    async def step(self, http: httpx.AsyncClient, key: str) -> bool:
        """Choose if nothing is pending, then reward; False when there was no answer."""
        try:
            if key not in self.pending:
                request = self.request(key)
                answer = await http.post("/v1/bandits/b/choose", json=request)
                self.statuses.add(answer.status_code)
                if answer.status_code != 200:
                    return False
                choice = answer.json()
                row = self.learned_from(choice["arms"][0]["id"], request)
                self.pending[key] = (choice["decision"], row, float(next(self.numbers)))
            else:
                self.sent_again += 1
            token, row, value = self.pending[key]
            body = {"rewards": [{"decision": token, "value": value}]}
            answer = await http.post("/v1/rewards", json=body)
        except LOST:
            return False
        self.statuses.add(answer.status_code)
        if answer.status_code not in {200, 202}:
            return False
        receipt = answer.json()
        assert receipt["accepted"] + receipt["duplicate"] == 1, receipt
        del self.pending[key]
        self.expected[key].append((row, value))
        self.acknowledged += 1
        return True

    async def run(self, http: httpx.AsyncClient, key: str, stop: asyncio.Event, *, endure: bool) -> None:
        """Until told to stop, or, unless it should ``endure``, until the service is gone."""
        while not stop.is_set():
            if not await self.step(http, key):
                if not endure:
                    return
                await asyncio.sleep(0.005)

    async def settle(self, http: httpx.AsyncClient) -> None:
        """Send again what was not acknowledged, and compare every learner with what it must be, exactly."""
        for key in list(self.pending):
            await wait_until(lambda key=key: self.step(http, key), what="the reward is acknowledged")

        async def applied() -> bool:
            return bool((await http.get("/readyz")).json().get("backlog") == 0)  # none while it is not ready

        await wait_until(applied, what="the backlog is applied")
        for key in KEYS:
            learner = (await http.get(f"/v1/bandits/b/learners/{key}?include=precision")).json()
            rows = self.expected[key]
            assert learner["observations"] == learner["version"] == len(rows), key
            X = np.array([row for row, _ in rows]).reshape(-1, self.dim)
            r = np.array([value for _, value in rows])
            V = np.array(learner["precision"])
            ridge = learner["used"]["ridge"]
            assert np.array_equal(V, ridge * np.eye(self.dim) + X.T @ X), key
            if rows:
                sums = ridge_sums.of(X, r, np.ones(len(rows), dtype=np.bool_))
                scales = Scales(None, learns_noise=True, least_ratio=self.least_ratio)
                assert ridge == pytest.approx(scales.posterior(sums).ridge, rel=1e-12), key
            theta = np.array(self.estimate(learner))
            np.testing.assert_allclose(V @ theta, X.T @ r, rtol=1e-9, atol=1e-6)
            if r.any():
                of_one_more = 9 * (r @ r) / len(r) / (1 + (X**2).sum() / len(r) / ridge)
                noise = np.sqrt((r @ r - X.T @ r @ theta + of_one_more) / (len(r) + 1))
                assert learner["used"]["noise"] == pytest.approx(noise, rel=1e-4, abs=1e-5), key

    async def build(self, http: httpx.AsyncClient) -> None:
        arms = [{"id": name, "features": row} for name, row in ARMS.items()]
        (await http.put("/v1/catalogues/c", json={"dim": 3})).raise_for_status()
        (await http.put("/v1/catalogues/c/arms", json={"arms": arms})).raise_for_status()
        body = {
            "catalogue": "c",
            "policy": "sub_ts",
            "scope": "per_key",
            "intercept": False,
            "prior": "plain",
        }
        body |= self.options
        (await http.put("/v1/bandits/b", json=body)).raise_for_status()
