"""A choice, and the record of it that is kept for an event, to be answered again bit for bit.

A record holds what the answer cannot be made from again: the token, which names the arms, their scores and
propensities, and the versions; and a digest of the request, since only the same one is answered again. Its
first byte is its format:

    1   msgpack of ``_Record``
    2   the same for many arms: ``token`` is compressed, followed by the two upper bytes of every number;
        ``numbers`` are the six lower bytes, which cannot be compressed, all lowest bytes first
    else, until version 0.1.0: msgpack of the answer, whose first byte says that it is a map
"""

from __future__ import annotations

import zlib

import msgspec
import numpy as np

from app.services.choosing.selection import Selection, SelectionRequest
from app.services.learning.tokens import decision_of, raw_of, text_of

_PLAIN, _COMPRESSED = b"\x01", b"\x02"
_FEW_BYTES = 512  # of a token: a shorter one is hardly made shorter
_UPPER, _LOWER = 2, 6  # bytes of a number


ARM_BYTES = 400  # about what an arm of an answer takes, with its part of the token, the row and the JSON


class ChosenArm(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """``propensity`` where the policy knows it: given the arms before this one. ``pinned``: by a rule.

    ``metadata``: as JSON, where they were asked for; they are read anew for every answer, and not kept for
    an event.
    """

    id: str
    score: float
    propensity: float | None = None
    pinned: bool = False
    metadata: msgspec.Raw | None = None


class Choice(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The answer to a ChooseRequest: the best arm first, or in the order drawn.

    ``stale_s`` is left out unless nothing was heard of the store for so long: what it holds may be newer.
    ``eligible``: how many arms the filter let in; left out without one.
    ``group``: of a bandit with a holdout.
    ``bandit_version``: left out of choices that version 0.1.0 has made.
    ``weights``: by which the signals were weighed; left out of a bandit without.
    ``prior_version``: of the learned prior, 0 while there is none; left out of a bandit with another prior.
    """

    decision: str
    arms: list[ChosenArm]
    policy: str
    learner_version: int
    catalogue_version: int
    exact: bool
    stale_s: float | None = None
    eligible: int | None = None
    bandit_version: int | None = None
    group: str | None = None
    weights: dict[str, float] | None = None
    prior_version: int | None = None


def arms_of(request: SelectionRequest, selection: Selection, ids: list[str]) -> list[ChosenArm]:
    """The arms that were selected, as an answer shows them; ``ids`` are theirs."""
    columns = [ids, selection.hits.scores.tolist()]
    if selection.propensities is not None:
        columns.append(selection.propensities)
    arms = list(map(ChosenArm, *columns))
    if not request.rules.pins:
        return arms
    pinned = set(request.rules.pinned)
    return [msgspec.structs.replace(arm, pinned=True) if arm.id in pinned else arm for arm in arms]


class _Record(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True):
    """``numbers``: the scores of all arms, then their propensities if there are any.

    ``pinned``: places of the arms that are, from 0. ``asked``: digest of the request; records had none once.
    """

    token: bytes
    numbers: bytes
    policy: str
    learner_version: int
    catalogue_version: int
    exact: bool
    stale_s: float | None = None
    eligible: int | None = None
    pinned: list[int] = []
    group: str | None = None
    asked: bytes = b""
    prior_version: int | None = None


def record_of(choice: Choice, asked: bytes = b"") -> bytes:
    """The record of a choice, ``asked``: by a request of this digest.

    About 100 bytes, and for an arm 8 and its id; of many arms 7 to 9, and a third of their ids.
    """
    token = raw_of(choice.decision)
    numbers = [arm.score for arm in choice.arms]
    numbers += [arm.propensity for arm in choice.arms if arm.propensity is not None]
    data = np.array(numbers, "<f8").tobytes()
    kind = _PLAIN
    if len(token) >= _FEW_BYTES:
        kind = _COMPRESSED
        by_byte = np.frombuffer(data, np.uint8).reshape(-1, 8).T
        token = zlib.compress(token + by_byte[_LOWER:].tobytes(), 1)
        data = by_byte[:_LOWER].tobytes()
    rest = choice.policy, choice.learner_version, choice.catalogue_version, choice.exact, choice.stale_s
    pinned = [place for place, arm in enumerate(choice.arms) if arm.pinned]
    return kind + msgspec.msgpack.encode(
        _Record(token, data, *rest, choice.eligible, pinned, choice.group, asked, choice.prior_version)
    )


def choice_of(data: bytes) -> Choice:
    """Inverse of ``record_of``, bit for bit; it also reads the records of version 0.1.0."""
    if data[:1] not in {_PLAIN, _COMPRESSED}:
        return msgspec.msgpack.decode(data, type=Choice)
    record = msgspec.msgpack.decode(memoryview(data)[1:], type=_Record)
    token, numbers = record.token, record.numbers
    if data[:1] == _COMPRESSED:
        count = len(numbers) // _LOWER
        whole = zlib.decompress(token)
        token, upper = whole[: -_UPPER * count], whole[-_UPPER * count :]
        numbers = np.frombuffer(numbers + upper, np.uint8).reshape(8, count).T.tobytes()
    decision = decision_of(token)
    ids, values = decision.arms, np.frombuffer(numbers, "<f8").tolist()
    columns = [values[start : start + len(ids)] for start in range(0, len(values), len(ids))]
    arms = list(map(ChosenArm, ids, *columns))
    for place in record.pinned:
        arms[place] = msgspec.structs.replace(arms[place], pinned=True)
    rest = record.policy, record.learner_version, record.catalogue_version, record.exact, record.stale_s
    others = record.eligible, decision.bandit_version, record.group, decision.weights, record.prior_version
    return Choice(text_of(token), arms, *rest, *others)


def answers(data: bytes, asked: bytes) -> bool:
    """Whether a record may be answered to a request of this digest. One without a digest answers any."""
    if data[:1] not in {_PLAIN, _COMPRESSED}:
        return True
    return msgspec.msgpack.decode(memoryview(data)[1:], type=_Record).asked in {b"", asked}


def known_entry_of(data: bytes) -> int | None:
    """``Decision.known_entry`` of the choice in a record; None if it says none, or cannot be read."""
    try:
        return decision_of(raw_of(choice_of(data).decision)).known_entry
    except (ValueError, zlib.error, msgspec.MsgspecError):
        return None
