"""Who waits for what is computed, and whether they still do.

The server says in ``left`` when a connection is gone. Work that has not begun by then is not begun, and a
batch ends before its next item. What was begun goes on, writes among it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from typing import Any, TypeVar

T = TypeVar("T")


class Caller:
    """The other end of a connection. ``give_up`` closes that at once, for a reason; None: it cannot."""

    left = False
    give_up: Callable[[str], None] | None = None


class CallerLeft(Exception):
    """Nobody waits for it any more."""


_CALLER: ContextVar[Caller | None] = ContextVar("caller", default=None)


def set_caller(caller: Caller | None) -> None:
    """Say who waits for what this task does from now on; None: it is done whoever leaves."""
    _CALLER.set(caller)


def caller() -> Caller | None:
    """Who waits for what this task does."""
    return _CALLER.get()


def check(waits: Caller | None) -> None:
    """Raise CallerLeft if that caller is gone."""
    if waits is not None and waits.left:
        raise CallerLeft


def task_for_all(work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """A task that several callers wait for: it goes on when the one leaves who asked first.

    asyncio does not report its failure where nobody waits any more: the next caller begins another.
    """
    context: Context = copy_context()
    context.run(set_caller, None)
    task = asyncio.create_task(work, context=context)
    task.add_done_callback(lambda done: done.cancelled() or done.exception())
    return task
