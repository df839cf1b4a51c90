"""Secrets of tokens: every process signs and accepts with the same ones, and none is kept forever."""

import asyncio
import hmac
from collections.abc import Iterator
from typing import Any

import pytest

from app.platform.errors import Unavailable
from app.rewards import tokens as token_secrets
from app.rewards.tokens import BadToken, Decision, KeyedHash, TokenSecrets, TokenSigner
from app.storage import redis_keys
from app.storage.store import Store
from store_clients import connect

pytestmark = pytest.mark.anyio

PERIOD_MS = 60_000
TTL_MS = 150_000


class Clock:
    def __init__(self) -> None:
        self.ms = 1_800_000_000_000

    def time_ns(self) -> int:
        return self.ms * 1_000_000


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    clock = Clock()
    monkeypatch.setattr(token_secrets, "time", clock)
    return clock


class Process:
    """What a service process has of it."""

    def __init__(self, store: Any, **settings: int) -> None:
        self.signer = TokenSigner()
        options = {"period_ms": PERIOD_MS, "token_ttl_ms": TTL_MS, **settings}
        self.secrets = TokenSecrets(store, self.signer, **options)

    def token(self, clock: Clock) -> str:
        return self.signer.sign(Decision("0" * 16, "ann", "d", clock.ms, clock.ms + TTL_MS, ["a"], [1]))


async def test_processes_that_start_together_share_their_secrets(store: Store, clock: Clock):
    processes = [Process(store) for _ in range(8)]
    await asyncio.gather(*(process.secrets.refresh() for process in processes))
    for one in processes:
        for other in processes:
            assert other.signer.verify(one.token(clock), now_ms=clock.ms).learner == "ann"


async def test_a_token_is_accepted_as_long_as_it_lives_whoever_signed_it(store: Store, clock: Clock):
    """Over eleven periods; one process looks only every other period, one starts again each time."""
    first, lazy = Process(store), Process(store)
    tokens: list[tuple[int, str]] = []
    numbers = set()
    for step in range(44):
        await first.secrets.refresh()
        if step % 8 == 0:
            await lazy.secrets.refresh()
        fresh = Process(store)
        await fresh.secrets.refresh()
        tokens += [(clock.ms, process.token(clock)) for process in (first, lazy, fresh)]
        numbers.add(first.signer._number)  # private: the secret is never shown
        for issued_ms, token in tokens:
            for process in (first, lazy, fresh):
                if clock.ms < issued_ms + TTL_MS:
                    process.signer.verify(token, now_ms=clock.ms)
                else:
                    with pytest.raises(BadToken):
                        process.signer.verify(token, now_ms=clock.ms)
        clock.ms += PERIOD_MS // 4
    assert len(numbers) == 11


@pytest.mark.rest
async def test_old_secrets_are_gone(store: Store, store_url: str, clock: Clock):
    """From the process after the last token has expired, and from the store soon after that."""
    process = Process(store)
    await process.secrets.refresh()
    before = set(process.secrets.secrets)
    token = process.token(clock)
    clock.ms += 10 * PERIOD_MS
    await process.secrets.refresh()
    assert not before & set(process.secrets.secrets)
    with pytest.raises(BadToken, match="invalid_token"):
        process.signer.verify(token, now_ms=0)
    async with connect(store_url) as client:
        words = [key async for key in client.scan_iter(match=f"{redis_keys.REGISTRY}word:token-secret/*")]
        assert len(words) == 4
        for word in words:
            assert 0 < await client.pttl(word) <= 7 * PERIOD_MS


@pytest.mark.rest
async def test_a_store_that_is_away_leaves_the_secrets_as_they_are(
    store: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch
):
    process, looked = Process(store), asyncio.Event()
    await process.secrets.refresh()
    token = process.token(clock)

    async def away() -> None:
        looked.set()
        raise Unavailable("the store does not answer")

    process.secrets.refresh_every_s = 0.001
    monkeypatch.setattr(process.secrets, "refresh", away)
    running = asyncio.create_task(process.secrets.run())
    await looked.wait()
    looked.clear()
    await looked.wait()
    assert not running.done()
    running.cancel()
    assert process.signer.verify(token, now_ms=clock.ms).id == "d"


@pytest.mark.rest
async def test_another_period_does_not_share_numbers_by_accident(store: Store, clock: Clock):
    """A changed setting starts again: secrets of other periods are never taken for one's own."""
    one, other = Process(store), Process(store, period_ms=2 * PERIOD_MS)
    await one.secrets.refresh()
    await other.secrets.refresh()
    assert not set(one.secrets.secrets.values()) & set(other.secrets.secrets.values())


@pytest.mark.rest
@pytest.mark.parametrize("secret", [b"", bytes(range(32)), b"\xff" * 64])
def test_a_tag_is_the_first_half_of_an_hmac(secret: bytes):
    keyed = KeyedHash(secret)
    for length in (0, 55, 64, 1_000):
        signed = bytes(length)
        assert keyed.tag(signed) == hmac.digest(secret, signed, "sha256")[:16]
