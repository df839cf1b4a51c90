"""What comes with the arms of an answer, besides what was chosen: their metadata, as the store has them then.

``include`` names them: "metadata", or "metadata." and the name of a field, as filters name it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from app.errors import TooLarge
from app.services.bounded.answers import FREE_BYTES, hold
from app.services.bounded.yielding import yield_to_others
from app.services.choosing.choice import ChosenArm
from app.services.formats.records import attributes_of
from app.storage.protocol import ArmStore

METADATA = "metadata"
MAX_INCLUDED_BYTES = 8 << 20
READ_TOGETHER = 500  # arms
FIRST_BYTES = FREE_BYTES  # that are read at first, and then twice as many each time
COPIES = 2  # of what is read: by itself, and in the answer

A = TypeVar("A", bound=ChosenArm)
_encode = msgspec.json.Encoder().encode


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
        (arms, place, fields)
        for arms, include in zip(answer, includes, strict=True)
        if include
        for fields in [_fields_of(include)]
        for place in range(len(arms))
    ]
    size, most, done, held = 0, FIRST_BYTES, 0, 0  # no answer is refused before it is known not to be small
    while done < len(wanted):
        hold(held)
        together = wanted[done : done + READ_TOGETHER]
        ids = [arms[place].id for arms, place, _ in together]
        documents = await store.documents(catalogue_uid, ids, most_bytes=most)
        read = sum(map(len, documents))
        size, done = size + read, done + len(documents)
        if size > MAX_INCLUDED_BYTES:
            message = (
                f"the metadata of the arms take more than {MAX_INCLUDED_BYTES:,} bytes: ask for fewer arms"
            )
            raise TooLarge(message, path=("include",))
        for (arms, place, fields), document in zip(together, documents, strict=False):
            await yield_to_others()
            arms[place] = msgspec.structs.replace(arms[place], metadata=_part(document, fields))
        hold(COPIES * read - held)
        held = most = min(2 * most, MAX_INCLUDED_BYTES)
    return answer


def _fields_of(include: Sequence[str]) -> Collection[str] | None:
    """The fields that are wanted; None: all metadata."""
    return None if METADATA in include else {name.removeprefix(METADATA + ".") for name in include}


def _part(document: bytes, fields: Collection[str] | None) -> msgspec.Raw:
    """Metadata as JSON, which takes less memory than objects."""
    metadata = attributes_of(document)[1]
    return msgspec.Raw(_encode(metadata if fields is None else part_of(metadata, fields)))


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
                inner = [part_of(each, fields, name + ".") for each in content if isinstance(each, Mapping)]
                part[key] = inner
    return part
