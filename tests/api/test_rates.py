"""A rate for each API key and each visitor: 429 beyond, before a body is read, and others do not wait."""

import json
import random
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import httpx
import pytest

from api_client import Api, running
from app.api.api_keys import ApiKey, new_key
from app.api.rate_limits import LEAST_PURGED, Rates
from app.platform.errors import TooManyRequests
from app.platform.metrics import Metrics
from shortlist_client import visitor_pass

pytestmark = [pytest.mark.anyio, pytest.mark.rest]

SHOP = "https://shop.example"
# So slow that no request more is let in while a test runs, however busy the machine.
SLOW, SLOW_ENTRY = new_key("slow", ["choose", "reward"], {"rate": "0.001/s", "visitors": "3600"})
BATCH, BATCH_ENTRY = new_key("batch", ["choose"], {"rate": "3/s"})
FREE, FREE_ENTRY = new_key("free", ["admin"])


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


@pytest.fixture
async def public(store_url: str, tmp_path: Path) -> AsyncIterator[Api]:
    entries = f"{SLOW_ENTRY} {BATCH_ENTRY} {FREE_ENTRY}"
    async with running(store_url, tmp_path, api_keys=entries, cors_origins=SHOP) as api:
        api.http.headers.update(bearer(FREE))
        await api.catalogue("c", {"a": [1, 1]})
        await api.bandit("own", "c", scope="per_key")
        yield api


async def test_beyond_its_rate_a_key_is_told_when_to_come_again(public: Api):
    path, body = "/v1/bandits/own/choose", {"key": "ann"}
    await public.ok("POST", path, body, headers=bearer(SLOW))
    page = bearer(SLOW) | {"origin": SHOP}
    answer = await public.call("POST", path, body, headers=page)
    assert (answer.status_code, answer.json()["code"]) == (429, "too_many_requests")
    assert 900 < int(answer.headers["retry-after"]) <= 1_000
    assert answer.headers["access-control-allow-origin"] == SHOP
    assert "retry-after" in answer.headers["access-control-expose-headers"]
    await public.refused("GET", "/v1/nothing", status=429, code="too_many_requests", headers=bearer(SLOW))
    # what needs no key counts for none, other keys go on, and each visitor has a rate of their own
    await public.ok("GET", "/healthz", headers=bearer(SLOW))
    await public.ok("POST", path, body)
    for visitor in ("ann", "bob"):
        headers = bearer(visitor_pass(SLOW, visitor=visitor))
        await public.ok("POST", path, {}, headers=headers)
        await public.refused(
            "POST", path, {}, status=429, code="too_many_requests",
            headers=bearer(visitor_pass(SLOW, visitor=visitor, bandits=["own"])),
        )  # fmt: skip
    text = (await public.call("GET", "/metrics")).text
    assert 'shortlist_rate_refused_total{by="key",key="slow"} 2.0' in text
    assert 'shortlist_rate_refused_total{by="pass",key="slow"} 2.0' in text


async def test_a_body_beyond_the_rate_is_not_read(public: Api):
    async def body() -> AsyncIterator[bytes]:
        raise AssertionError("the body was read")
        yield b""

    await public.ok("POST", "/v1/bandits/own/choose", {"key": "ann"}, headers=bearer(SLOW))
    for path in ("/v1/bandits/own/choose", "/v1/rewards", "/v1/catalogues/c/import"):
        answer = await public.http.post(path, content=body(), headers=bearer(SLOW))
        assert answer.status_code == 429


@pytest.mark.parametrize("path", ["/v1/bandits/own/choose/batch", "/v1/choose/batch"])
async def test_each_choice_of_a_batch_counts(public: Api, path: str):
    named = {} if "bandits" in path else {"bandit": "own"}
    requests = [{**named, "key": "ann"}] * 300
    await public.ok("POST", path, {"requests": requests}, headers=bearer(BATCH))
    answer = await public.call("POST", path, {"requests": requests[:1]}, headers=bearer(BATCH))
    assert answer.status_code == 429
    assert 1 < int(answer.headers["retry-after"]) <= 100


async def test_of_batches_that_arrive_together_one_is_let_in(public: Api):
    """Their heads are all admitted, before any body is there to be counted."""
    path, requests = "/v1/bandits/own/choose/batch", [{"key": "ann"}] * 300
    heads, bodies = [anyio.Event() for _ in range(3)], anyio.Event()
    answers: list[httpx.Response] = []

    async def send(head: anyio.Event) -> None:
        async def body() -> AsyncIterator[bytes]:
            head.set()
            await bodies.wait()
            yield json.dumps({"requests": requests}).encode()

        headers = bearer(BATCH) | {"content-type": "application/json"}
        answers.append(await public.http.post(path, content=body(), headers=headers))

    async with anyio.create_task_group() as group:
        for head in heads:
            group.start_soon(send, head)
        for head in heads:
            await head.wait()
        bodies.set()
    assert sorted(answer.status_code for answer in answers) == [200, 429, 429]
    refused = next(answer for answer in answers if answer.status_code == 429)
    assert refused.json()["code"] == "too_many_requests"
    assert 90 < int(refused.headers["retry-after"]) <= 101


class Clock:
    now = 1e6

    def __call__(self) -> float:
        return self.now


def is_let_in(rates: Rates, key: ApiKey) -> bool:
    try:
        rates.admit(key)
    except TooManyRequests:
        return False
    return True


@pytest.mark.parametrize("rate", [0.25, 1.0, 3.0, 50.0, 999.0])
def test_a_second_at_once_and_the_rate_after_it(rate: float):
    """Compared with a bucket that is counted by hand, at times that do not fall together with its own."""
    clock, key = Clock(), ApiKey("web", frozenset({"choose"}), rate=rate)
    rates, rng, most = Rates(Metrics(), clock=clock), random.Random(7), max(rate, 1.0)
    assert sum(is_let_in(rates, key) for _ in range(int(most) + 20)) == int(most)
    tokens, began = most - int(most), clock.now
    for _ in range(2_000):
        step = rng.expovariate(rate) * rng.choice([0.2, 1.0, 3.0])
        clock.now += step
        tokens = min(most, tokens + rate * step)
        if abs(tokens - 1.0) < 1e-3:  # too near to say which of two roundings is right
            clock.now += 0.1 / rate
            tokens = min(most, tokens + 0.1)
        expected = tokens >= 1.0
        assert is_let_in(rates, key) == expected, (clock.now - began, tokens)
        tokens -= expected


def test_who_waits_as_long_as_was_said_is_let_in():
    clock, key = Clock(), ApiKey("web", frozenset({"choose"}), rate=0.3)
    rates = Rates(Metrics(), clock=clock)
    rates.admit(key)
    with pytest.raises(TooManyRequests) as caught:
        rates.admit(key)
    clock.now += caught.value.retry_after_s
    rates.admit(key)
    rates.charge(key, 100)
    with pytest.raises(TooManyRequests) as caught:
        rates.admit(key)
    assert caught.value.retry_after_s == 337  # 101 / 0.3
    clock.now += 337
    rates.admit(key)


def test_what_is_kept_is_of_those_who_asked_of_late():
    clock = Clock()
    rates = Rates(Metrics(), clock=clock)
    for number in range(100_000):
        clock.now += 0.001
        rates.admit(ApiKey("web", frozenset({"choose"}), rate=10.0, visitor=f"v{number}"))
    assert len(rates) <= 2 * LEAST_PURGED
