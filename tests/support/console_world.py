"""A service with what the pages of the console show: signals, quotas, repeats, titles, keys, versions."""

from __future__ import annotations

import math
import random
from datetime import UTC, datetime, timedelta
from typing import Any

from service_process import Service
from shortlist_client import Client
from waiting import wait_until_sync

FILMS = 60
TASTE = (0.9, -0.5, 0.3, 0.2)
GENRES = ("drama", "comedy", "action")


def features(seed: int = 3) -> list[list[float]]:
    draw = random.Random(seed)
    return [[draw.gauss(0, 0.5) for _ in TASTE] for _ in range(FILMS)]


def furnish(service: Service, decisions: int = 240) -> None:
    """Films with titles; a bandit of two signals with quotas, repeats, a holdout and a log of ``decisions``.

    ``plain``: a global bandit over the same films with one reward, and a burst of decisions before the last.
    All choices have seeds, which also say who is in its holdout: groups of random ones differ by so much that
    the console warns once in 40,000.
    """
    rows, draw = features(), random.Random(7)
    with Client(service.url) as client:
        client.put_catalogue("films", dim=len(TASTE), display={"title": "name"})
        metadata: Any = [
            {"name": f"Film number {n}", "genre": GENRES[n % 3], "price": n if n % 10 else "free",
             "campaign": n % 5}
            for n in range(FILMS)
        ]  # fmt: skip
        client.upsert_arms("films", rows, ids=[f"f{n}" for n in range(FILMS)], metadata=metadata)
        client.put_bandit(
            "home",
            catalogue="films",
            policy="softmax",
            temperature=0.2,
            scope="per_key",
            log={},
            holdout={"share": 0.3},
            signals={"click": {"weight": 1.0}, "purchase": {"weight": 10.0}},
            guardrails=[{"signal": "click", "least": 0.001}, {"signal": "purchase", "most": 0.0001}],
            repeats={"most": 3, "within_s": 86_400},
        )
        client.put_quota("home", "used-up", filter={"campaign": 2}, most=3, per_s=86_400 * 365)
        begin = datetime.now(UTC) - timedelta(minutes=1)
        client.put_quota("home", "soon", start=begin, filter={"campaign": 1}, most=2 * decisions)
        client.put_quota("home", "never", filter={"campaign": 3}, most=10**9, per_s=3_600)
        for first in range(0, decisions, 40):
            keys = [f"user-{n % 40}" for n in range(first, first + 40)]
            rewards: list[Any] = []
            asked: list[Any] = [{"key": key, "k": 2, "seed": first} for key in keys]
            for choice in client.choose_batch("home", asked).results:
                for arm in choice.arms:
                    score = sum(a * b for a, b in zip(TASTE, rows[int(arm.id[1:])], strict=True))
                    chance = 1 / (1 + math.exp(1 - 2 * score))
                    for signal, share in (("click", 1.0), ("purchase", 0.1)):
                        value = float(draw.random() < chance * share)
                        reward = {"decision": choice.decision, "arm": arm.id, "signal": signal}
                        rewards.append({**reward, "value": value})
            client.reward_batch(rewards, wait=True)
        client.patch_bandit("home", temperature=0.25)
        client.put_bandit(
            "plain", catalogue="films", policy="softmax", temperature=0.5, log={}, holdout={"share": 0.2}
        )
        for begin_at, burst in ((0, 1_300), (1_300, 8)):
            for first in range(0, burst, 100):
                wishes: list[Any] = [{"seed": begin_at + first + n} for n in range(min(100, burst - first))]
                choices = client.choose_batch("plain", wishes).results
                client.reward_batch(
                    [
                        {"decision": each.decision, "value": 2.0 + (int(each.arms[0].id[1:]) % 3)}
                        for each in choices
                    ],
                    wait=True,
                )
        wait_until_sync(
            lambda: len(list(client.log("plain"))) == 1_308 and len(list(client.log("home"))) == decisions,
            what="all decisions are in the log",
        )
