"""Between a process and its store: replies that are lost, late, or never come; connections that are cut."""

import asyncio
import contextlib
import threading
from collections.abc import Coroutine
from typing import Any, Self

import numpy as np

CHUNK = 1 << 16


class DroppingProxy:
    """Listens on a port of its own and passes everything on to a unix socket or port, in a thread of its own.

    ``target``   of new connections; those that exist stay with the one they have
    ``drop``     share of replies that are lost: the request was passed on, then the connection is cut
    ``delay_s``  how long every reply is held back
    ``cut``      nothing passes: connections are cut, and new ones refused at once
    ``hang``     nothing passes, and nobody says so
    """

    def __init__(self, target: str | int, seed: int = 0) -> None:
        self.target = target
        self._rng = np.random.default_rng(seed)
        self.drop, self.delay_s = 0.0, 0.0
        self.cut, self.hang = False, False
        self.dropped = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self._thread.start()
        self._server = self._run(asyncio.start_server(self._serve, "127.0.0.1", 0))
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    def __exit__(self, *_: object) -> None:
        self._run(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def sever(self) -> None:
        """From now on nothing passes, until ``mend``."""
        self.cut = True
        self._run(self._close_all())

    def mend(self) -> None:
        self.cut = self.hang = False
        self.drop = self.delay_s = 0.0
        self._run(self._close_all())  # whoever hung must ask again

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(20)

    async def _close_all(self) -> None:
        for writer in list(self._writers):
            writer.transport.abort()

    async def _stop(self) -> None:
        self._server.close()
        await self._close_all()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._pass(reader, writer)
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            writer.transport.abort()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.cut:
            return
        if isinstance(self.target, int):
            there = await asyncio.open_connection("127.0.0.1", self.target)
        else:
            there = await asyncio.open_unix_connection(self.target)
        self._writers |= {writer, there[1]}
        try:
            await asyncio.gather(self._requests(reader, there[1]), self._replies(there[0], writer))
        finally:
            self._writers -= {writer, there[1]}
            there[1].transport.abort()
            with contextlib.suppress(OSError):
                await there[1].wait_closed()

    async def _passage(self) -> None:
        while self.hang:  # noqa: ASYNC110 - set by another thread
            await asyncio.sleep(0.01)

    async def _requests(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(CHUNK):
            await self._passage()
            writer.write(data)
            await writer.drain()
        raise ConnectionResetError

    async def _replies(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(CHUNK):
            if self.delay_s:
                await asyncio.sleep(self.delay_s)
            await self._passage()
            if self.drop and self._rng.random() < self.drop:
                self.dropped += 1
                break
            writer.write(data)
            await writer.drain()
        raise ConnectionResetError
