"""Calls of the Python client, each against a service."""

# ruff: noqa: F401, F811 - fixtures are imported

import asyncio
import inspect
from datetime import UTC, datetime, timedelta

import httpx
import numpy as np
import pytest
from test_client_calls import ARMS, DIM, client, service

from dropping_proxy import DroppingProxy
from service_process import Service
from shortlist_client import AsyncClient, Client, bodies
from shortlist_client.answers import Choice
from shortlist_client.errors import Invalid, InvalidArgument, NotChangeable, NotFound, PreconditionFailed
from waiting import wait_until_sync

pytestmark = pytest.mark.rest


class CountingProxy(DroppingProxy):
    connections = 0

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        await super()._serve(reader, writer)


def test_all_pages(client: Client):
    assert sorted(arm.id for arm in client.arms("films")) == sorted(f"f{row}" for row in range(ARMS))
    assert [bandit.id for bandit in client.bandits(page_size=1)] == ["home"]
    first = client.list_arms("films", limit=2)
    assert len(first.items) == 2
    assert first.next is not None
    assert client.list_arms("films", limit=2, cursor=first.next).items[0] not in first.items
    assert len(client.list_arms("films", limit=2, sample_seed=1).items) == 2
    assert len(client.list_arms("films", limit=2, sort="tags", order="desc").items) == 2
    fields = client.list_fields("films").items
    assert all(field.arms and sum(field.types.values()) >= field.arms for field in fields)
    assert client.patch_catalogue("films", display={"title": "name"}).display.title == "name"
    assert client.patch_catalogue("films", display=None).display is None


def test_long_lists_are_cut(client: Client):
    choices = client.choose_batch("home", ({"key": f"k{number}"} for number in range(1_500))).results
    assert len({choice.decision for choice in choices}) == 1_500
    rewards = [{"decision": choice.decision, "value": 1.0} for choice in choices]
    rewards.insert(1_200, {"decision": "forged", "value": 1.0})
    receipt = client.reward_batch(rewards, wait=True)
    assert receipt.accepted == 1_500
    assert [(item.index, item.code) for item in receipt.rejected] == [(1_200, "invalid_token")]
    seen = [{"id": f"o{n}", "key": "bob", "arm": f"f{n % ARMS}", "value": 0.5} for n in range(12_000)]
    assert client.observe("home", seen, wait=True).accepted == 12_000
    assert client.get_learner("home", "bob").observations == 12_000


def test_each_request_of_a_batch_is_answered_by_itself(client: Client):
    """Also where the list takes several calls: an error names the request by its number in the whole list."""
    wrong = {3, 1_499}
    requests = [
        bodies.ChooseBody(k=2) if place in wrong else bodies.ChooseBody(key="ann") for place in range(1_500)
    ]
    results = client.choose_each("home", requests)
    assert {place for place, each in enumerate(results) if isinstance(each, Invalid)} == wrong
    assert len([each for each in results if isinstance(each, Choice)]) == len(requests) - len(wrong)
    assert str(results[1_499]).startswith("request 1499: 422 invalid: body.requests.1499.key: ")


@pytest.mark.rest
def test_a_page_is_of_several_bandits_and_its_rows_are_distinct(client: Client):
    client.put_bandit("aside", catalogue="films", policy="sub_ts", reward={"wait_s": 60})
    rows: list[bodies.PageItem] = [
        {"bandit": "home", "key": "ann", "k": 5},
        {"bandit": "aside", "k": 5},
        {"bandit": "none"},
        {"bandit": "aside", "k": 5, "exclude": ["f0"]},
    ]
    results = client.choose_page_each(rows, distinct=True)
    assert isinstance(results[2], NotFound)
    assert str(results[2]).startswith("request 2: 404 not_found: body.requests.2.bandit: ")
    choices = [each for each in results if isinstance(each, Choice)]
    assert len({arm.id for choice in choices for arm in choice.arms}) == 15
    with pytest.raises(NotFound):
        client.choose_page(rows)
    del rows[2]
    assert [len(choice.arms) for choice in client.choose_page(rows, distinct=True).results] == [5, 5, 5]
    # A list that takes several calls cannot be distinct; nothing is sent then. Others are cut.
    many = rows * 400
    with pytest.raises(InvalidArgument, match="requests: distinct is of one request"):
        client.choose_page(many, distinct=True)
    with pytest.raises(InvalidArgument, match="requests: distinct is of one request"):
        client.choose_batch("home", [{"key": "ann"}] * 1_001, distinct=True)
    assert len(client.choose_page(many).results) == len(many)
    batch = client.choose_each("home", [{"key": "ann", "k": 1_000}] * 3, distinct=True)
    assert [len(each.arms) for each in batch if isinstance(each, Choice)] == [1_000, 1_000, ARMS - 2_000]
    client.delete_bandit("aside")


def test_calls_share_a_connection(service: Service):
    with CountingProxy(service.port) as proxy, Client(f"http://127.0.0.1:{proxy.port}") as client:
        for _ in range(20):
            client.choose("home", key="ann")
        assert proxy.connections == 1


def test_the_other_questions(client: Client):
    query = np.ones(DIM)
    best = client.mips("films", query=query, k=3, method="exact")
    assert len(best.arms) == 3
    vectors = np.random.default_rng(2).normal(size=(50, DIM)).astype("<f4")
    listed = client.mips_vectors(query=query, vectors=vectors, k=2, method="exact")
    raw = client.mips_raw(
        np.concatenate([[query], vectors]).astype("<f4").tobytes(), n=50, dim=DIM, k=2, method="exact"
    )
    assert [arm.index for arm in raw.arms] == [arm.index for arm in listed.arms]
    assert len(client.sample_arms("films", query=query, draws=3, seed=1).draws) == 3
    assert set(client.sample(log_factors=[[0.0], ["-Infinity"]], draws=4).draws) == {0}
    assert len(client.find_centers("films", k=3, method="naive").centers) == 3
    assert client.status().arms == ARMS
    assert "shortlist_" in client.metrics()
    assert client.health().status == "ok"


def test_three_thousand_arms_of_256_numbers_go_in_several_calls(client: Client):
    vectors = np.random.default_rng(3).normal(size=(3_000, 256))
    client.put_catalogue("wide", dim=256, index={"kind": "exact"})
    done = client.upsert_arms("wide", vectors, ids=[f"w{row}" for row in range(3_000)])
    assert (done.added, done.updated) == (3_000, 0)
    assert done.version > 3
    assert client.get_arm("wide", "w2999").features == tuple(vectors[2_999])
    assert client.delete_arms("wide", (f"w{row}" for row in range(3_000))).deleted == 3_000
    client.delete_catalogue("wide")


def test_questions_that_are_too_large_for_json_go_as_float32(client: Client):
    rng = np.random.default_rng(4)
    vectors = rng.normal(size=(4_000, 70)).astype("<f4").astype(float)
    found = client.mips_vectors(query=vectors[7], vectors=vectors, k=2, method="exact", value_range=[-40, 40])
    assert found.arms[0].index == 7
    listed = client.mips_vectors(query=vectors[7], vectors=vectors.tolist(), k=2, method="exact")
    assert listed.arms == found.arms
    factors = rng.normal(size=(9_000, 110)) - 100
    factors[5:7] = 0.0
    prior = np.where(np.arange(9_000) == 5, 0.0, -50.0)
    rows: list[list[float | None]] = factors.tolist()
    rows[6] = [None] * 110
    assert set(client.sample(log_factors=factors, log_prior=prior, draws=3, method="exact").draws) == {5}
    assert set(client.sample(log_factors=rows, draws=3, method="exact").draws) == {5}


def test_a_change_by_somebody_else_is_noticed(client: Client, service: Service):
    """A bandit that comes to wait for rewards: the choice after the next is made once."""
    sent: list[httpx.Request] = []
    client.put_bandit("waits-later", catalogue="films", policy="sub_ts")
    with httpx.Client(event_hooks={"request": [sent.append]}) as http:
        other = Client(service.url, http=http)
        other.choose("waits-later")
        client.patch_bandit("waits-later", reward={"wait_s": 60})
        for _ in range(3):
            other.choose("waits-later")
    assert [request.method for request in sent] == ["GET", "POST", "POST", "GET", "POST", "POST"]
    assert [b"event_id" in request.content for request in sent] == [False] * 4 + [True] * 2
    client.delete_bandit("waits-later")
