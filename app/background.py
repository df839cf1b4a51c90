"""The end of tasks that run for as long as the service does, and of its process."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Iterable
from typing import Any, NoReturn

PATIENCE_S = 1.0


async def end(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel tasks and return once all have ended.

    A cancellation can get lost: in ``asyncio.wait_for`` of Python 3.11, or in ``asyncio.gather`` where one of
    those that it waits for fails at the same moment. So it is asked for again.
    """
    running = {task for task in tasks if not task.done()}
    while running:
        for task in running:
            task.cancel()
        _, running = await asyncio.wait(running, timeout=PATIENCE_S)


def leave() -> NoReturn:
    """End the process with status 0, without the threads that nobody waits for.

    One of them may be inside a library in C++. Should it come back while the interpreter is taken down,
    Python ends the thread by unwinding its stack, which C++ answers with SIGABRT.
    """
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
