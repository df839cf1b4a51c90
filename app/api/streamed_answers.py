"""Answers of any length, of which no more is in memory than is being sent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Coroutine, Mapping
from contextlib import aclosing
from typing import Any, TypeVar

import msgspec
import numpy as np
from fastapi import Request, Response
from numpy.typing import NDArray
from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope, Send

from app.platform.deadlines import mark_streamed, yield_to_others

T = TypeVar("T")
_MATRIX = b"\0"  # where one stands: no text of JSON has this byte


async def while_connected(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """Return the result of ``work``, which is cancelled as soon as the client leaves. The body must have been
    read.

    Raises ClientDisconnect, and the errors of ``work``.
    """
    task, gone = asyncio.create_task(work), asyncio.create_task(_left(request))
    try:
        await asyncio.wait((task, gone), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientDisconnect
        return task.result()
    finally:
        task.cancel()
        gone.cancel()
        # Both must have ended: a generator that still runs would hold its page, and its place among exports.
        await asyncio.gather(task, gone, return_exceptions=True)


async def _left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


class Streamed(Response):
    """Pieces that are made while they are sent, and no faster than the client takes them.

    If making them fails, the answer breaks off without an end, which every client sees. If the client
    leaves, or takes nothing for too long, the pieces are closed.
    """

    def __init__(
        self, first: bytes, pieces: AsyncGenerator[bytes, None], *, media_type: str, name: str | None
    ) -> None:
        headers = {} if name is None else {"content-disposition": f'attachment; filename="{name}"'}
        super().__init__(None, 200, headers, media_type)
        # Nobody knows it: the answer is sent in chunks.
        del self.headers["content-length"]
        self._first = first
        self._pieces = pieces

    @classmethod
    async def of(
        cls, pieces: AsyncGenerator[bytes, None], *, media_type: str, name: str | None = None
    ) -> Streamed:
        """The answer, a file if it has a name. An error before the first piece is raised here, and becomes a
        problem document.
        """
        return cls(await anext(pieces, b""), pieces, media_type=media_type, name=name)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        mark_streamed()
        work = self._send(send, head_only=scope["method"] == "HEAD")
        await while_connected(Request(scope, receive), work)

    async def _send(self, send: Send, *, head_only: bool) -> None:
        async with aclosing(self._pieces) as pieces:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            if not head_only:
                await send({"type": "http.response.body", "body": self._first, "more_body": True})
                async for piece in pieces:
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def with_rows(answer: Mapping[str, object]) -> AsyncGenerator[bytes, None]:
    """The answer as JSON; its matrices, arrays of two axes of maybe tens of megabytes, row by row."""
    matrices = list[NDArray[np.float64]]()

    def leave_out(matrix: NDArray[np.float64]) -> msgspec.Raw:
        matrices.append(matrix)
        return msgspec.Raw(_MATRIX)

    first, *others = msgspec.json.encode(answer, enc_hook=leave_out).split(_MATRIX)
    yield first
    for matrix, following in zip(matrices, others, strict=True):
        opening = b"["
        for row in matrix:
            await yield_to_others()
            yield opening + msgspec.json.encode(row.tolist())
            opening = b","
        yield (b"]" if len(matrix) else b"[]") + following
