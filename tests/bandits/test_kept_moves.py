"""How many moves of bandits a process keeps in memory."""

import numpy as np
import pytest

from app.bandits.spaces import MOVE_BYTES, MoveRecord, Moves, move_to_bytes
from app.records.records import vector_to_bytes

pytestmark = [pytest.mark.anyio, pytest.mark.rest]
DIM = 30


class Stored:
    """In place of the store: two moves of every bandit, and which of them were read."""

    def __init__(self) -> None:
        self.reads = list[tuple[str, int]]()

    async def record(self, uid: str, number: int) -> bytes | None:
        self.reads.append((uid, number))
        if number > 2:
            return None
        numbers = vector_to_bytes(np.full(DIM * DIM, float(number)))
        return move_to_bytes(
            MoveRecord(number, "map", "a", "u", DIM, "b", "v", 0, number + 1, {}, transform=numbers, dim=DIM)
        )


async def test_moves_that_were_used_last_are_kept_and_others_are_read_again():
    store = Stored()
    moves = Moves(store, kept_bytes=5 * (MOVE_BYTES + 8 * DIM * DIM))  # type: ignore[arg-type]  # two bandits
    for uid in ("first", "second", "second", "third", "second"):
        assert [*await moves.of(uid, 2)] == [1, 2]
    assert store.reads == [(uid, number) for uid in ("first", "second", "third") for number in (1, 2)]
    maps = await moves.maps({"first": 2, "second": 2})
    assert store.reads[6:] == [("first", 1), ("first", 2)]
    assert [maps["first"][number].transform[0, 0] for number in (1, 2)] == [1.0, 2.0]
    assert len(await moves.of("second", 3)) == 2
    assert store.reads[8:] == [("second", 3)]
