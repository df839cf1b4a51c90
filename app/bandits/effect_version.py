"""A version of the arm effects of a bandit: what each arm has beyond its features, as of one fit.

Versions are numbered from 1. One without arms is made where nothing is found: then all is as without effects.
Of most only the arms are stored that moved: of those that did not the next version has the sums of before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import msgspec
import numpy as np

from app.records.records import bytes_to_vector, vector_to_bytes
from shortlist.linear import arm_effects
from shortlist.linear.arm_effects import EffectFit
from shortlist.types import Matrix, Vector

ARM_BYTES = 250  # about what an arm takes in memory: its name, its place, its numbers


class EffectRecord(msgspec.Struct, frozen=True, array_like=True):
    """What is stored of a version.

    ``since_ms``    when it was made
    ``decisions``   how many decisions are in the sums that it was made of
    ``space``       which move of its bandit it was made after; 0: none
    ``variances``, ``noises``   tau^2 and s^2 of each signal
    ``arms``        with rewards, in the order of their ids; empty where no effects were found
    ``revisions``   of the features of each arm
    ``n``, ``R``    their sums, float64, ``R`` signal by signal
    ``base``      0: those are all arms. Else they are those that differ from the version with this number,
                  and ``gone`` are those that it has besides
    ``chained``   how many arms were stored since the last version with all of them
    """

    number: int
    since_ms: int
    decisions: int
    space: int
    variances: list[float]
    noises: list[float]
    arms: list[str] = []
    revisions: list[int] = []
    n: bytes = b""
    R: bytes = b""
    base: int = 0
    gone: list[str] = []
    chained: int = 0


@dataclass(frozen=True, eq=False)
class EffectVersion:
    """A version. Its arrays are read-only. Shapes: n (K,); effects, deviations (J, K), of each signal."""

    record: EffectRecord
    n: Vector
    effects: Matrix
    deviations: Matrix

    @property
    def number(self) -> int:
        return self.record.number

    @property
    def shown_number(self) -> int:
        """The number by which choices name it: 0 where it says nothing."""
        return self.record.number if self.record.arms else 0

    @property
    def bytes(self) -> int:
        """What it takes in memory."""
        return 1_000 + (ARM_BYTES + 32 * len(self.record.variances)) * len(self.record.arms)

    @cached_property
    def places(self) -> Mapping[str, int]:
        """Where each arm is."""
        return {arm: place for place, arm in enumerate(self.record.arms)}

    def place_of(self, arm: str, revision: int) -> int | None:
        """Where an arm with these features is; None: it has no rewards with them."""
        place = self.places.get(arm)
        return place if place is not None and self.record.revisions[place] == revision else None

    def served(self, arms: Sequence[str], revisions: Sequence[int], signals: int) -> Matrix:
        """The effects of arms with these features, 0 of those without rewards. Shapes: -> (n, J)."""
        found = np.zeros((len(arms), signals))
        self._fill(found, arms, revisions, self.effects)
        return found

    def deviations_of(self, arms: Sequence[str], revisions: Sequence[int], signals: int) -> Matrix:
        """The deviations of the effects of arms with these features, tau without rewards. Shape: (n, J)."""
        found = np.zeros((len(arms), signals))
        found[:, : len(self.effects)] = np.sqrt(self.record.variances[:signals])
        self._fill(found, arms, revisions, self.deviations)
        return found

    def _fill(self, found: Matrix, arms: Sequence[str], revisions: Sequence[int], numbers: Matrix) -> None:
        for row, pair in enumerate(zip(arms, revisions, strict=True)):
            if (place := self.place_of(*pair)) is not None:
                found[row, : len(numbers)] = numbers[: found.shape[1], place]


def version_of(record: EffectRecord) -> EffectVersion:
    """The version of a record: the same bits wherever it is read. Cost: O(J K)."""
    n, R = bytes_to_vector(record.n), bytes_to_vector(record.R).reshape(len(record.variances), -1)
    found = [
        arm_effects.estimates(n, own, EffectFit(variance, noise))
        for own, variance, noise in zip(R, record.variances, record.noises, strict=True)
    ]
    # As tokens have them, so that what was served is what is learned from.
    effects = np.array([own for own, _ in found]).astype(np.float32).astype(np.float64)
    deviations = np.array([own for _, own in found])
    for array in (n, effects, deviations):
        array.setflags(write=False)
    return EffectVersion(record, n, effects, deviations)


def record_of(
    number: int,
    since_ms: int,
    *,
    space: int,
    decisions: int,
    fits: Sequence[EffectFit],
    arms: Sequence[str],
    revisions: Sequence[int],
    n: Vector,
    R: Matrix,
) -> EffectRecord:
    """The record of a fit; without arms where no signal has effects. Shapes: (K,), (J, K)."""
    about = (
        number,
        since_ms,
        decisions,
        space,
        [fit.variance for fit in fits],
        [fit.noise for fit in fits],
    )
    if not any(fit.variance for fit in fits):
        return EffectRecord(*about)
    return EffectRecord(*about, list(arms), list(revisions), vector_to_bytes(n), vector_to_bytes(R.ravel()))


def change_of(before: EffectVersion, now: EffectVersion, changed: Sequence[int]) -> EffectRecord:
    """What is stored of a version that follows another one. ``changed``: places of the arms that differ."""
    record, places = now.record, np.array(changed, dtype=np.intp)
    R = bytes_to_vector(record.R).reshape(len(record.variances), -1)
    return msgspec.structs.replace(
        record,
        arms=[record.arms[place] for place in changed],
        revisions=[record.revisions[place] for place in changed],
        n=vector_to_bytes(now.n[places]),
        R=vector_to_bytes(R[:, places].ravel()),
        base=before.number,
        gone=sorted(before.places.keys() - now.places.keys()),
        chained=before.record.chained + len(changed),
    )


def applied(before: EffectVersion, change: EffectRecord) -> EffectRecord:
    """The whole record of a version that was stored as what differs. Cost: O(J K), K log K with new arms."""
    record, count = before.record, len(change.variances)
    known, fresh = list[tuple[int, int]](), list[int]()
    for place, arm in enumerate(change.arms):
        if (was := before.places.get(arm)) is None:
            fresh.append(place)
        else:
            known.append((was, place))
    arms, revisions = [*record.arms], [*record.revisions]
    n, R = before.n.copy(), bytes_to_vector(record.R).reshape(count, -1).copy()
    own_n, own_R = bytes_to_vector(change.n), bytes_to_vector(change.R).reshape(count, -1)
    for was, place in known:
        revisions[was], n[was], R[:, was] = change.revisions[place], own_n[place], own_R[:, place]
    if fresh or change.gone:
        arms += [change.arms[place] for place in fresh]
        revisions += [change.revisions[place] for place in fresh]
        n, R = np.concatenate((n, own_n[fresh])), np.concatenate((R, own_R[:, fresh]), axis=1)
        gone = set(change.gone)
        order = sorted((k for k in range(len(arms)) if arms[k] not in gone), key=arms.__getitem__)
        arms, revisions = [arms[place] for place in order], [revisions[place] for place in order]
        n, R = n[order], R[:, order]
    return msgspec.structs.replace(
        change,
        arms=arms,
        revisions=revisions,
        n=vector_to_bytes(n),
        R=vector_to_bytes(R.ravel()),
        base=0,
        gone=[],
    )


def read_together(base: EffectVersion | None, changes: Sequence[EffectRecord]) -> EffectVersion:
    """The version of the last of these records, each of which changes the one before; the first ``base``."""
    version = base
    for change in changes:
        whole = change if version is None or not change.base else applied(version, change)
        version = version_of(whole)
    assert version is not None  # noqa: S101 - there is one record at least
    return version


def record_to_bytes(record: EffectRecord) -> bytes:
    return msgspec.msgpack.encode(record)


def bytes_to_record(data: bytes) -> EffectRecord:
    return msgspec.msgpack.decode(data, type=EffectRecord)
