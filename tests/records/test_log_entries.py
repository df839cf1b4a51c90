"""The codec of the reward log: the form of each entry, what is read of longer ones, what nobody can read."""

from __future__ import annotations

import msgspec
import pytest

from app.records.age_sums import AtAge
from app.records.arm_sums import ArmTime
from app.records.log_entries import (
    Content,
    ForgetEntry,
    MoveEntry,
    RewardEntry,
    StateEntry,
    Unreadable,
    decoded,
    dim_of,
    encode,
)
from app.records.place_sums import AtPlace
from app.storage.types import LearnerId, LogEntry

FORMS: list[tuple[Content, list[object]]] = [
    (
        RewardEntry(b"x" * 16, 0.5, "reward", "d", "a", 7, 1_000, served=(0.25,), expected=(1.0,), sums=True),
        [
            *(1, b"x" * 16, 0.5, "reward", "d", "a", 7, 1_000, False, 0, None, None),
            *([0.25], [1.0], 0.0, 0, True, [], None, None, None),
        ],
    ),
    (
        RewardEntry(
            b"x" * 8,
            signal=None,
            examined=0.5,
            context=b"c",
            defaults=(0.0, 2.0),
            arm_time=ArmTime(3.0, 9),
            at_place=AtPlace(2, 1.5),
            at_age=AtAge(3, -0.5),
        ),
        [
            *(1, b"x" * 8, 0.0, "other", "", "", 0, 0, False, 0, b"c", 0.5),
            *([], [], 0.0, None, False, [0.0, 2.0], [3.0, 9], [2, 1.5], [3, -0.5]),
        ],
    ),
    (StateEntry(b"state"), [2, b"state"]),
    (ForgetEntry(), [3]),
    (MoveEntry(4), [4, 4]),
]


def read(payload: bytes) -> object:
    entry = LogEntry("1-1", LearnerId("u", "ann"), payload)
    found = decoded(entry)
    assert found.entry is entry
    return found.content


@pytest.mark.parametrize(("content", "form"), FORMS)
def test_each_entry_has_its_form_and_is_read_again(content: Content, form: list[object]):
    assert msgspec.msgpack.decode(encode(content)) == form
    assert read(encode(content)) == content
    assert read(msgspec.msgpack.encode([*form, "of a later version"])) == content


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\xc1",
        b"\x00",
        b"\x90",
        b"\x92\x09\x01",
        b"\x91\x02",
        b"\x92\x04\xa1x",
        encode(FORMS[0][0])[:-1],
    ],
)
def test_what_nobody_can_read_says_why(payload: bytes):
    found = read(payload)
    assert isinstance(found, Unreadable)
    assert "Error: " in found.reason
    assert dim_of(found) == 0


def test_an_entry_tells_the_dimension_of_its_learner():
    assert dim_of(RewardEntry(bytes(8 * 33))) == 33
    assert 32 <= dim_of(StateEntry(bytes(40 + 8 * 32 * 35))) <= 34
    assert (dim_of(ForgetEntry()), dim_of(MoveEntry(2))) == (0, 0)
