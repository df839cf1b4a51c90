"""Base64 in pieces is that of the whole, and refuses what the whole would."""

import base64

import pytest

from app.api.long_base64 import PIECE, decoded, encoded

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("size", [0, 1, 2, 3, PIECE - 1, PIECE, PIECE + 1, 3 * PIECE + 2])
async def test_the_pieces_are_those_of_the_whole(size: int):
    data = bytes(number * 31 % 256 for number in range(size))
    pieces = await encoded(data)
    assert b"".join(pieces) == base64.b64encode(data)
    assert all(len(piece) <= PIECE // 3 * 4 for piece in pieces)
    assert await decoded(base64.b64encode(data).decode()) == data


@pytest.mark.parametrize("text", ["A", "AA", "AAA", "AA=A", "====", "A\n==", "AAAA ", "ÄAAA", "AAAA\x00AAA"])
async def test_what_is_none_is_refused(text: str):
    for before in ("", "A" * (PIECE // 3 * 4)):
        with pytest.raises(ValueError):
            await decoded(before + text)


async def test_nothing_follows_the_end():
    with pytest.raises(ValueError):
        await decoded("A" * (PIECE // 3 * 4 - 2) + "==" + "AAAA")
