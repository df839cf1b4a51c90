"""Arms as users give and get them, and as they are written; and the arms still waiting for a basis.

Notation
    raw     what the features of an arm are made from, see ``records.features``
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from app.catalogues.kept_arms import FoundArms
from app.platform.deadlines import yield_to_others
from app.platform.documents import Answer
from app.platform.errors import DimensionMismatch, FieldPath, Invalid
from app.records.encoding import MAX_ERRORS
from app.records.features import MAX_FEATURE, ROWS_TOGETHER, FeatureEncoding, Reduction, named_in_detail
from app.records.records import (
    ArmDocument,
    UnfittedArmDocument,
    attributes_of,
    embedding_of,
    pack,
    vector_to_bytes,
)
from app.storage.types import ArmWrite
from shortlist.errors import InvalidParameter
from shortlist.linear.principal_components import principal_components

FIT_ARMS = 1_000
MAX_UNFITTED_ARMS = 10_000
PROBE_SEED = 0


class Arm(Answer, frozen=True):
    """One arm as a user gives and gets it."""

    id: str
    features: Sequence[float]
    tags: Sequence[str] = ()
    metadata: dict[str, Any] = msgspec.field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PreparedArms:
    """Arms, ready to be written. ``arms`` are raw. Shape: features (n, d)."""

    arms: Sequence[Arm]
    features: NDArray[np.float64]
    writes: Sequence[ArmWrite]
    encoding: FeatureEncoding


def raw_arm(encoding: FeatureEncoding, arm: Arm, where: FieldPath) -> Arm:
    """The arm with what its features are made from. Raises Invalid, DimensionMismatch: below ``where``."""
    raw: Any = encoding.raw(arm.features, arm.tags, arm.metadata, where)
    return arm if raw is arm.features else Arm(arm.id, raw, arm.tags, arm.metadata)


async def raw_arms(
    encoding: FeatureEncoding, arms: Iterable[tuple[int, Arm]], where: str = "arms"
) -> Sequence[Arm]:
    """``raw_arm`` of each, below ``where`` and its position. Raises Invalid: every field that is wrong."""
    raw, errors = list[Arm](), list[tuple[FieldPath, str]]()
    for position, arm in arms:
        await yield_to_others()
        try:
            raw.append(raw_arm(encoding, arm, (where, position)))
        except DimensionMismatch:
            raise
        except Invalid as error:
            errors += error.errors
            if len(errors) >= MAX_ERRORS:
                break
    if errors:
        raise named_in_detail(errors)
    return raw


async def prepare_arms(encoding: FeatureEncoding, arms: Sequence[Arm]) -> PreparedArms:
    """Encode raw arms for the store. Raises Invalid: a basis makes too large numbers of them."""
    numbers, width = encoding.field_numbers, encoding.field_numbers + encoding.embedding_dim
    dtype = getattr(arms[0].features, "dtype", np.float64) if arms else np.float64
    rows = np.empty((min(len(arms), ROWS_TOGETHER), width), dtype=dtype)
    features, writes = np.empty((len(arms), encoding.dim)), list[ArmWrite]()
    for start in range(0, len(arms), ROWS_TOGETHER):
        batch = arms[start : start + ROWS_TOGETHER]
        for position, arm in enumerate(batch):
            await yield_to_others()
            rows[position] = arm.features
        features[start : start + len(batch)] = encoding.features(rows[: len(batch)])
    if encoding.basis is not None and (wrong := (np.abs(features) > MAX_FEATURE).any(axis=1)).any():
        message = f"the basis makes numbers beyond {MAX_FEATURE:,.0f} of them"
        raise Invalid(message, path=("arms", int(wrong.argmax()), "features"))
    for position, arm in enumerate(arms):
        await yield_to_others()
        embedding = None if encoding.is_fitted else np.asarray(arm.features)[numbers:]
        writes.append(ArmWrite(arm.id, vector_to_bytes(features[position]), document_of(arm, embedding)))
    return PreparedArms(arms, features, writes, encoding)


def document_of(arm: Arm, embedding: NDArray[np.floating] | None = None) -> bytes:
    """The stored bytes of an arm besides its features. ``embedding``: while the arm waits for a basis."""
    if embedding is not None:
        data = embedding.astype("<f4").tobytes()
        return pack(UnfittedArmDocument(list(arm.tags), arm.metadata, data))
    return pack(ArmDocument(list(arm.tags), arm.metadata)) if arm.tags or arm.metadata else b""


def fit_reduction(
    encoding: FeatureEncoding, unfitted: FoundArms, documents: Sequence[bytes]
) -> tuple[Reduction, Sequence[ArmWrite]]:
    """The basis of best fit to the embeddings of all arms, and the arms reduced by the basis.

    ``unfitted``: with zeros in place of embeddings, which their ``documents`` have. Cost: that of
    ``principal_components``; the memory of n e numbers. Raises Invalid.
    """
    where: FieldPath = ("features", "embedding", "reduce")
    to = encoding.reduced_to
    assert to is not None  # noqa: S101 - for the type checker
    if not unfitted.ids:
        raise Invalid("there are no arms to fit a basis to", path=where)
    embeddings = np.array([embedding_of(document) for document in documents])
    try:
        components = principal_components(embeddings, to, np.random.default_rng(PROBE_SEED))
    except InvalidParameter as error:
        message = f"to is {to}, and the embeddings of the {len(unfitted.ids):,} arms allow less: {error}"
        raise Invalid(message, path=where) from None
    basis = components.basis.astype("<f4").tobytes()
    reduction = Reduction(basis, len(unfitted.ids), components.share, components.overlap)
    fields = unfitted.features[:, : encoding.field_numbers]
    features = encoding.fitted(reduction).features(np.hstack((fields, embeddings)))
    writes = []
    for arm_id, row, data in zip(unfitted.ids, features, documents, strict=True):
        tags, metadata = attributes_of(data)
        document = pack(ArmDocument(tags, metadata)) if tags or metadata else b""
        writes.append(ArmWrite(arm_id, vector_to_bytes(row), document))
    return reduction, writes


def waiting_message(count: int) -> str:
    """Why a catalogue is not fitted."""
    return (
        f"the embeddings of this catalogue are reduced once it has {FIT_ARMS:,} arms (it has {count:,}), or "
        "when POST /v1/catalogues/{c}/features/fit asks for it, which says what is in the way"
    )


def full_message(count: int, most: int) -> str:
    """Why a catalogue that is not fitted takes no more arms."""
    return (
        f"it keeps at most {most:,} arms (it has {count:,}) before its embeddings are reduced: "
        "POST /v1/catalogues/{c}/features/fit does, or says what is in the way"
    )
