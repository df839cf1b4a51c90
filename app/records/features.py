"""Features of an arm, made from the owner's data: fields of its metadata, and an embedding.

Notation
    f           numbers of the declared fields; 0 without fields
    e           numbers of a given embedding; a plain vector of features counts as one
    d           dimension of the catalogue, f + e, or f + to with a reduction
    B           the basis of the reduction (to, e): an embedding z is reduced to B z
    raw         the source of an arm (f + e,): the numbers of its fields, and its embedding

An arm is [fields ; B z], and the query of an embedding z is [0 ; B z]. Reduced numbers are computed in
float32 and in blocks of one size: the same arm has the same bits, with whichever others it was sent.

Without a given basis, the arms are kept as they are until one is fitted to them. Until then their
features are [fields ; 0], and their embeddings stand in their documents.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Annotated, Any

import msgspec
import numpy as np
from numpy.typing import NDArray
from pydantic import BeforeValidator, Field

from app.platform.documents import Document
from app.platform.errors import DimensionMismatch, FieldPath, Invalid
from app.records.encoding import (
    MAX_ERRORS,
    EncodedField,
    EncodedFieldList,
    FieldsEncoding,
    WrongValue,
    completed_fields,
)
from shortlist.linear.principal_components import rank_of
from shortlist.types import Vector

MAX_FEATURES = 4_096
MAX_FEATURE = 1e6
MAX_REDUCED = 1_024
MAX_BASIS_NUMBERS = 200_000
MAX_METADATA_CHARS = 16_384
LARGE_DIM = 256  # from here on learners are slow and large
TAGS = "tags"
ROWS_TOGETHER = 256
NO_FEATURES: tuple[float, ...] = ()  # of an arm that is given without: not an empty list
_HERE: FieldPath = ("features",)
_REDUCE: FieldPath = (*_HERE, "embedding", "reduce")

_BasisNumber = Annotated[float, Field(ge=-MAX_FEATURE, le=MAX_FEATURE)]
_BasisRow = Annotated[list[_BasisNumber], Field(min_length=1, max_length=MAX_FEATURES)]
REDUCE_CURE = (
    'reduce the embedding, with "features": {"embedding": {"dim": …, "reduce": 64}} of the catalogue'
)


class ReduceRule(Document, frozen=True, omit_defaults=True):
    """To how many numbers an embedding is reduced. ``basis``: by these rows; absent: by the rows of best fit
    to the arms, once there are enough.
    """

    to: Annotated[int, Field(ge=1, le=MAX_REDUCED)]
    basis: Annotated[list[_BasisRow], Field(min_length=1, max_length=MAX_REDUCED)] | None = None


def _as_rule(document: object) -> object:
    """A number alone says ``to``."""
    if isinstance(document, int) and not isinstance(document, bool):
        return {"to": document}
    if document is None or isinstance(document, dict | ReduceRule):
        return document
    kinds = f'a whole number from 1 to {MAX_REDUCED:,}, an object as {{"to": 64}}, or null'
    raise ValueError(f"must be {kinds}")


class EmbeddingRule(Document, frozen=True, omit_defaults=True):
    """``dim``: how many numbers the features of an arm have when they are given. ``reduce``: a number, or an
    object.
    """

    dim: Annotated[int, Field(ge=1, le=MAX_FEATURES)]
    reduce: Annotated[ReduceRule | None, BeforeValidator(_as_rule)] = None


class FeaturesRule(Document, frozen=True, omit_defaults=True):
    """The source of a catalogue's features: ``fields`` of the metadata, an ``embedding``, or both, the
    fields first.
    """

    fields: EncodedFieldList | None = None
    embedding: EmbeddingRule | None = None


class Reduction(msgspec.Struct, frozen=True):
    """A basis, float32 row by row, and the share which it keeps of the ``arms`` of its fit.

    ``arms`` 0: a given basis, whose share is unknown. ``overlap``: of the 10 nearest arms, the number which
    stay nearest after the reduction.
    """

    basis: bytes
    arms: int = 0
    share: float | None = None
    overlap: float | None = None


def completed(rule: FeaturesRule) -> tuple[FeaturesRule, Reduction | None]:
    """The rule with its defaults and without its basis, and the basis. Raises Invalid, DimensionMismatch."""
    if rule.fields is None and rule.embedding is None:
        raise Invalid("features must have fields, an embedding or both", path=_HERE)
    fields = None if rule.fields is None else completed_fields(rule.fields, (*_HERE, "fields"))
    embedding, reduction = rule.embedding, None
    if embedding is not None and (reduce := embedding.reduce) is not None:
        if reduce.to > embedding.dim:
            message = f"must be at most {embedding.dim}, the dim of the embedding"
            raise Invalid(message, path=(*_REDUCE, "to"))
        if reduce.basis is not None:
            reduction = _checked_basis(reduce, embedding.dim)
        embedding = EmbeddingRule(embedding.dim, ReduceRule(reduce.to))
    result = FeaturesRule(fields, embedding)
    dim = FeatureEncoding(result, None, 0).dim
    if dim > MAX_FEATURES:
        message = f"features must have at most {MAX_FEATURES:,} numbers together, and these have {dim:,}"
        raise Invalid(message, path=_HERE)
    return result, reduction


def _checked_basis(reduce: ReduceRule, dim: int) -> Reduction:
    rows, where = reduce.basis or [], (*_REDUCE, "basis")
    if len(rows) != reduce.to:
        raise DimensionMismatch(f"basis must have {reduce.to} rows, as to says, not {len(rows)}", path=where)
    for position, row in enumerate(rows):
        if len(row) != dim:
            message = f"must have {dim} numbers, as the embedding, not {len(row)}"
            raise DimensionMismatch(message, path=(*where, position))
    if reduce.to * dim > MAX_BASIS_NUMBERS:
        raise Invalid(f"basis must have at most {MAX_BASIS_NUMBERS:,} numbers", path=where)
    basis = np.array(rows, dtype="<f4")
    wide = basis.astype(np.float64)
    rank = rank_of(wide @ wide.T)
    if rank < reduce.to:
        message = f"the rows of basis must be independent: {reduce.to} rows of rank {rank}"
        raise Invalid(message, path=where)
    return Reduction(basis.tobytes())


class FeatureEncoding:
    """The encoding of a catalogue's arms as features. ``rule`` None: features are given, ``dim`` of them.

    ``embedding_dim``   e, the number of an arm's given features; 0: none
    ``columns``         the meaning of each number; None for plain features
    ``is_fitted``       True if searches can use the features: not while a basis is missing
    """

    def __init__(self, rule: FeaturesRule | None, reduction: Reduction | None, dim: int) -> None:
        embedding = EmbeddingRule(dim) if rule is None else rule.embedding
        declared: Sequence[EncodedField] = (rule.fields if rule is not None else None) or ()
        self._names = [field.name for field in declared]
        self._fields = FieldsEncoding(declared, max_text_chars=MAX_METADATA_CHARS)
        reduce = None if embedding is None else embedding.reduce
        self.rule = rule
        self.reduction = reduction
        self.field_numbers = self._fields.dim
        self.embedding_dim = 0 if embedding is None else embedding.dim
        self.reduced_to = None if reduce is None else reduce.to
        self.kept_dim = self.embedding_dim if reduce is None else reduce.to
        self.dim = self.field_numbers + self.kept_dim
        self.is_fitted = reduce is None or reduction is not None
        self.basis: NDArray[np.float32] | None = None
        if reduction is not None:
            basis = np.frombuffer(reduction.basis, dtype="<f4").reshape(self.kept_dim, self.embedding_dim)
            self.basis = basis.astype(np.float32, copy=False)
        self.columns: Sequence[str] | None = None
        if rule is not None:
            self.columns = [
                *self._fields.columns,
                *(f"embedding.{number}" for number in range(self.kept_dim)),
            ]

    @property
    def listed(self) -> Mapping[str, Sequence[str]]:
        """The values of the fields with a list."""
        fields = (self.rule.fields if self.rule is not None else None) or ()
        return {field.name: field.values for field in fields if field.values is not None}

    def fitted(self, reduction: Reduction) -> FeatureEncoding:
        """The same with a basis."""
        return FeatureEncoding(self.rule, reduction, self.dim)

    @cached_property
    def of_reduced(self) -> FeatureEncoding:
        """The same for arms whose embeddings were reduced by whoever sends them."""
        rule = None if self.rule is None else self.rule.fields
        return FeatureEncoding(FeaturesRule(rule, EmbeddingRule(self.kept_dim)), None, self.dim)

    def raw(
        self,
        features: Sequence[float] | NDArray[np.floating],
        tags: Sequence[str],
        metadata: Mapping[str, Any],
        where: FieldPath = (),
    ) -> Sequence[float] | NDArray[np.floating]:
        """The source numbers of an arm. ``where``: the path of the arm, with which errors begin.

        ``features`` of a catalogue without an embedding may be absent, or those of an earlier answer: then
        they must agree with the metadata. Shapes: (e,) -> (f + e,). Raises Invalid, DimensionMismatch.
        """
        if self.embedding_dim and features is NO_FEATURES:
            raise Invalid(f"features is required: {self.embedding_dim} numbers", path=(*where, "features"))
        if self.embedding_dim and len(features) != self.embedding_dim:
            message = f"features must have {self.embedding_dim} numbers, not {len(features)}"
            raise DimensionMismatch(message, path=(*where, "features"))
        if not self.field_numbers:
            return features
        row = np.zeros(self.field_numbers + self.embedding_dim)
        row[: self.field_numbers] = self._of_fields(tags, metadata, where)
        if self.embedding_dim:
            row[self.field_numbers :] = features
        elif len(features) and not np.array_equal(np.asarray(features, dtype=np.float32), row):
            message = "features are encoded from the metadata, and those given are others: leave them out"
            raise Invalid(message, path=(*where, "features"))
        return row

    def _of_fields(self, tags: Sequence[str], metadata: Mapping[str, Any], where: FieldPath) -> Any:
        numbers = np.zeros(self.field_numbers, dtype=np.float32)
        errors: list[tuple[FieldPath, str]] = []
        for name in self._names:
            path, value = value_of(name, tags, metadata)
            if value is not None:
                try:
                    self._fields.write(name, value, numbers)
                except WrongValue as wrong:
                    errors.append(((*where, *path), str(wrong)))
        if errors:
            raise named_in_detail(errors, len(where))
        return numbers

    def features(self, raw: NDArray[np.floating]) -> NDArray[np.float64]:
        """The features for searches; zeros for an embedding whose basis is missing. Shapes: (n, f + e) -> (n,
        d).

        Cost: n e to.
        """
        if self.reduced_to is None:
            return raw.astype(np.float64, copy=False)
        result = np.zeros((len(raw), self.dim))
        result[:, : self.field_numbers] = raw[:, : self.field_numbers]
        if self.basis is not None:
            result[:, self.field_numbers :] = _products(raw[:, self.field_numbers :], self.basis)
        return result

    def query(self, embedding: Sequence[float]) -> Vector:
        """The query of an embedding. Shapes: (e,) -> (d,). Raises Invalid, DimensionMismatch."""
        if self.rule is None or not self.embedding_dim:
            raise Invalid("this catalogue has no embedding: give query", path=("embedding",))
        if len(embedding) != self.embedding_dim:
            message = f"embedding must have {self.embedding_dim} numbers, not {len(embedding)}"
            raise DimensionMismatch(message, path=("embedding",))
        result = np.zeros(self.dim)
        numbers = np.array(embedding, dtype=np.float64)
        result[self.field_numbers :] = (
            numbers if self.basis is None else _products(numbers[None], self.basis)[0]
        )
        return result


def named_in_detail(errors: Sequence[tuple[FieldPath, str]], skipped: int = 0) -> Invalid:
    """The error of several fields, the first of which its detail names, without so many parts of its path."""
    error = Invalid.many(errors[:MAX_ERRORS])
    (path, text), more = errors[0], len(error.errors) - 1
    error.detail = f"{'.'.join(map(str, path[skipped:]))}: {text}"
    if more:
        error.detail += f"; and {more} more break their rules"
    return error


def value_of(name: str, tags: Sequence[str], metadata: Mapping[str, Any]) -> tuple[FieldPath, object]:
    """The path of a field in an arm and its value, None if absent; by the names of filters."""
    if name == TAGS:
        return (TAGS,), list(tags) or None
    if name in metadata or "." not in name:
        return ("metadata", name), metadata.get(name)
    value: object = metadata
    for part in name.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return ("metadata", *name.split(".")), value


def warnings_of(encoding: FeatureEncoding) -> Iterable[str]:
    """Warnings of the cost of many features, with a way to fewer."""
    dim = encoding.dim
    if dim > LARGE_DIM:
        megabytes, times = 8 * dim * (dim + 3) / 1e6, (dim / 64) ** 2
        cure = "make them fewer" if encoding.embedding_dim <= LARGE_DIM else REDUCE_CURE
        yield (
            f"a learner of {dim:,} numbers takes {megabytes:.1f} MB, and a choice up to {times:.0f} times as "
            f"long as with 64: {cure}"
        )


def _products(rows: NDArray[np.floating], basis: NDArray[np.float32]) -> NDArray[np.float32]:
    """B z of every row, in float32 and in blocks of one size. Shapes: (n, e), (to, e) -> (n, to)."""
    result = np.empty((len(rows), len(basis)), dtype=np.float32)
    block = np.zeros((ROWS_TOGETHER, basis.shape[1]), dtype=np.float32)
    for start in range(0, len(rows), ROWS_TOGETHER):
        batch = rows[start : start + ROWS_TOGETHER]
        block[: len(batch)] = batch
        block[len(batch) :] = 0.0
        result[start : start + len(batch)] = (block @ basis.T)[: len(batch)]
    return result
