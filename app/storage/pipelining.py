"""Commands of callers who ask at the same time go to the server together.

A round trip costs the driver several times what a command in a pipeline does, and a server that syncs before
it answers syncs once for all. Whoever is alone is not delayed: what is asked in one turn of the loop leaves
at its end, unless ``IN_FLIGHT`` exchanges are under way; then it leaves with what comes until one returns.
What is large goes by itself: a socket holds 64 KiB or so, and each time it is full a turn of the loop passes.

Every exchange is a task of its own, which no caller can cancel: within the driver a cancellation can get lost
(``asyncio.wait_for`` of Python 3.11, around each write if the driver has timeouts), and whoever waits for the
end of a cancelled task would wait for ever.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

from redis import exceptions as driver
from redis.asyncio import Redis, RedisCluster
from redis.asyncio.cluster import ClusterNode

IN_FLIGHT = 2  # one is answered while the next is on its way; with more, fewer commands travel together

Words = Sequence[str | bytes | int]
Command = tuple[Words, asyncio.Future[Any]]


class Pipeliner:
    """Sends commands; every caller gets the answer to its own, or its own error.

    A connection that breaks is the error of all commands that were on it. A caller that is cancelled leaves
    its command behind: it is sent, or was already. Commands are not ordered among each other.

    A server that leaves one exchange without an answer in time is silent: whoever waits behind that exchange
    gets its error, and so does whoever comes while another one asks whether it still is. A cluster is never
    called silent: where one node is, the others answer.

    An exchange has ``patience_s`` for all of its answers; None: the driver's own time for each of them.
    """

    def __init__(self, redis: Redis | RedisCluster, *, patience_s: float | None = None) -> None:
        self._redis = redis
        self._patience_s = patience_s
        self._execute: Callable[..., Awaitable[Any]] = redis.execute_command
        self._waiting: list[Command] = []
        self._exchanges: set[asyncio.Task[None]] = set()
        self._alone: set[asyncio.Task[Any]] = set()
        self._silent = False
        self._may_be_silent = not isinstance(redis, RedisCluster)

    async def command(self, *words: str | bytes | int) -> Any:
        """The driver's answer. Raises what the driver raises."""
        self._refuse_while_silent()
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Any] = loop.create_future()
        self._waiting.append((words, answer))
        if len(self._waiting) == 1:
            loop.call_soon(self._leave)
        return await answer

    async def transaction(self, commands: Sequence[Words]) -> list[Any]:
        """Answers to commands that run as one, in an exchange of their own. Raises what the driver raises."""
        return await self._ask_alone(partial(self._transact, commands))

    async def everywhere(self, cluster: RedisCluster, *words: str | bytes | int) -> list[Any]:
        """Answers of all primaries of the cluster to one command. Raises what the driver raises."""
        return await self._ask_alone(partial(_ask, cluster, cluster.get_primaries(), words))

    async def node(self, cluster: RedisCluster, node: ClusterNode, *words: str | bytes | int) -> Any:
        """The answer of one node of the cluster. Raises what the driver raises."""
        (answer,) = await self._ask_alone(partial(_ask, cluster, [node], words))
        return answer

    async def close(self) -> None:
        """Wait for everything that was asked."""
        while under_way := self._exchanges | self._alone:
            await asyncio.wait(under_way)

    def _refuse_while_silent(self) -> None:
        if self._silent and (self._exchanges or self._alone):
            raise driver.TimeoutError("the server is silent")

    def _leave(self) -> None:
        if self._waiting and len(self._exchanges) < IN_FLIGHT:
            commands, self._waiting = self._waiting, []
            exchange = asyncio.create_task(self._exchange(commands))
            self._exchanges.add(exchange)
            exchange.add_done_callback(self._returned)

    def _returned(self, exchange: asyncio.Task[None]) -> None:
        self._exchanges.discard(exchange)
        self._leave()

    async def _exchange(self, commands: Sequence[Command]) -> None:
        try:
            answers = await self._noted(partial(self._ask, [words for words, _ in commands]))
        except Exception as error:
            if self._silent:
                commands, self._waiting = [*commands, *self._waiting], []
            answers = [error] * len(commands)
        for (_, future), answer in zip(commands, answers, strict=True):
            _settle(future, answer)

    async def _ask(self, commands: Sequence[Words]) -> list[Any]:
        if len(commands) == 1:
            return [await self._execute(*commands[0])]
        pipeline = self._redis.pipeline(transaction=False)
        for words in commands:
            pipeline.execute_command(*words)
        answers: list[Any] = await pipeline.execute(raise_on_error=False)
        return answers

    async def _ask_alone(self, ask: Callable[[], Awaitable[list[Any]]]) -> list[Any]:
        self._refuse_while_silent()
        task = asyncio.create_task(self._noted(ask))
        self._alone.add(task)
        task.add_done_callback(self._ended)
        return await asyncio.shield(task)

    async def _noted(self, ask: Callable[[], Awaitable[list[Any]]]) -> list[Any]:
        """The answers; whether the server is silent is known from then on."""
        try:
            async with asyncio.timeout(self._patience_s):
                answers = await ask()
        except (TimeoutError, driver.TimeoutError) as error:
            self._silent = self._may_be_silent
            raise driver.TimeoutError("no answer in time") from error
        except driver.ResponseError:  # a refusal is an answer
            self._silent = False
            raise
        self._silent = False
        return answers

    async def _transact(self, commands: Sequence[Words]) -> list[Any]:
        pipeline = self._redis.pipeline(transaction=True)
        for words in commands:
            pipeline.execute_command(*words)
        answers: list[Any] = await pipeline.execute()
        return answers

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._alone.discard(task)
        if not task.cancelled():
            task.exception()  # its caller may have been cancelled


async def _ask(cluster: RedisCluster, nodes: Sequence[ClusterNode], words: Words) -> list[Any]:
    ask: Callable[..., Awaitable[Any]] = cluster.execute_command
    return await asyncio.gather(*(ask(*words, target_nodes=node) for node in nodes))


def _settle(future: asyncio.Future[Any], answer: Any) -> None:
    if future.done():  # its caller was cancelled
        return
    if isinstance(answer, Exception):
        future.set_exception(answer)
    else:
        future.set_result(answer)
