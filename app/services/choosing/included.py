"""What comes with the arms of an answer, besides what was chosen: their metadata, as the store has them then.

``include`` names them: "metadata", or "metadata." and the name of a field, as filters name it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from app.errors import TooLarge
from app.services.bounded.yielding import yield_to_others
from app.services.choosing.choice import ChosenArm
from app.services.formats.records import attributes_of
from app.storage.protocol import ArmStore

METADATA = "metadata"
MAX_INCLUDED_BYTES = 8 << 20
READ_TOGETHER = 500  # arms

A = TypeVar("A", bound=ChosenArm)


async def described(
    store: ArmStore, catalogue_uid: str, lists: Sequence[Sequence[A]], includes: Sequence[Sequence[str]]
) -> list[list[A]]:
    """Lists of arms with the metadata that the ``include`` of each names; an arm that is gone has none.

    A round trip for each ``READ_TOGETHER`` arms. Raises TooLarge (more than ``MAX_INCLUDED_BYTES``),
    Unavailable.
    """
    ids = [arm.id for arms, include in zip(lists, includes, strict=True) if include for arm in arms]
    documents, size = list[bytes](), 0
    for start in range(0, len(ids), READ_TOGETHER):
        read = await store.documents(catalogue_uid, ids[start : start + READ_TOGETHER])
        documents += read
        size += sum(map(len, read))
        if size > MAX_INCLUDED_BYTES:
            message = (
                f"the metadata of the arms take more than {MAX_INCLUDED_BYTES:,} bytes: ask for fewer arms"
            )
            raise TooLarge(message, path=("include",))
    following = iter(documents)
    answer = list[list[A]]()
    for arms, include in zip(lists, includes, strict=True):
        if include:
            fields = None if METADATA in include else {name.removeprefix(METADATA + ".") for name in include}
            answer.append([await _described(arm, next(following), fields) for arm in arms])
        else:
            answer.append(list(arms))
    return answer


async def _described(arm: A, document: bytes, fields: Collection[str] | None) -> A:
    await yield_to_others()
    metadata = attributes_of(document)[1]
    return msgspec.structs.replace(
        arm, metadata=dict(metadata) if fields is None else part_of(metadata, fields)
    )


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
