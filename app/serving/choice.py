"""A choice, the record of it that is kept for an ``event_id``, and the metadata that comes with its arms.

A repeated request with the same ``event_id`` is answered again, bit for bit, from a record. The record holds
what the answer cannot be made from again: the token (which names the arms), scores, propensities and
versions; and a digest of the request, since only the same request gets the same answer. Its first byte is its
format:

    1   msgpack of ``_Record``
    2   the same for many arms: ``token`` is compressed, followed by the two upper bytes of every number;
        ``numbers`` are the six lower bytes, which cannot be compressed, all lowest bytes first

Metadata of the arms is read from the store for the answer, as it is then, and is not part of the record.
``include`` asks for it: "metadata", or "metadata." and the name of a field, as filters name it.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Mapping, Sequence
from typing import Annotated, Any, TypeVar

import msgspec
import numpy as np

from app.filters.fields import MAX_FIELD_CHARS
from app.learning.tokens import Decision, decision_of, raw_of, text_of
from app.platform.answers import FREE_BYTES, hold
from app.platform.deadlines import yield_to_others
from app.platform.documents import Answer, ShownAs
from app.platform.errors import TooLarge
from app.policies.selection import Selection, SelectionRequest
from app.records.records import attributes_of
from app.storage.arms import ArmStore

_PLAIN, _COMPRESSED = b"\x01", b"\x02"
_FEW_BYTES = 512  # of a token: a shorter one is hardly made shorter
_UPPER, _LOWER = 2, 6  # bytes of a number


ARM_BYTES = 400  # about what an arm of an answer takes, with its part of the token, the row and the JSON
METADATA = "metadata"
MAX_INCLUDED_BYTES = 8 << 20
READ_TOGETHER = 500  # arms
FIRST_BYTES = FREE_BYTES  # that are read at first, and then twice as many each time
COPIES = 2  # of what is read: by itself, and in the answer
_encode = msgspec.json.Encoder().encode


A = TypeVar("A", bound="ChosenArm")


class ChosenArm(Answer, frozen=True, omit_defaults=True, gc=False):
    """``propensity``: the probability of this arm given those before it, of a policy that knows it and of the
    holdout.
    ``pinned``: the arm stands here because of a rule. ``metadata``: where ``include`` asks for them.
    """

    id: str
    score: float
    propensity: float | None = None
    pinned: bool = False
    # Read again for every answer, and not kept for an event.
    metadata: Annotated[msgspec.Raw | None, ShownAs(dict[str, Any] | None)] = None


class Choice(Answer, frozen=True, omit_defaults=True, gc=False):
    """Arms, the best first. ``decision``: the token to reward them with. ``bandit_version``: of the settings
    that it was made by. ``eligible``: how many arms the filters match, where there is one. ``group``:
    "policy" or "holdout", of a bandit that has a holdout. ``weights``: by which signals were weighed,
    of a bandit that has some. ``prior_version``: of the learned prior, 0 while there is none; absent
    of a bandit with another prior. ``effects_version``: of the arm effects, 0 while none are found; absent of
    a bandit without.
    """

    decision: str
    arms: list[ChosenArm]
    policy: str
    learner_version: int
    catalogue_version: int
    exact: bool
    stale_s: float | None = None  # nothing was heard of the store for so long: what it holds may be newer
    eligible: int | None = None
    bandit_version: int = 1
    group: str | None = None
    weights: dict[str, float] | None = None
    prior_version: int | None = None
    effects_version: int | None = None


def arms_of(request: SelectionRequest, selection: Selection, ids: list[str]) -> list[ChosenArm]:
    """The arms that were selected, as an answer shows them; ``ids`` are theirs."""
    columns = [ids, selection.hits.scores.tolist()]
    if selection.propensities is not None:
        columns.append(selection.propensities)
    arms = list(map(ChosenArm, *columns))
    if not request.pins:
        return arms
    pinned = set(request.pinned)
    return [msgspec.structs.replace(arm, pinned=True) if arm.id in pinned else arm for arm in arms]


class _Record(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True):
    """``numbers``: the scores of all arms, then their propensities if there are any.

    ``pinned``: places of the arms that are, from 0. ``asked``: digest of the request.
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
    effects_version: int | None = None


def record_of(choice: Choice, asked: bytes) -> bytes:
    """The record of a choice, ``asked``: by a request of this digest.

    About 100 bytes, and for an arm 8 and its id; of many arms 7 to 9, and a third of their ids.
    """
    token = raw_of(choice.decision)
    numbers = [arm.score for arm in choice.arms]
    numbers += [arm.propensity for arm in choice.arms if arm.propensity is not None]
    data = np.array(numbers, "<f8").tobytes()
    kind = _PLAIN
    # Few bytes compress to more.
    if len(token) >= _FEW_BYTES:
        kind = _COMPRESSED
        # Byte by byte of all numbers: the upper bytes of scores that are alike repeat, and compress; the
        # lower ones are noise, and are left alone.
        by_byte = np.frombuffer(data, np.uint8).reshape(-1, 8).T
        token = zlib.compress(token + by_byte[_LOWER:].tobytes(), 1)
        data = by_byte[:_LOWER].tobytes()
    rest = choice.policy, choice.learner_version, choice.catalogue_version, choice.exact, choice.stale_s
    pinned = [number for number, arm in enumerate(choice.arms) if arm.pinned]
    return kind + msgspec.msgpack.encode(
        _Record(
            *(token, data, *rest, choice.eligible, pinned, choice.group, asked),
            choice.prior_version,
            choice.effects_version,
        )
    )


def choice_of(data: bytes) -> Choice:
    """Inverse of ``record_of``, bit for bit."""
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
    for number in record.pinned:
        arms[number] = msgspec.structs.replace(arms[number], pinned=True)
    rest = record.policy, record.learner_version, record.catalogue_version, record.exact, record.stale_s
    others = record.eligible, decision.bandit_version, record.group, decision.weights
    versions = record.prior_version, record.effects_version
    return Choice(text_of(token), arms, *rest, *others, *versions)


def answers(data: bytes, asked: bytes) -> bool:
    """Whether a record may be answered to a request of this digest."""
    return msgspec.msgpack.decode(memoryview(data)[1:], type=_Record).asked == asked


def recorded_decision(data: bytes) -> Decision | None:
    """The decision of the choice in a record; None if it cannot be read."""
    try:
        return decision_of(raw_of(choice_of(data).decision))
    except (ValueError, zlib.error, msgspec.MsgspecError):
        return None


def include_name(name: str) -> str:
    """Raises ValueError: it is no name of what can come with an arm."""
    what, dot, field = name.partition(".")
    if what != METADATA or bool(dot) != bool(field) or len(field) > MAX_FIELD_CHARS:
        raise ValueError('must be "metadata", or "metadata." and the name of a field')
    return name


async def described(
    store: ArmStore, catalogue_uid: str, lists: Sequence[Sequence[A]], includes: Sequence[Sequence[str]]
) -> list[list[A]]:
    """Lists of arms with the metadata that the ``include`` of each names; an arm that is gone has none.

    A round trip for each ``READ_TOGETHER`` arms, and of long ones for each ``FIRST_BYTES`` and twice as much
    each time. Raises TooLarge (more than ``MAX_INCLUDED_BYTES``), Unavailable (the store, or too many large
    answers at once).
    """
    answer = [list(arms) for arms in lists]
    wanted = [
        (arms, position, fields)
        for arms, include in zip(answer, includes, strict=True)
        if include
        for fields in [
            None if METADATA in include else {name.removeprefix(METADATA + ".") for name in include}
        ]
        for position in range(len(arms))
    ]
    size, most, done, held = 0, FIRST_BYTES, 0, 0  # no answer is refused before it is known not to be small
    while done < len(wanted):
        hold(held)
        together = wanted[done : done + READ_TOGETHER]
        ids = [arms[position].id for arms, position, _ in together]
        documents = await store.documents(catalogue_uid, ids, most_bytes=most)
        read = sum(map(len, documents))
        size, done = size + read, done + len(documents)
        if size > MAX_INCLUDED_BYTES:
            message = (
                f"the metadata of the arms take more than {MAX_INCLUDED_BYTES:,} bytes: ask for fewer arms"
            )
            raise TooLarge(message, path=("include",))
        for (arms, position, fields), document in zip(together, documents, strict=False):
            await yield_to_others()
            metadata = attributes_of(document)[1]
            # As JSON, which takes less memory than objects.
            part = msgspec.Raw(_encode(metadata if fields is None else part_of(metadata, fields)))
            arms[position] = msgspec.structs.replace(arms[position], metadata=part)
        hold(COPIES * read - held)
        # Doubled: many arms of short metadata take few round trips, and long metadata is never read far
        # beyond the limit.
        held = most = min(2 * most, MAX_INCLUDED_BYTES)
    return answer


def part_of(document: Mapping[str, Any], fields: Collection[str], prefix: str = "") -> dict[str, Any]:
    """The fields of these dotted names, within the objects that hold them. Cost: O(its fields)."""
    part: dict[str, Any] = {}
    for key, content in document.items():
        name = prefix + key
        if name in fields:
            part[key] = content
        elif any(field.startswith(name + ".") for field in fields):
            if isinstance(content, Mapping):
                part[key] = part_of(content, fields, name + ".")
            elif isinstance(content, list):
                inner = [
                    part_of(inner_document, fields, name + ".")
                    for inner_document in content
                    if isinstance(inner_document, Mapping)
                ]
                part[key] = inner
    return part
