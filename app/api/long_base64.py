"""Base64 of megabytes, a piece at a time: other requests are answered meanwhile."""

from __future__ import annotations

import binascii
from collections.abc import Sequence

from app.services.bounded.yielding import yield_to_others

# Of the bytes that are encoded; a multiple of 3, so that no piece but the last is padded.
PIECE = 98_304
_TEXT_PIECE = PIECE // 3 * 4


async def encoded(data: bytes) -> Sequence[bytes]:
    """Pieces of the text. Cost: a few milliseconds for a megabyte."""
    pieces = []
    for start in range(0, len(data), PIECE):
        await yield_to_others()
        pieces.append(binascii.b2a_base64(data[start : start + PIECE], newline=False))
    return pieces


async def decoded(text: str) -> bytes:
    """Inverse of ``encoded``. Raises ValueError."""
    pieces = []
    for start in range(0, len(text), _TEXT_PIECE):
        await yield_to_others()
        piece = text[start : start + _TEXT_PIECE]
        if piece.endswith("=") and start + _TEXT_PIECE < len(text):
            raise ValueError("base64 goes on after its end")
        pieces.append(binascii.a2b_base64(piece, strict_mode=True))
    return b"".join(pieces)
