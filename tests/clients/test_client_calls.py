"""A session with a real service: calls of every kind, pages, batches, and the connection they share."""

import asyncio
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from service_process import Service, serving
from shortlist_client import AsyncClient, Client
from shortlist_client.errors import ConnectionFailed

ARMS, DIM = 2_500, 4


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with serving(tmp_path_factory.mktemp("calls")) as service:
        vectors = np.random.default_rng(1).normal(size=(ARMS, DIM))
        with Client(service.url) as client:
            client.put_catalogue("films", dim=DIM)
            done = client.upsert_arms("films", vectors, ids=[f"f{row}" for row in range(ARMS)])
            assert (done.added, done.updated) == (ARMS, 0)
            client.put_bandit("home", catalogue="films", policy="sub_ts", scope="per_key")
        yield service


@pytest.fixture
def client(service: Service) -> Iterator[Client]:
    with Client(service.url) as client:
        yield client


def test_choose_and_reward(client: Client):
    choice = client.choose("home", key="ann", k=2)
    receipt = client.reward(choice.decision, value=1.0, arm=choice.arms[0].id, wait=True)
    assert (receipt.accepted, receipt.duplicate) == (1, 0)
    again = client.reward(choice.decision, value=1.0, arm=choice.arms[0].id)
    assert (again.accepted, again.duplicate) == (0, 1)
    assert client.get_learner("home", "ann").observations == 1


@pytest.mark.anyio
async def test_choose_and_reward_in_a_task(service: Service):
    async with AsyncClient(service.url) as client:
        choices = await asyncio.gather(*(client.choose("home", key=f"key-{n}") for n in range(20)))
        receipts = await asyncio.gather(*(client.reward(choice.decision, wait=True) for choice in choices))
        assert [receipt.accepted for receipt in receipts] == [1] * 20
        assert (await client.get_learner("home", "key-7")).observations == 1


def test_a_position_of_none_is_sent_as_null(client: Client):
    """Absent it is "auto", where a bandit can learn it; for all other fields null is as absent."""
    for name, given in (("learns", {}), ("does-not", {"position": None})):
        fields: Any = given
        made = client.put_bandit(name, catalogue="films", policy="sub_ts", scope="per_key", **fields)
        assert made.position == (None if given else "auto")


def test_choices_of_many_arms_are_cut(client: Client):
    asked = [1_000, 1, 999, 500] * 20 + [1_000] * 20
    choices = client.choose_batch("home", ({"key": "ann", "k": k} for k in asked)).results
    assert [len(choice.arms) for choice in choices] == [min(k, ARMS) for k in asked]


def test_a_client_waits_as_long_as_a_service_takes_to_start(monkeypatch: pytest.MonkeyPatch):
    """6 s, whatever is drawn; and no longer than a person would."""
    drawn = {"least": lambda low, _: low, "most": lambda _, high: high}
    waits = {}
    for name, draw in drawn.items():
        monkeypatch.setattr("shortlist_client.exchange.random.uniform", draw)
        slept: list[float] = []
        monkeypatch.setattr("shortlist_client.client.time.sleep", slept.append)
        with Client("http://127.0.0.1:1") as client, pytest.raises(ConnectionFailed):
            client.ready()
        waits[name] = sum(slept)
    assert 6.0 < waits["least"] < waits["most"] < 15.0
