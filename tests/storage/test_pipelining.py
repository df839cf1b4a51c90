"""Commands that travel together: every caller gets its own answer, and its own error only."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from redis import exceptions as driver
from redis.asyncio import Redis, RedisCluster

from app.storage.pipelining import IN_FLIGHT, Pipeliner

pytestmark = pytest.mark.anyio


@pytest.fixture
async def redis(store_url: str) -> AsyncIterator[Redis]:
    async with Redis.from_url(store_url) as client:
        await client.flushall()
        yield client


async def test_everyone_gets_the_answer_to_its_own_command(redis: Redis) -> None:
    pipeliner = Pipeliner(redis)
    answers = await asyncio.gather(*(pipeliner.command("ECHO", f"{number}") for number in range(500)))
    assert answers == [b"%d" % number for number in range(500)]
    await pipeliner.close()


@pytest.mark.rest
async def test_an_error_is_that_of_its_command_alone(redis: Redis) -> None:
    pipeliner = Pipeliner(redis)
    await pipeliner.command("SET", "text", "x")
    words = [("INCR", "a"), ("INCR", "text"), ("EVALSHA", "0" * 40, 0), ("INCR", "b"), ("NONSENSE",)]
    answers = await asyncio.gather(*(pipeliner.command(*w) for w in words), return_exceptions=True)
    assert answers[0] == answers[3] == 1
    assert [type(answer) for answer in answers[1:3]] == [driver.ResponseError, driver.NoScriptError]
    assert isinstance(answers[4], driver.ResponseError)
    assert await pipeliner.command("GET", "text") == b"x"  # the connection is in step


class Wire:
    """A driver whose exchanges end when the test says so."""

    def __init__(self) -> None:
        self.sent: list[list[tuple[Any, ...]]] = []
        self.replies: list[asyncio.Future[Sequence[Any]]] = []

    async def execute_command(self, *words: Any) -> Any:
        return (await self._exchange([words]))[0]

    def pipeline(self, *, transaction: bool) -> "Wire.Pipeline":
        return Wire.Pipeline(self, transaction=transaction)

    async def _exchange(self, commands: list[tuple[Any, ...]]) -> Sequence[Any]:
        self.sent.append(commands)
        self.replies.append(asyncio.get_running_loop().create_future())
        return await self.replies[-1]

    class Pipeline:
        def __init__(self, wire: "Wire", *, transaction: bool) -> None:
            self._wire = wire
            self._transaction = transaction
            self._stack: list[tuple[Any, ...]] = []

        def execute_command(self, *words: Any) -> None:
            self._stack.append(words)

        async def execute(self, *, raise_on_error: bool = True) -> Sequence[Any]:
            assert raise_on_error is self._transaction
            return await self._wire._exchange(self._stack)


async def turns(number: int = 5) -> None:
    for _ in range(number):
        await asyncio.sleep(0)


@pytest.mark.rest
async def test_one_turn_is_one_exchange_and_nobody_waits_for_company() -> None:
    wire = Wire()
    pipeliner = Pipeliner(wire)
    first = [asyncio.ensure_future(pipeliner.command("A", n)) for n in range(3)]
    await turns()
    alone = asyncio.ensure_future(pipeliner.command("B"))
    await turns()
    assert wire.sent == [[("A", 0), ("A", 1), ("A", 2)], [("B",)]]
    wire.replies[1].set_result(["b"])
    assert await alone == "b"
    wire.replies[0].set_result([1, 2, 3])
    assert await asyncio.gather(*first) == [1, 2, 3]


@pytest.mark.rest
async def test_beyond_the_limit_commands_leave_together_when_an_exchange_returns() -> None:
    wire = Wire()
    pipeliner = Pipeliner(wire)
    asked = []
    for number in range(IN_FLIGHT + 3):
        asked.append(asyncio.ensure_future(pipeliner.command("A", number)))
        await turns()
    assert len(wire.sent) == IN_FLIGHT
    wire.replies[0].set_result(["ok"])
    await turns()
    assert wire.sent[IN_FLIGHT:] == [[("A", IN_FLIGHT + n) for n in range(3)]]
    for reply, commands in list(zip(wire.replies, wire.sent, strict=True))[1:]:
        reply.set_result(["ok"] * len(commands))
    assert await asyncio.gather(*asked) == ["ok"] * (IN_FLIGHT + 3)


@pytest.mark.rest
async def test_a_broken_exchange_is_the_error_of_all_on_it_and_of_nobody_else() -> None:
    wire = Wire()
    pipeliner = Pipeliner(wire)
    lost = [asyncio.ensure_future(pipeliner.command("A", n)) for n in range(3)]
    await turns()
    sound = asyncio.ensure_future(pipeliner.command("B"))
    await turns()
    wire.replies[0].set_exception(ConnectionResetError())
    outcomes = await asyncio.gather(*lost, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [ConnectionResetError] * 3
    wire.replies[1].set_result(["b"])
    assert await sound == "b"


@pytest.mark.rest
async def test_a_caller_that_leaves_does_not_take_the_others_along() -> None:
    wire = Wire()
    pipeliner = Pipeliner(wire)
    leaving, staying = (asyncio.ensure_future(pipeliner.command("A", n)) for n in range(2))
    await turns()
    leaving.cancel()
    wire.replies[0].set_result(["lost", "kept"])
    assert await staying == "kept"
    assert leaving.cancelled()


@pytest.mark.rest
async def test_closing_waits_for_what_was_asked() -> None:
    wire = Wire()
    pipeliner = Pipeliner(wire)
    asked = asyncio.ensure_future(pipeliner.command("A"))
    await turns()
    closing = asyncio.ensure_future(pipeliner.close())
    await turns()
    assert not closing.done()
    wire.replies[0].set_result(["a"])
    await closing
    assert await asked == "a"


@pytest.mark.rest
async def test_what_is_asked_after_the_end_opens_no_connection() -> None:
    wire = Wire()
    pipeliner = Pipeliner(wire)
    await pipeliner.close()
    for late in (pipeliner.command("A"), pipeliner.transaction([("A",)])):
        with pytest.raises(driver.ConnectionError, match="closed"):
            await late
    assert not wire.sent


@pytest.mark.rest
async def test_a_transaction_is_an_exchange_of_its_own() -> None:
    wire = Wire()
    pipeliner = Pipeliner(wire)
    asked = [asyncio.ensure_future(pipeliner.transaction([("A",), ("B",)])) for _ in range(2)]
    await turns()
    assert wire.sent == [[("A",), ("B",)]] * 2
    wire.replies[0].set_result([1, 2])
    wire.replies[1].set_exception(ConnectionResetError())
    assert await asked[0] == [1, 2]
    with pytest.raises(ConnectionResetError):
        await asked[1]
    await pipeliner.close()


@pytest.mark.rest
@pytest.mark.parametrize("later", range(12))
async def test_no_cancellation_of_a_caller_is_lost_in_the_driver(store_url: str, later: int) -> None:
    """Without a task of its own, a transaction that is cancelled at the wrong turn returns all the same."""
    async with Redis.from_url(store_url, socket_timeout=5.0) as redis:
        await redis.ping()
        pipeliner = Pipeliner(redis)
        caller = asyncio.ensure_future(pipeliner.transaction([("ECHO", "a")]))
        for _ in range(later):
            await asyncio.sleep(0)
        was_under_way = caller.cancel()
        await asyncio.wait({caller})
        assert caller.cancelled() == was_under_way
        await pipeliner.close()


async def a_silence(wire: Wire, pipeliner: Pipeliner) -> None:
    """The first command is not answered in time."""
    lost = asyncio.ensure_future(pipeliner.command("A"))
    await turns()
    wire.replies[0].set_exception(driver.TimeoutError())
    with pytest.raises(driver.TimeoutError):
        await lost


@pytest.mark.rest
async def test_nobody_waits_behind_a_server_that_is_silent() -> None:
    wire = Wire()
    pipeliner = Pipeliner(wire)
    first = []
    for n in range(IN_FLIGHT):
        first.append(asyncio.ensure_future(pipeliner.command("A", n)))
        await turns()
    behind = asyncio.ensure_future(pipeliner.command("B"))
    await turns()
    wire.replies[0].set_exception(driver.TimeoutError())
    for lost in (first[0], behind):
        with pytest.raises(driver.TimeoutError):
            await lost
    for later in (pipeliner.command("C"), pipeliner.transaction([("C",)])):
        with pytest.raises(driver.TimeoutError):
            await later
    assert ("C",) not in [words for commands in wire.sent for words in commands]


@pytest.mark.parametrize("probe", ["command", "transaction"])
async def test_a_silent_server_is_asked_again_by_one_and_heard_by_all(probe: str) -> None:
    wire = Wire()
    pipeliner = Pipeliner(wire)
    await a_silence(wire, pipeliner)
    ask = pipeliner.command("B") if probe == "command" else pipeliner.transaction([("B",)])
    asking = asyncio.ensure_future(ask)
    await turns()
    assert wire.sent[1:] == [[("B",)]]
    with pytest.raises(driver.TimeoutError):
        await pipeliner.command("C")
    wire.replies[1].set_result(["b"])
    assert await asking in ("b", ["b"])
    heard = [asyncio.ensure_future(pipeliner.command("D", n)) for n in range(2)]
    await turns()
    wire.replies[2].set_result([1, 2])
    assert await asyncio.gather(*heard) == [1, 2]


@pytest.mark.rest
async def test_a_cluster_with_a_silent_node_is_asked_on() -> None:
    class Cluster(Wire, RedisCluster):
        """Several servers behind one client."""

    wire = Cluster()
    pipeliner = Pipeliner(wire)
    await a_silence(wire, pipeliner)
    asked = [asyncio.ensure_future(pipeliner.command("B", n)) for n in range(2)]
    for future in asked:
        await turns()
        assert not future.done()
    wire.replies[1].set_result([1, 2])
    assert await asyncio.gather(*asked) == [1, 2]
