"""Answers of any length, of which no more is in memory than is being sent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

from fastapi import Request, Response
from starlette.types import Receive, Scope, Send

from app.api.leaving import while_connected

STALLED_S = 60.0


class BrokenOff(Exception):
    """An answer ended before its end. The server closes the connection, so the client sees it."""


class Streamed(Response):
    """Pieces that are made while they are sent, and no faster than the client takes them.

    If making them fails, or the client takes nothing for ``STALLED_S``, the answer breaks off without an
    end, which every client sees. If the client leaves, the pieces are closed.
    """

    def __init__(
        self, first: bytes, pieces: AsyncGenerator[bytes, None], *, media_type: str, name: str
    ) -> None:
        super().__init__(None, 200, {"content-disposition": f'attachment; filename="{name}"'}, media_type)
        del self.headers["content-length"]
        self._first = first
        self._pieces = pieces

    @classmethod
    async def of(cls, pieces: AsyncGenerator[bytes, None], *, media_type: str, name: str) -> Streamed:
        """The answer. What fails before the first piece is raised here, and becomes a problem document."""
        return cls(await anext(pieces, b""), pieces, media_type=media_type, name=name)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await while_connected(Request(scope, receive), self._send(send))

    async def _send(self, send: Send) -> None:
        async with aclosing(self._pieces) as pieces:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            try:
                await _sent(send, self._first)
                async for piece in pieces:
                    await _sent(send, piece)
            except Exception as error:
                raise BrokenOff(f"the answer broke off: {str(error) or type(error).__name__}") from error
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _sent(send: Send, piece: bytes) -> None:
    """Send a piece. Raises TimeoutError."""
    async with asyncio.timeout(STALLED_S):
        await send({"type": "http.response.body", "body": piece, "more_body": True})
