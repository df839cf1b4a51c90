"""Commands of callers who ask at the same time go to the server together, as one pipeline.

A round trip costs the driver several times what a command in a pipeline does, and a server with a sync before
each answer syncs once for all of them.

All commands of one turn of the event loop leave at its end, so a lone caller is not delayed. While
``IN_FLIGHT`` exchanges are under way, commands are collected until one of these returns. Large commands have
a pipeliner of their own: a socket takes about 64 KiB at a time, and waits a turn of the loop for more.

Every exchange is a task of its own, which no caller can cancel. Within the driver a cancellation can get lost
(``asyncio.wait_for`` of Python 3.11, around each write if the driver has timeouts), and then the wait for the
end of the cancelled task lasts forever.
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

Arguments = Sequence[str | bytes | int]
Command = tuple[Arguments, asyncio.Future[Any]]


class Pipeliner:
    """Sends commands; every caller gets the answer to its own, or its own error.

    When a connection breaks, all commands on it get the error. The command of a cancelled caller is sent all
    the same. Commands of different callers have no order among each other.

    A server without an answer to one exchange in time counts as silent. Then all waiting commands get the
    same error, and later ones are refused at once while one exchange tests the server again. A cluster never
    counts as silent: when one node does not answer, others do.

    ``patience_s``: time for all answers of one exchange; None: the driver's own time for each answer.
    """

    def __init__(self, redis: Redis | RedisCluster, *, patience_s: float | None = None) -> None:
        self._redis = redis
        self._patience_s = patience_s
        self._execute: Callable[..., Awaitable[Any]] = redis.execute_command
        self._waiting: list[Command] = []
        self._exchanges: set[asyncio.Task[None]] = set()
        # Held here: the event loop itself keeps only weak references to tasks.
        self._alone: set[asyncio.Task[Any]] = set()
        self._silent = False
        self._closed = False
        self._may_be_silent = not isinstance(redis, RedisCluster)

    async def command(self, *arguments: str | bytes | int) -> Any:
        """The driver's answer. Raises what the driver raises."""
        self.refuse_in_vain()
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Any] = loop.create_future()
        self._waiting.append((arguments, answer))
        # The first of a turn: those after it leave with it.
        if len(self._waiting) == 1:
            # After all callers of this turn of the loop had theirs to say.
            loop.call_soon(self._leave)
        return await answer

    def refuse_in_vain(self) -> None:
        """Raise what a command would be refused with at once: this is closed, or the server is silent."""
        if self._closed:
            raise driver.ConnectionError("the connections are closed")
        # One exchange is let through, and tries whether the server answers again.
        if self._silent and (self._exchanges or self._alone):
            raise driver.TimeoutError("the server is silent")

    async def transaction(self, commands: Sequence[Arguments]) -> list[Any]:
        """Answers to commands run as one, in an exchange of their own. Raises what the driver raises."""
        pipeline = self._redis.pipeline(transaction=True)
        for arguments in commands:
            pipeline.execute_command(*arguments)
        # Not among the other commands: MULTI would hold back those of other callers until EXEC.
        answers: list[Any] = await self._ask_alone(pipeline.execute)
        return answers

    async def node(self, cluster: RedisCluster, node: ClusterNode, *arguments: str | bytes | int) -> Any:
        """The answer of one node of the cluster. Raises what the driver raises."""
        ask: Callable[..., Awaitable[Any]] = cluster.execute_command
        return await self._ask_alone(partial(ask, *arguments, target_nodes=node))

    async def close(self) -> None:
        """Wait for the answers to all commands, also those which wait for the next turn of the loop.

        Later commands are refused. The driver would open a connection for them, which nothing closes.
        """
        self._closed = True
        # Whoever waits now was let in before the close, and gets its answer.
        while self._exchanges or self._alone or self._waiting:
            under_way = self._exchanges | self._alone
            await (asyncio.wait(under_way) if under_way else asyncio.sleep(0))

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
            answers = await self._noted(partial(self._ask, [arguments for arguments, _ in commands]))
        except Exception as error:
            if self._silent:
                # They would each wait for the whole time-out in turn, although the server was just found to
                # be silent.
                commands, self._waiting = [*commands, *self._waiting], []
            answers = [error] * len(commands)
        for (_, future), answer in zip(commands, answers, strict=True):
            _settle(future, answer)

    async def _ask(self, commands: Sequence[Arguments]) -> list[Any]:
        # A pipeline of one costs the driver more than the command itself.
        if len(commands) == 1:
            return [await self._execute(*commands[0])]
        pipeline = self._redis.pipeline(transaction=False)
        for arguments in commands:
            pipeline.execute_command(*arguments)
        answers: list[Any] = await pipeline.execute(raise_on_error=False)
        return answers

    async def _ask_alone(self, ask: Callable[[], Awaitable[Any]]) -> Any:
        self.refuse_in_vain()
        task = asyncio.create_task(self._noted(ask))
        self._alone.add(task)
        task.add_done_callback(self._ended)
        # A cancelled caller does not cancel the exchange: see the module.
        return await asyncio.shield(task)

    async def _noted(self, ask: Callable[[], Awaitable[Any]]) -> Any:
        """The answers; whether the server is silent is known from then on."""
        try:
            # One timer for all answers of an exchange; the driver's own would be one for each.
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

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._alone.discard(task)
        if not task.cancelled():
            task.exception()  # its caller may have been cancelled


def _settle(future: asyncio.Future[Any], answer: Any) -> None:
    if future.done():  # its caller was cancelled
        return
    if isinstance(answer, Exception):
        future.set_exception(answer)
    else:
        future.set_result(answer)
