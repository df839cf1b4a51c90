"""When a call began, whether its caller still waits, and how long work lets other requests run first.

The server notes in ``Caller.left`` when a connection is gone. Work that has not begun by then is not begun,
and a batch ends before its next item. Work that has begun is finished, writes among it.

A step that awaits nothing keeps every other request waiting. So a loop over many items of one request says
``await yield_to_others()`` in each step. All requests share one slice of time: however many are under way,
between two turns of the network they take ``SLICE_S`` and one step together. Whoever waits for a slice gets
one of its own, in the order in which they came: else one of many calls could wait for ever.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from typing import Any, TypeVar

T = TypeVar("T")
_CALLER: ContextVar[Caller | None] = ContextVar("caller", default=None)
_BEGAN: ContextVar[float | None] = ContextVar("began", default=None)
SLICE_S = 0.002
_QUEUES: list[_Queue] = []  # that of the running loop, once there is one


class Caller:
    """The other end of a connection. ``give_up`` closes that at once, for a reason; None: it cannot."""

    left = False
    give_up: Callable[[str], None] | None = None


class CallerLeft(Exception):
    """Nobody waits for it any more."""


def set_caller(caller: Caller | None) -> None:
    """Set who waits for this task from now on; None: it is finished even if everybody leaves."""
    _CALLER.set(caller)


def caller() -> Caller | None:
    """Who waits for what this task does."""
    return _CALLER.get()


class OneCall:
    """All that this task does within belongs to a call that begins now."""

    # Not by ``contextlib``: that takes six times as long, for every request.
    def __enter__(self) -> None:
        self._before = _BEGAN.set(time.monotonic())

    def __exit__(self, *_: object) -> None:
        _BEGAN.reset(self._before)


def call_began() -> float:
    """When the call began that this task answers, by ``time.monotonic``; now where it answers none."""
    began = _BEGAN.get()
    return time.monotonic() if began is None else began


def check(waits: Caller | None) -> None:
    """Raise CallerLeft if that caller is gone."""
    if waits is not None and waits.left:
        raise CallerLeft


def task_for_all(work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """A task that several callers wait for: it goes on when the one leaves who asked first.

    asyncio does not report its failure where nobody waits any more: the next caller begins another.
    """
    # A copy of the context, so that only the task has nobody who waits, and traces and request ids go on.
    context: Context = copy_context()
    context.run(set_caller, None)
    context.run(_BEGAN.set, None)
    task = asyncio.create_task(work, context=context)
    task.add_done_callback(lambda done: done.cancelled() or done.exception())
    return task


class _Slice:
    """``ends``: until when steps may follow each other. A new slice begins when others were served."""

    ends = 0.0


class _Queue:
    """Steps that wait for a slice, in the order in which they came: in each turn of ``loop`` one goes on.

    If all of them looked in each turn, hundreds would take as long as a slice to look.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._waiting = deque[asyncio.Future[None]]()

    def join(self) -> asyncio.Future[None]:
        """Done when it is the turn of the one who asks."""
        if not self._waiting:
            self.loop.call_soon(self._next)
        turn = self.loop.create_future()
        self._waiting.append(turn)
        return turn

    def _next(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():  # else its task was cancelled
                turn.set_result(None)
                break
        if self._waiting:
            self.loop.call_soon(self._next)


async def yield_to_others() -> None:
    """Return at once within the slice; after it, let others go first, and begin another one."""
    if time.perf_counter() < _Slice.ends:
        return
    loop = asyncio.get_running_loop()
    if not _QUEUES or _QUEUES[0].loop is not loop:
        _QUEUES[:] = [_Queue(loop)]
    await _QUEUES[0].join()
    _Slice.ends = time.perf_counter() + SLICE_S
