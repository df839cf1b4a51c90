"""How learners look in the store: to the bit, and as they have looked since the first version."""

from __future__ import annotations

import math
import struct
from dataclasses import replace

import msgspec
import numpy as np
import pytest

from app.api.api_keys import VisitorPass
from app.catalogues.catalogue_kinds import options_of
from app.indexes.live import IndexOptions
from app.records.log_entries import RewardEntry, WaitingDecision
from app.records.records import CatalogueRecord, LearnerState, bytes_to_state, pack, state_to_bytes, unpack
from golden import RECORDS
from shortlist.linear import ridge_sums


def state(dim: int, **discount: float) -> LearnerState:
    rng = np.random.default_rng(dim)
    features, values = rng.standard_normal((40, dim)), rng.standard_normal(40)
    discounts = (rng.random(40), rng.random(40)) if discount else None
    sums = ridge_sums.add(ridge_sums.empty(dim), features, values, rng.random(40) < 0.7, discounts)
    return LearnerState(40, sums, **discount)  # type: ignore[arg-type]


@pytest.mark.parametrize("dim", [1, 2, 17, 64])
@pytest.mark.parametrize("discount", [{}, {"time_ms": 1_700_000_000_000, "half_life_s": 2.5}])
def test_a_state_comes_back_to_the_bit(dim: int, discount: dict[str, float]) -> None:
    before = state(dim, **discount)
    data = state_to_bytes(before)
    after = bytes_to_state(data)
    assert len(data) == 40 + 8 * dim * (dim + 3) + 24 * bool(discount)
    assert state_to_bytes(after) == data
    assert after.sums.total.tobytes() == before.sums.total.tobytes()
    assert after.sums.error.tobytes() == before.sums.error.tobytes()
    assert (after.sums.squares, after.sums.squares_error) == (before.sums.squares, before.sums.squares_error)
    assert (after.version, after.sums.observations) == (before.version, before.sums.observations)
    assert after.sums.weight == before.sums.weight
    assert (after.sums.weight == after.sums.observations) == (not discount)
    assert (after.time_ms, after.half_life_s) == (before.time_ms, before.half_life_s)


@pytest.mark.rest
def test_the_order_of_the_numbers_is_that_of_what_is_stored() -> None:
    """Lower triangles of the gram and of its errors by rows, the moment and its errors, the squares."""
    sums = ridge_sums.RidgeSums(
        np.array([1.0, 2.0, 3.0, 10.0, 20.0]), np.array([0.1, 0.2, 0.3, 0.4, 0.5]), 7, 7.0
    )
    data = state_to_bytes(LearnerState(9, sums))
    header = struct.pack("<BxHxxxxQQ", 4, 2, 9, 7)
    numbers = struct.pack("<10d", 1, 2, 3, 0.1, 0.2, 0.3, 10, 20, 0.4, 0.5)
    assert data == header + numbers + struct.pack("<2d", math.nan, 0)
    assert not bytes_to_state(data).sums.has_squares
    data = state_to_bytes(LearnerState(9, replace(sums, squares=30.0, squares_error=0.6)))
    assert data == header + numbers + struct.pack("<2d", 30, 0.6)


def test_what_is_no_state_is_refused() -> None:
    data = state_to_bytes(state(3))
    for broken in (data[:-8], data + bytes(8), data[:-1], b"\x07" + data[1:]):
        with pytest.raises(ValueError, match=r"unknown format|numbers|buffer size"):
            bytes_to_state(broken)


def stored_kinds() -> list[type[msgspec.Struct]]:
    """Every class that is stored, but for plain tuples."""
    return [kind for kind in RECORDS.values() if issubclass(kind, msgspec.Struct)]


def test_what_a_newer_version_has_added_is_passed_over() -> None:
    assert len(stored_kinds()) > 30
    strict = [kind for kind in stored_kinds() if kind.__struct_config__.forbid_unknown_fields]
    assert strict == [VisitorPass]  # one that restricts more than this version knows is not let in
    catalogue = {"dim": 2, "index": {"kind": "exact", "levels": 3}, "mood": "calm"}
    read = unpack(msgspec.msgpack.encode(catalogue), CatalogueRecord)
    assert read == CatalogueRecord(2, {"kind": "exact", "levels": 3})
    assert options_of(read) == IndexOptions("exact", target_recall=0.95)
    wanted = CatalogueRecord(2, {"kind": "exact"}, 0.99)
    assert options_of(unpack(pack(wanted), CatalogueRecord)) == IndexOptions("exact", target_recall=0.99)
    decision = WaitingDecision(1, 2, [RewardEntry(b"x")])
    longer = [*msgspec.msgpack.decode(pack(decision)), "more"]
    assert unpack(msgspec.msgpack.encode(longer), WaitingDecision) == decision
