"""A version of the learned prior of a bandit: the common part of its keys at one time, and its record.

Versions of a bandit are numbered from 1. One without a prior is made where the remaining keys say nothing, as
after keys were forgotten: all is then as with the plain prior.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated

import msgspec
import numpy as np

from app.platform.documents import Answer
from app.records.history_prior import whole_of
from app.records.records import bytes_to_vector, vector_to_bytes
from app.storage.types import FoldedCounts
from shortlist import checks
from shortlist.linear.learned_prior import LearnedPrior
from shortlist.linear.reward_sizes import UsualSizes
from shortlist.types import Matrix

SHOWN_KEYS = 10  # of fewer keys nobody is told a mean: it would be nearly what one of them likes
_LEAST_NOISE = 1e-6  # of a signal that is newer than the version, as a share of the least of the others


class PriorRecord(msgspec.Struct, frozen=True, array_like=True):
    """The stored record of a version.

    ``since_ms``     the time of the fit
    ``rewards``      number of log entries folded for the bandit by then
    ``replaced``     how many of these forgot a learner, or set its state
    ``mean``, ``precision``, ``residuals``  of ``LearnedPrior``, float64 row by row, of the precision the
                     lower triangle; all are empty where there is no prior
    ``space``        the number of its bandit's last move at the fit; 0: none
    ``variation``    of ``LearnedPrior``; 1 for versions from before this field
    ``sizes``        of ``LearnedPrior``, float64: the mean squares of all signals, then the variances; empty
                     where all keys are counted in one unit
    ``history``      of ``LearnedPrior``: how many of ``keys`` are of a history
    """

    number: int
    since_ms: int
    rewards: int
    replaced: int
    keys: int = 0
    observations: float = 0.0
    signals: int = 0
    mean: bytes = b""
    precision: bytes = b""
    residuals: bytes = b""
    space: int = 0
    variation: float = 1.0
    sizes: bytes = b""
    history: int = 0


@dataclass(frozen=True, eq=False)
class PriorVersion:
    """A version, with its prior; None where there is none. Its arrays are read-only."""

    record: PriorRecord
    learned: LearnedPrior | None

    @property
    def number(self) -> int:
        return self.record.number

    @property
    def shown_number(self) -> int:
        """The number by which choices name the version: 0 for a version without a prior."""
        return 0 if self.learned is None else self.record.number

    @property
    def bytes(self) -> int:
        """Its size in memory."""
        dim = 0 if self.learned is None else self.learned.dim
        return 2_000 + 8 * dim * (dim + 2 * max(1, self.record.signals))

    @cached_property
    def shows(self) -> bool:
        """True if mean and covariance may be shown."""
        learned = self.learned
        if learned is None:
            return False
        # Not by the sum: a reader of the history's mean could subtract it from the mean of a few own keys.
        return (learned.own_keys or learned.history) >= SHOWN_KEYS

    def of_signals(self, count: int) -> PriorVersion:
        """The version for a bandit with so many signals now: new signals have mean 0."""
        learned = self.learned
        if learned is None or len(learned.mean) >= count:
            return self
        learned_signals = len(learned.mean)
        mean = np.zeros((count, learned.dim))
        mean[:learned_signals] = learned.mean
        residuals = np.diag(np.full(count, _LEAST_NOISE * float(learned.residuals.diagonal().min())))
        residuals[:learned_signals, :learned_signals] = learned.residuals
        more = np.zeros((2, count - learned_signals))  # 0: nothing is usual of what is new
        wider = LearnedPrior.of(
            mean,
            learned.precision,
            residuals,
            keys=learned.keys,
            observations=learned.observations,
            variation=learned.variation,
            sizes=_sizes(np.column_stack((_table_of(learned.sizes), more)) if learned.sizes else None),
            history=learned.history,
        )
        return PriorVersion(self.record, wider)


def version_of(
    number: int,
    since_ms: int,
    learned: LearnedPrior | None,
    counts: FoldedCounts = FoldedCounts(),
    *,
    space: int = 0,
) -> PriorVersion:
    """The version made of a prior. ``counts``: the entries folded for its bandit by then."""
    head = number, since_ms, counts.entries, counts.replaced
    if learned is None:
        return PriorVersion(PriorRecord(*head, space=space), None)
    record = PriorRecord(
        *head,
        learned.keys,
        learned.observations,
        len(learned.mean),
        vector_to_bytes(learned.mean),
        vector_to_bytes(learned.precision[np.tril_indices(learned.dim)]),
        vector_to_bytes(learned.residuals),
        space,
        learned.variation,
        b"" if learned.sizes is None else vector_to_bytes(_table_of(learned.sizes)),
        learned.history,
    )
    return PriorVersion(record, learned)


def version_to_bytes(version: PriorVersion) -> bytes:
    return msgspec.msgpack.encode(version.record)


def bytes_to_prior(data: bytes) -> PriorVersion:
    """The version of a record: the same bits wherever it is read. Cost: O(d^3)."""
    record = msgspec.msgpack.decode(data, type=PriorRecord)
    if not record.keys:
        return PriorVersion(record, None)
    mean = bytes_to_vector(record.mean).reshape(record.signals, -1).copy()
    precision = whole_of(bytes_to_vector(record.precision), mean.shape[1])
    residuals = bytes_to_vector(record.residuals).reshape(record.signals, record.signals).copy()
    learned = LearnedPrior.of(
        mean,
        precision,
        residuals,
        keys=record.keys,
        observations=record.observations,
        variation=record.variation,
        sizes=_sizes(bytes_to_vector(record.sizes).reshape(2, -1).copy() if record.sizes else None),
        history=record.history,
    )
    return PriorVersion(record, learned)


class PriorVersionView(Answer, frozen=True):
    """A version of the learned prior, as rows name it. ``mean``: mu, of each signal; ``precision``: S^-1, row
    by row up to the diagonal; ``residuals``: R, the covariance of the signals' noise; ``variation``: the mean
    of x^T S x over what the keys were shown; all null where the keys said nothing. A key with G = sum x x^T
    and m = sum x r^T has V = S^-1 + G and theta = V^-1 (S^-1 mu + m). ``sizes``: of each signal the mean
    squared reward that is usual of keys, and the variance of its sum for each reward; a key whose rewards
    are far larger is counted in its own unit. Null where all are counted in one unit. ``history``: how many
    of ``keys`` are of the history of the catalogue.
    """

    version: Annotated[int, msgspec.Meta(ge=1, lt=1 << 53)]
    since_ms: Annotated[int, msgspec.Meta(ge=0, lt=1 << 53)]
    keys: Annotated[int, msgspec.Meta(ge=0, lt=1 << 53)]
    observations: Annotated[float, msgspec.Meta(ge=0)]
    mean: list[list[float]] | None
    precision: list[float] | None
    residuals: list[list[float]] | None
    variation: float | None = None  # older versions: not known
    sizes: list[tuple[float, float]] | None = None
    history: Annotated[int, msgspec.Meta(ge=0, lt=1 << 53)] = 0


def exported(version: PriorVersion) -> PriorVersionView:
    """The version as it is exported; ``imported`` is the inverse."""
    record, learned = version.record, version.learned
    view = PriorVersionView(
        record.number, record.since_ms, record.keys, record.observations, None, None, None
    )
    if learned is None:
        return view
    return msgspec.structs.replace(
        view,
        mean=learned.mean.tolist(),
        precision=bytes_to_vector(record.precision).tolist(),
        residuals=learned.residuals.tolist(),
        variation=learned.variation,
        sizes=None if learned.sizes is None else _table_of(learned.sizes).T.tolist(),
        history=learned.history,
    )


def imported(line: bytes) -> PriorVersion:
    """Decode an exported version, as JSON. Raises ValueError with the reason.

    Cost: O(D^3).
    """
    item = msgspec.json.decode(line, type=PriorVersionView)
    if item.mean is None or item.precision is None or item.residuals is None:
        return version_of(item.version, item.since_ms, None)
    mean, residuals = _table("mean", item.mean), _table("residuals", item.residuals)
    dim = mean.shape[1]
    checks.shape("precision", np.array(item.precision), (dim * (dim + 1) // 2,))
    checks.in_range("keys", item.keys, least=1)
    learned = LearnedPrior.of(
        mean,
        whole_of(np.array(item.precision), dim),
        residuals,
        keys=item.keys,
        observations=item.observations,
        variation=1.0 if item.variation is None else item.variation,
        sizes=None if item.sizes is None else _sizes(_table("sizes", item.sizes).T),
        history=item.history,
    )
    return version_of(item.version, item.since_ms, learned)


def _table_of(sizes: UsualSizes) -> Matrix:
    """Shape: (2, J)."""
    return np.stack((sizes.mean_squares, sizes.variances))


def _sizes(table: Matrix | None) -> UsualSizes | None:
    return None if table is None else UsualSizes(*table)


def _table(name: str, rows: Sequence[Sequence[float]]) -> Matrix:
    """Raises ValueError: there is none, or they are of several lengths."""
    if len({len(row) for row in rows}) != 1:
        raise ValueError(f"{name} must have rows of one length")
    return np.array(rows, dtype=float)
