"""The candidates of a request: arms of the catalogue, by their ids, and arms of this request alone.

They are a small snapshot in memory, which stands where a policy would have that of the catalogue. An arm of
the request costs no memory of the service, and is forgotten with the answer: what is to be learned from it
stands in the token of its decision.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from typing import Any

import numpy as np

from app.catalogues.arms import Arm, document_of, raw_arm
from app.catalogues.catalogue import Catalogue
from app.engines.proposals import ProposedSnapshot
from app.indexes.snapshot import Snapshot
from app.platform.errors import DimensionMismatch, FieldPath, Invalid
from app.records.encoding import MAX_ERRORS
from app.records.features import NO_FEATURES, FeatureEncoding, named_in_detail
from app.records.logged_candidates import LoggedCandidates
from app.records.records import bytes_to_vector, vector_to_bytes
from app.storage.followed_arms import FollowedArms
from app.storage.types import OF_REQUEST, StoredArm
from shortlist.index.table import small_table

MOST_SIZE = 100.0  # of a number of an arm of a request: a larger one would outweigh what many others taught
MOST_CARRIED_BYTES = 48 << 10
WHERE = "candidates"


@dataclass(frozen=True, slots=True)
class CandidateList:
    """What a request names. ``ids``: of all, each once, in the caller's order.

    ``own``: the arms of this request alone, by id. Their features are float32 numbers, as tokens carry them.
    """

    ids: Sequence[str]
    own: Mapping[str, StoredArm]

    def carried(self, ids: Sequence[str], revisions: Sequence[int]) -> list[bytes] | None:
        """What a token carries of these arms: the features of those of the request. None: nothing."""
        if not self.own:
            return None
        carried = [
            _as_float32(self.own[arm_id].features) if revision == OF_REQUEST else b""
            for arm_id, revision in zip(ids, revisions, strict=True)
        ]
        return carried if any(carried) else None

    def logged(self, *, has_readers: bool) -> LoggedCandidates:
        """What a row keeps of them. ``has_readers``: something reads more of own arms than their features."""
        own = [place for place, arm_id in enumerate(self.ids) if arm_id in self.own] if self.own else []
        arms = [self.own[self.ids[place]] for place in own]
        documents = [arm.document for arm in arms] if has_readers else []
        features = _as_float32(b"".join([arm.features for arm in arms]))
        return LoggedCandidates(list(self.ids), own, features, documents)

    @classmethod
    def of_logged(cls, logged: LoggedCandidates) -> CandidateList:
        """Inverse of ``logged``."""
        own = dict[str, StoredArm]()
        if logged.own:
            documents = logged.documents or repeat(b"")
            for place, row, document in zip(logged.own, logged.own_features, documents, strict=False):
                arm_id = logged.ids[place]
                own[arm_id] = StoredArm(arm_id, OF_REQUEST, 0, vector_to_bytes(row), document)
        return cls(logged.ids, own)

    @property
    def identity(self) -> tuple[Any, ...]:
        """What makes it another list: for the digest of a request."""
        return list(self.ids), sorted((arm.id, arm.features, arm.document) for arm in self.own.values())


def _as_float32(features: bytes) -> bytes:
    return bytes_to_vector(features).astype("<f4").tobytes()


def candidate_list(encoding: FeatureEncoding, given: Sequence[str | Arm], k: int) -> CandidateList:
    """The candidates of a request for ``k`` arms, its own arms encoded as those of the catalogue are.

    Raises Invalid, DimensionMismatch: below ``("candidates", the position)``; of ``("k",)`` where the token
    could not carry the numbers of all that are shown.
    """
    own = [(position, arm) for position, arm in enumerate(given) if not isinstance(arm, str)]
    most = MOST_CARRIED_BYTES // (4 * encoding.dim)
    if min(k, len(own)) > most:
        numbers = f"{encoding.dim:,} numbers (D) of each arm of the request that is shown"
        raise Invalid(f"k must be at most {most:,}: the token carries {numbers}, 48 kB together", path=("k",))
    raw, errors = list[Any](), list[tuple[FieldPath, str]]()
    for position, arm in own:
        try:
            raw.append(raw_arm(encoding, arm, (WHERE, position)).features)
        except DimensionMismatch:
            raise
        except Invalid as error:
            errors += error.errors
            if len(errors) >= MAX_ERRORS:
                break
    if errors:
        raise named_in_detail(errors)
    arms = dict[str, StoredArm]()
    if own:
        features = encoding.features(np.array(raw, dtype=np.float64)).astype(np.float32).astype(np.float64)
        for position in np.flatnonzero((np.abs(features) > MOST_SIZE).any(axis=1)).tolist():
            at, arm = own[position]
            field = "metadata" if arm.features is NO_FEATURES else "features"
            message = f"numbers of an arm of the request must be from -{MOST_SIZE:.0f} to {MOST_SIZE:.0f}"
            raise Invalid(message, path=(WHERE, at, field))
        for (_, arm), row in zip(own, features, strict=True):
            arms[arm.id] = StoredArm(arm.id, OF_REQUEST, 0, vector_to_bytes(row), document_of(arm))
    return CandidateList([arm if isinstance(arm, str) else arm.id for arm in given], arms)


class CandidateSnapshot(ProposedSnapshot):
    """The candidates of one request that there are."""

    __slots__ = ()
    is_whole = True

    @property
    def is_filtered(self) -> bool:
        return True

    @property
    def eligible_count(self) -> int | None:
        return self.size

    @classmethod
    def of_rows(cls, base: Snapshot, ids: Sequence[str]) -> CandidateSnapshot:
        """Those of ``base`` with these ids. Cost: a look-up and d numbers for each."""
        each = base.table.row_of_each(ids)
        found = np.flatnonzero(each >= 0)
        rows = each[found]
        order = np.argsort(base.table.revisions[rows], kind="stable")
        rows, names = rows[order], [ids[position] for position in found[order].tolist()]
        table = small_table(names, base.features_of(rows), base.table.revisions[rows])
        return cls(table, partial(base.attributes.taken, rows))


class CandidateArms:
    """Finds the candidates of requests. ``store``: where arms with their documents are read."""

    def __init__(self, store: FollowedArms) -> None:
        self._store = store

    async def of(self, catalogue: Catalogue, given: CandidateList) -> CandidateSnapshot:
        """The snapshot of those that there are.

        Awaits nothing for ids alone whose catalogue is in memory, nor for arms of the request alone; else a
        read of the store. Raises Unavailable.
        """
        if catalogue.resident is not None and not given.own:
            return CandidateSnapshot.of_rows(catalogue.resident.snapshot(), given.ids)
        named = [arm_id for arm_id in given.ids if arm_id not in given.own]
        stored = await self._store.read(catalogue.uid, named)
        arms = {**{arm.id: arm for arm in stored if arm is not None}, **given.own}
        return CandidateSnapshot.of_stored(
            catalogue.dim, [arms[arm_id] for arm_id in given.ids if arm_id in arms]
        )
