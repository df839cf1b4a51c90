"""Forms of 2.x that the kept store does not have."""

from __future__ import annotations

import math
import struct
import zlib
from typing import Any

import msgspec
import numpy as np
import pytest

from app.records.records import bytes_to_state
from shortlist_upgrade.answers import new_answer
from shortlist_upgrade.bandits import Bandit, new_move, new_version
from shortlist_upgrade.entries import new_entry
from shortlist_upgrade.quota_counts import is_counted, new_quotas
from shortlist_upgrade.states import new_state

UID = b"0123456789abcdef"
EFFECT = [struct.pack("<f", 0.5), struct.pack("<f", 0.25), "f1", 7, 0.5]
FEATURES = struct.pack("<2d", 1.0, 2.0)


def encoded(*fields: Any) -> bytes:
    return msgspec.msgpack.encode(fields)


@pytest.mark.parametrize("propensities", [False, True])
def test_an_answer_with_many_arms(propensities: bool) -> None:
    """Its numbers stand byte by byte, the upper two of each behind the token."""
    ids = [f"an-arm-{i}" for i in range(100)]
    token = b"1234" + encoded("uid", "ann", "id", 1, 2, ids, [1] * 100) + bytes(16)
    numbers = np.random.default_rng(7).normal(size=100 * (1 + propensities))
    places = np.frombuffer(numbers.tobytes(), np.uint8).reshape(-1, 8).T
    whole = zlib.compress(token + places[6:].tobytes(), 1)
    record = encoded(whole, places[:6].tobytes(), "sub_ts", 3, 4, True, None, 9, [2], "policy", b"digest")
    new = msgspec.msgpack.decode(new_answer(b"\x02" + record) or b"")
    assert zlib.decompress(new[0]) == token
    assert new[1:7] == [b"digest", numbers[:100].tolist(), "sub_ts", 3, 4, True]
    assert new[7:] == [numbers[100:].tolist() if propensities else None, [2], None, 9, "policy"]


def test_an_answer_of_0_1_goes() -> None:
    """It does not say what was asked: a request that comes again is answered anew."""
    assert new_answer(msgspec.msgpack.encode({"decision": "token", "arms": []})) is None
    assert new_answer(b"\x01" + encoded(b"token", b"", "sub_ts", 3, 4, True)) is None


def entry(kind: bytes, *payload: Any, learner: bytes = b"ann", **fields: bytes) -> Any:
    """Kind of what was before it, and the payload, of a new entry."""
    more = {name.encode(): value for name, value in fields.items()}
    new = new_entry({b"b": UID, b"l": learner, b"f": kind, b"p": encoded(*payload), **more})
    return new.get(b"c"), msgspec.msgpack.decode(new[b"p"])


def test_rewards() -> None:
    source = encoded("reward", "id", "f1", 7, 5_000, True, b"context", 0.5)
    terms, signal = [0.25, 4_000, 60.0, True, True], [1, struct.pack("<d", 3.0), True]
    plain = [1, FEATURES, 2.0, "other", "", "", 0, 0, False, 0, None, None, [], [], 0.0, 0, False, []]
    assert entry(b"1", FEATURES, 2.0) == (None, plain)
    _, replaced = entry(b"r", FEATURES, 2.0, terms, d=source)
    assert replaced[3:12] == ["reward", "id", "f1", 7, 5_000, True, 0, b"context", 0.5]
    assert replaced[12:] == [[], [], 60.0, 0, False, [0.25]]
    came, summed = entry(b"0", FEATURES, 2.0, terms, s=b"1.5")
    assert (came, summed[7], summed[16]) == (b"A1.5", 4_000, True)
    assert entry(b"0", FEATURES, 2.0)[0] == b"A0"
    came, of_signal = entry(b"rA1B0.5", FEATURES, 2.0, None, b"", signal, 3, False, EFFECT)
    assert (came, of_signal[5:7], of_signal[9], of_signal[11]) == (b"A1B0.5", ["f1", 7], 3, 0.5)
    assert of_signal[12:] == [[0.5], [0.25], 0.0, 1, True, [3.0]]
    assert entry(b"0", FEATURES, 2.0, None, b"", signal)[0] == b""


def test_other_entries() -> None:
    assert entry(b"1", b"", 0.0, None) == (None, [3])
    assert entry(b"1", b"", 0.0, None, b"\x04state") == (None, [2, b"\x04state"])
    assert entry(b"1", b"", 0.0, None, b"", None, 2, learner=b"_moved") == (None, [4, 2])
    corrects = {b"b": UID, b"l": b"ann", b"f": b"1", b"p": encoded(b"", 0.0, None, b"x", None, 2, True)}
    assert new_entry(corrects)[b"l"] == b"_moved"
    broken = {b"b": UID, b"l": b"ann", b"f": b"1", b"p": b"no payload", b"r": b"why", b"o": b"1-1"}
    assert new_entry(broken) == {name: value for name, value in broken.items() if name != b"f"}


def test_states_without_squares() -> None:
    """Of 0.1: the squares stay unknown."""
    numbers = struct.pack("<4d", 1.0, 0.0, 2.0, 0.0)
    for kind, terms, weight in ((1, b"", 7.0), (2, struct.pack("<Qd", 9, 60.0), 7.0),
                                (3, struct.pack("<Qdd", 9, 60.0, 2.5), 2.5)):  # fmt: skip
        state = bytes_to_state(new_state(struct.pack("<BxHIQQ", kind, 1, 3, 5, 7) + terms + numbers))
        assert (state.space, state.version, state.sums.observations, state.sums.weight) == (3, 5, 7, weight)
        assert math.isnan(state.sums.squares)
        assert state.half_life_s == (60.0 if terms else 0.0)


def test_bandits_that_nobody_changed_since_0_1() -> None:
    settings = {"catalogue": "films", "policy": "sub_ts", "prior": "plain", "explore": None}
    new = new_version(UID + msgspec.msgpack.encode(settings))
    kept = {name: value for name, value in settings.items() if name != "explore"}
    assert msgspec.msgpack.decode(new[16:]) == [kept, 1, 0, 0, None]


@pytest.mark.parametrize(
    ("settings", "prior"),
    [
        ({"ridge": "auto", "exploration": "auto"}, "learned"),
        ({}, "learned"),
        ({"ridge": 1.0}, "plain"),
        ({"exploration": "theory"}, "plain"),
    ],
)
def test_a_pooled_prior(settings: dict[str, Any], prior: str) -> None:
    data = UID + encoded({"prior": "pooled", "scope": "per_key", "auto": 2, **settings}, 3, None, 0, None)
    assert f"becomes {prior}" in Bandit.of("b", data, (), ()).notes[0]
    assert msgspec.msgpack.decode(new_version(data)[16:])[0]["prior"] == prior


@pytest.mark.parametrize(
    ("rule", "counted"),
    [
        ({"arm": "f1"}, True),
        ({"filter": {"group": 2}}, True),
        ({"filter": {"group": {"$eq": 2}}}, True),
        ({"filter": {"group": {"$in": [2]}}}, True),
        ({"filter": {"group": {"$in": [1, 2]}}}, False),
        ({"filter": {"year": {"$lt": 1994}}}, False),
        ({"filter": {"group": 2, "year": 1990}}, False),
        ({"filter": {"$not": {"group": 2}}}, False),
    ],
)
def test_which_quotas_can_be_counted(rule: dict[str, Any], counted: bool) -> None:
    assert is_counted(rule) == counted


def test_quotas() -> None:
    """What was granted counts as shown: never too little."""
    record = UID + msgspec.msgpack.encode({"most": 9, "arm": "f1", "pace": "even"})
    terms = {b"uid": UID, b"most": b"9", b"per": b"0", b"from": b"0", b"to": b"0"}
    counts = {b"window": b"5", b"granted": b"4", b"spent": b"3", b"rewarded": b"1"}
    commands = list(new_quotas(b"q:", {b"a": record, b"b": record}, {b"a": terms | counts, b"b": terms}))
    written = {command[1]: command[2:] for command in commands if command[0] == "HSET"}
    pairs = [
        dict(zip(written[key][::2], written[key][1::2], strict=True)) for key in (b"q:quota:a", b"q:quota:b")
    ]
    assert pairs[0] == {
        **terms,
        b"pace": "even",
        b"counts": "shown",
        b"window": b"5",
        b"shown": b"4",
        b"rewarded": b"1",
    }
    assert pairs[1] == {**terms, b"pace": "even", b"counts": "shown"}
    assert commands[-1][:2] == ("XADD", b"q:changes")


def test_a_move_by_the_log_was_one_by_its_map() -> None:
    old = {"number": 1, "asked": "auto", "carry": "log", "answer": {"carry": "log", "learners": 2}}
    new = msgspec.msgpack.decode(new_move(msgspec.msgpack.encode({**old, "restores": True})))
    assert new == {"number": 1, "carry": "map", "answer": {"carry": "map", "learners": 2}}
