"""The start of a call, its waiting caller, and the turns of long work, which lets other requests run.

The server notes in ``Caller.left`` when a connection is gone. Waiting work is then not begun, and a batch
ends before its next item. Work under way is finished, writes among it.

A step without an await keeps every other request waiting. So a loop over many items of one request says
``await yield_to_others()`` in each step. All requests share one slice of time: however many are under way,
between two turns of the network they take ``SLICE_S`` and one step together. Waiting steps go on in the order
in which they came, some of them in the same one: else one call could wait for ever.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from heapq import heappop, heappush
from itertools import count
from typing import Any, TypeVar

T = TypeVar("T")
K = TypeVar("K")
_CALLER: ContextVar[Caller | None] = ContextVar("caller", default=None)
_BEGAN: ContextVar[float | None] = ContextVar("began", default=None)
SLICE_S = 0.002
TOGETHER = 8
_QUEUES: list[_Queue] = []  # that of the running loop, once there is one


class Caller:
    """The other end of a connection. ``streams``: it sends or reads a stream, which may take any time."""

    left = False
    streams = False


class CallerLeft(Exception):
    """Nobody waits for it any more."""


def set_caller(caller: Caller | None) -> None:
    """Set the caller of this task from now on; None: the task is finished even if everybody leaves."""
    _CALLER.set(caller)


def caller() -> Caller | None:
    """Who waits for what this task does."""
    return _CALLER.get()


class OneCall:
    """The block of a call which begins now."""

    # Not by ``contextlib``: that takes six times as long, for every request.
    def __enter__(self) -> None:
        self._before = _BEGAN.set(time.monotonic())

    def __exit__(self, *_: object) -> None:
        _BEGAN.reset(self._before)


def call_began() -> float:
    """The start of this task's call, by ``time.monotonic``; now for a task without one."""
    began = _BEGAN.get()
    return time.monotonic() if began is None else began


def mark_streamed() -> None:
    """Let the body that this task reads, and its answer, take any time: only silence ends them."""
    if (waits := _CALLER.get()) is not None:
        waits.streams = True


def check(waits: Caller | None) -> None:
    """Raise CallerLeft if that caller is gone."""
    if waits is not None and waits.left:
        raise CallerLeft


def task_for_all(work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """A task for several callers: it goes on when the first of them leaves.

    asyncio does not report its failure where nobody waits any more: the next caller begins another.
    """
    # A copy of the context: only the task has no waiting caller, and traces and request ids go on.
    context: Context = copy_context()
    context.run(set_caller, None)
    context.run(_BEGAN.set, None)
    task = asyncio.create_task(work, context=context)
    task.add_done_callback(lambda done: done.cancelled() or done.exception())
    return task


def shared_task(
    tasks: dict[K, asyncio.Task[T]], key: K, work: Callable[[], Coroutine[Any, Any, T]]
) -> asyncio.Task[T]:
    """The task in ``tasks`` for all callers with this key, begun as ``task_for_all`` by the first of them.

    The task is kept until its end: a later caller begins another.
    """
    task = tasks.get(key)
    if task is None:
        task = tasks[key] = task_for_all(work())
        task.add_done_callback(lambda _: tasks.pop(key))
    return task


class _Slice:
    """``ends``: until when steps may follow each other; ``holder``: the task that last waited for a turn."""

    ends = 0.0
    holder: asyncio.Task[Any] | None = None


class _Queue:
    """Steps waiting for a slice, in the order in which they came.

    In each turn of ``loop`` the first begins a slice, and those behind it share its remaining time. Only
    ``TOGETHER`` look whether some is left: hundreds would take as long as a slice to look.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        # A heap: a step that finds nothing left keeps its number.
        self.waiting: list[tuple[int, asyncio.Future[bool]]] = []
        self._numbers = count()
        self._is_called = False  # whether ``_next`` is

    async def turn(self) -> None:
        """Return when it is the turn of the one who asks."""
        number = next(self._numbers)
        while True:
            turn = self.loop.create_future()
            heappush(self.waiting, (number, turn))
            if not self._is_called:
                self.loop.call_soon(self._next)
                self._is_called = True
            if await turn:
                _Slice.ends = time.perf_counter() + SLICE_S
                return
            if time.perf_counter() < _Slice.ends:
                return

    def _next(self) -> None:
        is_first, left = True, TOGETHER
        while self.waiting and left:
            _, turn = heappop(self.waiting)
            if not turn.done():  # else its task was cancelled
                turn.set_result(is_first)
                is_first, left = False, left - 1
        self._is_called = not is_first
        if self._is_called:
            self.loop.call_soon(self._next)


async def yield_to_others() -> None:
    """Return at once within the slice; after it, let others go first, and begin another one.

    A caller who comes while others wait joins them: else clients with a next request right after each answer
    would keep the others waiting. A loop goes on within its awaited slice.
    """
    queue = _QUEUES[0] if _QUEUES else None
    if time.perf_counter() < _Slice.ends and (
        queue is None or not queue.waiting or asyncio.current_task() is _Slice.holder
    ):
        return
    loop = asyncio.get_running_loop()
    if queue is None or queue.loop is not loop:
        queue = _Queue(loop)
        _QUEUES[:] = [queue]
    await queue.turn()
    _Slice.holder = asyncio.current_task()
