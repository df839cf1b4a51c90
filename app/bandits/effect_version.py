"""A version of the arm effects of a bandit: each arm's reward beyond its features, as of one fit.

Versions are numbered from 1. One without arms is made where no effect is found: then all is as without
effects. Most versions store changed arms only; unchanged arms keep the sums of the version before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import msgspec
import numpy as np
from numpy.typing import NDArray

from app.records.age_sums import NOTHING_ADDED, TokenAges
from app.records.packed_names import PackedNames
from app.records.place_sums import PLACE_BYTES, places_to_bytes
from app.records.records import bytes_to_vector, vector_to_bytes
from shortlist.linear import arm_effects
from shortlist.linear.ages import bins_of
from shortlist.linear.arm_effects import EffectFit
from shortlist.types import Matrix, Rows, Vector


class PlaceFit(msgspec.Struct, frozen=True, array_like=True, dict=True):
    """The estimates for the places of lists, of the first ``MOST_LEARNED_PLACES``.

    ``p``, ``w``    the probability of a look at each, and the weight of a reward there: float16, 1 at the
                    first
    ``sums``        n, M, Y and V of ``shortlist.linear.places``, faded by the fits
    ``all_sums``    the same of all rewards by then, not faded
    ``is_below``    p and w are 1 since rewards may be less than 0, or were
    """

    p: list[float]
    w: list[float]
    sums: list[list[float]]
    all_sums: list[list[float]]
    is_below: bool = False

    def of_token(self, arms: int) -> bytes:
        """The token's part about the places of a list of so many arms."""
        return self._of_longest[: PLACE_BYTES * (arms - 1)]

    @cached_property
    def _of_longest(self) -> bytes:
        return places_to_bytes(self.p, self.w, len(self.p))


class AgeFit(msgspec.Struct, frozen=True, array_like=True):
    """What is known of the ages of arms, of each bin of ``shortlist.linear.ages``.

    ``effects``     what an age adds to a reward, as tokens have it
    ``deviations``  how uncertain that is
    ``A``, ``r``    of the stretches of time so far
    ``n``, ``R``    of all rewards up to the end of the last one
    """

    effects: list[float]
    deviations: list[float]
    A: list[list[float]]
    r: list[float]
    n: list[float]
    R: list[float]


class EffectRecord(msgspec.Struct, frozen=True, array_like=True):
    """The stored record of a version.

    ``since_ms``    when it was made
    ``decisions``   number of decisions in its sums
    ``space``       the number of its bandit's last move at the fit; 0: none
    ``variances``, ``noises``   tau^2 and s^2 of each signal
    ``arms``        with rewards, in the order of their ids; empty where no effects were found
    ``revisions``   of the features of each arm, to which its sums belong
    ``n``, ``R``    their sums, float64, signal by signal; ``n`` once where equal for all
    ``base``      0: these are all arms. Else only those which differ from the version with this number, and
                  ``gone`` are its further arms, missing here
    ``chained``   number of arms stored since the last version with all of them
    ``places``    of lists; None: no estimates
    ``ages``      of arms; None: no estimates
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
    places: PlaceFit | None = None
    ages: AgeFit | None = None


@dataclass(frozen=True, eq=False)
class EffectVersion:
    """A version, whose arrays are read-only. Effects are computed from the sums on demand.

    An effect belongs to an arm, also after a change of its features.

    ``record``: all fields besides the arms. Shapes: ``names`` and ``revisions`` (K,); n and R (J, K).
    """

    record: EffectRecord
    names: PackedNames
    revisions: Rows
    n: Matrix
    R: Matrix

    def __post_init__(self) -> None:
        for array in (self.revisions, self.n, self.R):
            array.setflags(write=False)

    @property
    def number(self) -> int:
        return self.record.number

    @property
    def shown_number(self) -> int:
        """The number by which choices name the version: 0 for a version without effects and ages."""
        return self.record.number if self.says_anything else 0

    @property
    def says_anything(self) -> bool:
        """True if an arm, or an age, has an effect."""
        return bool(len(self.names)) or self.has_ages

    @cached_property
    def has_ages(self) -> bool:
        """True if any age adds anything."""
        return self.record.ages is not None and any(self.record.ages.effects)

    @property
    def first_age(self) -> float:
        """What the age of an arm adds that came after the version."""
        return 0.0 if self.record.ages is None else self.record.ages.effects[0]

    @cached_property
    def token_ages(self) -> TokenAges:
        """The ages of arms as tokens have them."""
        ages = self.record.ages
        return NOTHING_ADDED if ages is None else TokenAges(self.record.since_ms, ages.effects)

    def age_effects(self, came_ms: NDArray[np.int64]) -> Vector:
        """What the ages add of arms that came then; 0 where that is not known. Shapes: (n,) -> (n,).

        The age is that by which the version was made, so that all processes serve the same, and a choice can
        be made again. An arm that came since is as new as can be.
        """
        fit = self.record.ages
        if fit is None:
            return np.zeros(len(came_ms))
        effects = np.array(fit.effects)[bins_of(self.record.since_ms - came_ms)]
        return np.where(came_ms > 0, effects, 0.0)

    @property
    def bytes(self) -> int:
        """Its size in memory."""
        return 1_000 + self.names.nbytes + self.revisions.nbytes + self.n.nbytes + self.R.nbytes

    @property
    def effects(self) -> Matrix:
        """The effects of all arms, each signal. Shape: (J, K). Cost: O(J K)."""
        return self.at(slice(None))[0]

    @property
    def deviations(self) -> Matrix:
        """As ``effects``."""
        return self.at(slice(None))[1]

    def at(self, places: Rows | slice) -> tuple[Matrix, Matrix]:
        """Effects and deviations of some arms. Shape: (J, n) each."""
        both = zip(self.n[:, places], self.R[:, places], strict=True)
        fits = map(EffectFit, self.record.variances, self.record.noises)
        estimates = [arm_effects.estimates(*own, fit) for own, fit in zip(both, fits, strict=True)]
        # As tokens have them: the served effects are the ones learned from.
        effects = np.array([own for own, _ in estimates]).astype(np.float32).astype(np.float64)
        return effects, np.array([own for _, own in estimates])

    def of_arms(self, arms: Sequence[str]) -> tuple[Matrix, Matrix]:
        """Effects and deviations of arms; 0 and tau without rewards. Shapes: (J, n)."""
        places = self.names.places_of(arms)
        has_rewards = places >= 0
        effects = np.zeros((len(self.R), len(places)))
        deviations = np.repeat(np.sqrt(self.record.variances)[:, None], len(places), axis=1)
        effects[:, has_rewards], deviations[:, has_rewards] = self.at(places[has_rewards])
        return effects, deviations

    def served(self, arms: Sequence[str], signals: int) -> Matrix:
        """The effects of arms, by each of so many signals. Shapes: -> (n, J)."""
        found, effects = np.zeros((len(arms), signals)), self.of_arms(arms)[0][:signals]
        found[:, : len(effects)] = effects.T
        return found

    def stored(self) -> EffectRecord:
        """The record with all arms. Cost: some hundred bytes for each."""
        return self._stored(list(self.names), slice(None))

    def stored_after(self, before: EffectVersion, changed: Rows) -> EffectRecord:
        """The record with only the arms which differ from the version before, at these places."""
        record = self._stored([self.names[position] for position in changed.tolist()], changed)
        gone, chained = gone_from(before, self), before.record.chained + len(changed)
        return msgspec.structs.replace(record, base=before.number, gone=gone, chained=chained)

    def _stored(self, names: list[str], places: Rows | slice) -> EffectRecord:
        return msgspec.structs.replace(
            self.record,
            arms=names,
            revisions=self.revisions[places].tolist(),
            n=_n_to_bytes(self.n[:, places]),
            R=vector_to_bytes(self.R[:, places].ravel()),
        )


def version_of(record: EffectRecord, before: EffectVersion | None = None) -> EffectVersion:
    """The version of a record: the same bits wherever it is read. ``before``: the version of its ``base``.

    Cost: O(J K), K log K with new arms.
    """
    revisions = np.array(record.revisions, dtype=np.int64)
    n, R = _bytes_to_n(record), bytes_to_vector(record.R).reshape(len(record.variances), -1)
    if before is None:
        names = PackedNames(record.arms)
    else:
        names, revisions, n, R = _changed(before, record, revisions, n, R)
    about = msgspec.structs.replace(record, arms=[], revisions=[], n=b"", R=b"", base=0, gone=[])
    return EffectVersion(about, names, revisions, n, R)


def _changed(
    before: EffectVersion, change: EffectRecord, own_revisions: Rows, own_n: Matrix, own_R: Matrix
) -> tuple[PackedNames, Rows, Matrix, Matrix]:
    """Names, revisions, n and R of a version stored as its difference from the one before."""
    names, revisions, n, R = before.names, before.revisions.copy(), before.n.copy(), before.R.copy()
    places = names.places_of(change.arms)
    former, fresh = np.flatnonzero(places >= 0), np.flatnonzero(places < 0)
    was = places[former]
    revisions[was], n[:, was], R[:, was] = own_revisions[former], own_n[:, former], own_R[:, former]
    if not len(fresh) and not change.gone:
        return names, revisions, n, R
    arms = [*names, *(change.arms[position] for position in fresh.tolist())]
    revisions, gone = np.concatenate((revisions, own_revisions[fresh])), set(change.gone)
    n, R = (np.concatenate(both, axis=1) for both in ((n, own_n[:, fresh]), (R, own_R[:, fresh])))
    order = sorted((k for k in range(len(arms)) if arms[k] not in gone), key=arms.__getitem__)
    return PackedNames([arms[k] for k in order]), revisions[order], n[:, order], R[:, order]


def _n_to_bytes(n: Matrix) -> bytes:
    """Once where they are the same of all signals."""
    return vector_to_bytes((n[:1] if (n == n[:1]).all() else n).ravel())


def _bytes_to_n(record: EffectRecord) -> Matrix:
    """Shape: (J, K)."""
    shape = len(record.variances), len(record.arms)
    n = bytes_to_vector(record.n)
    return np.broadcast_to(n.reshape(-1, shape[1]) if len(n) else n, shape).copy()


def version_of_fit(
    number: int,
    since_ms: int,
    *,
    space: int,
    decisions: int,
    fits: Sequence[EffectFit],
    arms: Sequence[str],
    revisions: Sequence[int],
    n: Matrix,
    R: Matrix,
    places: PlaceFit | None = None,
    ages: AgeFit | None = None,
) -> EffectVersion:
    """The version of a fit; without arms where no signal has effects. Shapes: (J, K)."""
    count = len(arms) if any(fit.variance for fit in fits) else 0
    variances, noises = [fit.variance for fit in fits], [fit.noise for fit in fits]
    record = EffectRecord(number, since_ms, decisions, space, variances, noises, places=places, ages=ages)
    own_revisions = np.array(revisions[:count], dtype=np.int64)
    return EffectVersion(record, PackedNames(arms[:count]), own_revisions, n[:, :count], R[:, :count])


def gone_from(before: EffectVersion, after: EffectVersion) -> list[str]:
    """The arms of the version before which are missing in the later one, in order."""
    return [] if before.names == after.names else sorted(set(before.names) - set(after.names))


def record_to_bytes(record: EffectRecord) -> bytes:
    return msgspec.msgpack.encode(record)


def bytes_to_record(data: bytes) -> EffectRecord:
    return msgspec.msgpack.decode(data, type=EffectRecord)
