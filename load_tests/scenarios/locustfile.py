"""Behaviour under load: visitors who click now and then, and an editor who changes the arms.

    locust -f load_tests/scenarios/locustfile.py --headless --host http://127.0.0.1:8080 -u 50 -r 10 -t 60s

Makes its own catalogue and bandit on the service at --host. A wrong answer counts as a failure, not only an
error: arms that were deleted before the call, a reward that is neither accepted nor a duplicate.
"""

from __future__ import annotations

import itertools
import random
from typing import Any

from locust import FastHttpUser, between, constant_pacing, events, task

CATALOGUE, BANDIT = "locust", "locust"
ARMS, DIM, KEYS = 5_000, 16, 2_000
CLICK_SHARE = 0.3
BATCH = 1_000

rng = random.Random(5)
numbers = itertools.count(ARMS)
living = [f"arm-{number}" for number in range(ARMS)]


def arm(name: str) -> dict[str, Any]:
    return {"id": name, "features": [rng.gauss(0.0, 1.0) for _ in range(DIM)]}


@events.test_start.add_listener
def fill(environment: Any, **_: Any) -> None:
    """The catalogue and the bandit, through the same client as the users."""
    Visitor.host = environment.host
    user = Visitor(environment)
    user.client.put(f"/v1/catalogues/{CATALOGUE}", json={"dim": DIM}, name="set-up")
    for start in range(0, ARMS, BATCH):
        body = {"arms": [arm(name) for name in living[start : start + BATCH]]}
        user.client.put(f"/v1/catalogues/{CATALOGUE}/arms", json=body, name="set-up")
    body = {"catalogue": CATALOGUE, "policy": "sub_ts", "scope": "per_key"}
    user.client.put(f"/v1/bandits/{BANDIT}", json=body, name="set-up")


class Visitor(FastHttpUser):
    """Asks for a page of arms and rewards one of them now and then."""

    weight = 20
    wait_time = between(0.1, 1.0)

    @task
    def visit(self) -> None:
        body = {"key": f"user-{rng.randrange(KEYS)}", "k": 5}
        with self.client.post(f"/v1/bandits/{BANDIT}/choose", json=body, catch_response=True) as answer:
            if answer.status_code != 200:
                return
            choice = answer.json()
            if len({chosen["id"] for chosen in choice["arms"]}) != 5:
                answer.failure("not five distinct arms")
        if rng.random() < CLICK_SHARE:
            self.click(choice)

    def click(self, choice: dict[str, Any]) -> None:
        chosen = rng.choice(choice["arms"])["id"]
        body = {"rewards": [{"decision": choice["decision"], "arm": chosen, "value": 1.0}]}
        with self.client.post("/v1/rewards", json=body, catch_response=True) as answer:
            if answer.status_code == 202 and answer.json()["accepted"] != 1:
                answer.failure("the reward was not accepted")


class Editor(FastHttpUser):
    """Retires arms and adds new ones, all day."""

    weight = 1
    wait_time = constant_pacing(1.0)

    @task
    def edit(self) -> None:
        gone = [living.pop(rng.randrange(len(living))) for _ in range(20)]
        new = [f"arm-{next(numbers)}" for _ in range(20)]
        self.client.post(f"/v1/catalogues/{CATALOGUE}/arms/delete", json={"ids": gone})
        self.client.put(f"/v1/catalogues/{CATALOGUE}/arms", json={"arms": [arm(name) for name in new]})
        living.extend(new)
        body = {"key": "editor", "k": 50, "exclude": []}
        with self.client.post(f"/v1/bandits/{BANDIT}/choose", json=body, catch_response=True) as answer:
            if answer.status_code == 200 and {a["id"] for a in answer.json()["arms"]} & set(gone):
                answer.failure("an arm that was deleted was chosen")
