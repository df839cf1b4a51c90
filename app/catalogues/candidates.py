"""The candidates of a request: arms of the catalogue, by their ids, and arms of this request alone.

Of either kind it may say numbers of its own, such as a distance (``match`` of the bandit).

They are a small snapshot in memory, which stands where a policy would have that of the catalogue. An arm of
the request costs no memory of the service, and is forgotten with the answer: what is to be learned from it
stands in the token of its decision.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import repeat
from types import MappingProxyType
from typing import Any

import numpy as np

from app.catalogues.arms import Arm, document_of, raw_arms
from app.catalogues.catalogue import Catalogue
from app.engines.proposals import ProposedSnapshot
from app.indexes.snapshot import Snapshot
from app.platform.errors import FieldPath, Invalid
from app.records.encoding import MAX_ERRORS, MatchEncoding, Numbers32, chars_of
from app.records.features import NO_FEATURES, FeatureEncoding, named_in_detail
from app.records.logged_candidates import LoggedCandidates
from app.records.records import bytes_to_vector, vector_to_bytes
from app.storage.followed_arms import FollowedArms
from app.storage.types import OF_REQUEST, StoredArm
from shortlist.index.table import small_table
from shortlist.types import Matrix

MOST_SIZE = 100.0  # of a number of an arm of a request: a larger one would outweigh what many others taught
MOST_CARRIED_BYTES = 48 << 10
MOST_MATCH_CHARS = 65_536  # of all candidates of a request: to hash them takes up to 40 ms
WHERE = "candidates"


@dataclass(frozen=True, slots=True)
class CandidateList:
    """What a request names. ``ids``: of all, each once, in the caller's order.

    ``own``: the arms of this request alone, by id. Their features are float32 numbers, as tokens carry them.
    ``match``: what the request says of arms of either kind, by id, where that is not 0: m numbers each.
    ``match_dim``: m; 0 of a bandit without.
    """

    ids: Sequence[str]
    own: Mapping[str, StoredArm]
    match: Mapping[str, Numbers32] = field(default_factory=dict)
    match_dim: int = 0

    def carried(self, ids: Sequence[str], revisions: Sequence[int]) -> list[bytes] | None:
        """What a token carries of these arms: of those of the request d + m numbers, of others m where the
        request said any. None: nothing.
        """
        if not self.own and not self.match:
            return None
        nothing, carried = np.zeros(self.match_dim, dtype="<f4").tobytes(), list[bytes]()
        for arm_id, revision in zip(ids, revisions, strict=True):
            said = self.match.get(arm_id)
            numbers = b"" if said is None else said.astype("<f4").tobytes()
            if revision == OF_REQUEST:
                numbers = _as_float32(self.own[arm_id].features) + (numbers or nothing)
            carried.append(numbers)
        return carried if any(carried) else None

    def logged(self, *, has_readers: bool) -> LoggedCandidates:
        """What a row keeps of them. ``has_readers``: something reads more of own arms than their features."""
        own = [place for place, arm_id in enumerate(self.ids) if arm_id in self.own] if self.own else []
        arms = [self.own[self.ids[place]] for place in own]
        documents = [arm.document for arm in arms] if has_readers else []
        features = _as_float32(b"".join([arm.features for arm in arms]))
        said = [place for place, arm_id in enumerate(self.ids) if arm_id in self.match] if self.match else []
        match = b"".join([self.match[self.ids[place]].astype("<f4").tobytes() for place in said])
        return LoggedCandidates(list(self.ids), own, features, documents, said, match, self.match_dim)

    @classmethod
    def of_logged(cls, logged: LoggedCandidates) -> CandidateList:
        """Inverse of ``logged``."""
        own = dict[str, StoredArm]()
        if logged.own:
            documents = logged.documents or repeat(b"")
            for place, row, document in zip(logged.own, logged.own_features, documents, strict=False):
                arm_id = logged.ids[place]
                own[arm_id] = StoredArm(arm_id, OF_REQUEST, 0, vector_to_bytes(row), document)
        match = dict[str, Numbers32]()
        if logged.said:
            match = {
                logged.ids[place]: row for place, row in zip(logged.said, logged.said_numbers, strict=True)
            }
        return cls(logged.ids, own, match, logged.match_dim)

    def match_of(self, ids: Sequence[str]) -> Matrix:
        """What the request says of arms, 0 where it says nothing. Shapes: (n,) -> (n, m)."""
        numbers = np.zeros((len(ids), self.match_dim))
        if self.match:
            for position, arm_id in enumerate(ids):
                if (said := self.match.get(arm_id)) is not None:
                    numbers[position] = said
        return numbers

    @property
    def identity(self) -> tuple[Any, ...]:
        """What makes it another list: for the digest of a request."""
        own = sorted((arm.id, arm.features, arm.document) for arm in self.own.values())
        if not self.match:  # else digests stay those of earlier versions
            return list(self.ids), own
        return list(self.ids), own, sorted((arm, said.tobytes()) for arm, said in self.match.items())


def _as_float32(features: bytes) -> bytes:
    return bytes_to_vector(features).astype("<f4").tobytes()


async def candidate_list(
    encoding: FeatureEncoding,
    given: Sequence[str | Arm],
    k: int,
    said: Mapping[int, Mapping[str, object]] = MappingProxyType({}),
    match: MatchEncoding | None = None,
) -> CandidateList:
    """The candidates of a request for ``k`` arms, its own arms encoded as those of the catalogue are.

    ``said``: what the request says of an arm, by its position, encoded by ``match``.
    Raises Invalid, DimensionMismatch: below ``("candidates", the position)``; of ``("k",)`` where the token
    could not carry the numbers of all that are shown.
    """
    own = [(position, arm) for position, arm in enumerate(given) if not isinstance(arm, str)]
    encoded = _encoded_match(said, match)
    _check_carried(encoding.dim, 0 if match is None else match.dim, k, given, encoded)
    arms = await _own_arms(encoding, own)
    ids = [arm if isinstance(arm, str) else arm.id for arm in given]
    numbers = {ids[position]: row for position, row in encoded.items()}
    return CandidateList(ids, arms, numbers, 0 if match is None else match.dim)


def _check_carried(
    dim: int, match_dim: int, k: int, given: Sequence[str | Arm], encoded: Collection[int]
) -> None:
    """Raise Invalid where a token could not carry the numbers of the ``k`` arms that need most of them."""
    if 4 * k * (dim + match_dim) <= MOST_CARRIED_BYTES:
        return
    needs = list[int]()  # how many numbers of each arm
    for position, arm in enumerate(given):
        is_own = not isinstance(arm, str)
        needs.append(dim * is_own + match_dim * (is_own or position in encoded))
    needs.sort(reverse=True)
    most, left = 0, MOST_CARRIED_BYTES // 4
    for numbers in needs[:k]:
        if numbers > left:
            of_both = f"{dim + match_dim:,} numbers (D)" if match_dim else f"{dim:,} numbers (D)"
            of_each = f"{of_both} of each arm of the request that is shown"
            if match_dim:
                of_each += f", and {match_dim} of each that match says something of"
            message = f"k must be at most {most:,}: the token carries {of_each}, 48 kB together"
            raise Invalid(message, path=("k",))
        most, left = most + 1, left - numbers


def _encoded_match(
    said: Mapping[int, Mapping[str, object]], match: MatchEncoding | None
) -> Mapping[int, Numbers32]:
    """The numbers of what a request says of arms, by position, where they are not 0. Raises Invalid."""
    if not said:
        return {}
    if match is None:
        reason = "the bandit has no match: its settings say what a candidate may have"
        raise Invalid(reason, path=(WHERE, next(iter(said)), "match"))
    if match.reads_texts:
        _check_texts(said)
    numbers, errors = np.zeros((len(said), match.dim), dtype=np.float32), list[tuple[FieldPath, str]]()
    for (position, values), row in zip(said.items(), numbers, strict=True):
        where = (WHERE, position, "match")
        errors += match.write_all(values, row, where, "the match of this bandit has no such field")
        if len(errors) >= MAX_ERRORS:
            break
    positions = list(said)
    for place, column in np.argwhere(np.abs(numbers) > MOST_SIZE).tolist()[:MAX_ERRORS]:
        message = f"{match.columns[column]} must be from -{MOST_SIZE:.0f} to {MOST_SIZE:.0f}"
        errors.append(((WHERE, positions[place], "match"), message))
    if errors:
        raise named_in_detail(errors)
    return {positions[place]: numbers[place] for place in np.flatnonzero(numbers.any(axis=1)).tolist()}


def _check_texts(said: Mapping[int, Mapping[str, object]]) -> None:
    """Raise Invalid for texts that take too long to hash."""
    chars = 0
    for position, values in said.items():
        if (chars := chars + sum(map(chars_of, values.values()))) > MOST_MATCH_CHARS:
            message = f"the texts of all matches must have at most {MOST_MATCH_CHARS:,} characters together"
            raise Invalid(message, path=(WHERE, position, "match"))


async def _own_arms(encoding: FeatureEncoding, own: Sequence[tuple[int, Arm]]) -> Mapping[str, StoredArm]:
    """The arms of the request alone, by id, from their positions. Raises Invalid, DimensionMismatch."""
    arms = dict[str, StoredArm]()
    if own:
        raw = np.array([arm.features for arm in await raw_arms(encoding, own, WHERE)], dtype=np.float64)
        features = encoding.features(raw).astype(np.float32).astype(np.float64)
        for position in np.flatnonzero((np.abs(features) > MOST_SIZE).any(axis=1)).tolist():
            at, arm = own[position]
            field = "metadata" if arm.features is NO_FEATURES else "features"
            message = f"numbers of an arm of the request must be from -{MOST_SIZE:.0f} to {MOST_SIZE:.0f}"
            raise Invalid(message, path=(WHERE, at, field))
        data, size = vector_to_bytes(features), 8 * encoding.dim  # at once: in a third of the time
        for start, (_, arm) in zip(range(0, len(data), size), own, strict=True):
            arms[arm.id] = StoredArm(arm.id, OF_REQUEST, 0, data[start : start + size], document_of(arm))
    return arms


class CandidateSnapshot(ProposedSnapshot):
    """The candidates of one request that there are.

    Its features are those of the arms, and after them what the request says of them: (n, d + m).
    """

    __slots__ = ()
    is_whole = True

    @property
    def is_filtered(self) -> bool:
        return True

    @property
    def eligible_count(self) -> int | None:
        return self.size

    @classmethod
    def of_rows(cls, base: Snapshot, given: CandidateList) -> CandidateSnapshot:
        """Those of ``base`` that are named. Cost: a look-up and d + m numbers for each."""
        each, ids = base.table.row_of_each(given.ids), given.ids
        found = np.flatnonzero(each >= 0)
        revisions = base.table.revisions[each[found]]
        order = np.argsort(revisions, kind="stable")
        found = found[order]
        rows, names = each[found], [ids[position] for position in found.tolist()]
        features = base.features_of(rows)
        if given.match_dim:
            features = np.hstack((features, given.match_of(names)))
        table = small_table(names, features, revisions[order])
        return cls(table, partial(base.attributes.of_rows, rows))

    @classmethod
    def of_arms(cls, dim: int, arms: Sequence[StoredArm], given: CandidateList) -> CandidateSnapshot:
        """These arms, which the request brought or the store has."""
        if not given.match_dim:
            return cls.of_stored(dim, arms)
        said = given.match_of([arm.id for arm in arms])
        longer = [
            arm._replace(features=arm.features + vector_to_bytes(row))
            for arm, row in zip(arms, said, strict=True)
        ]
        return cls.of_stored(dim + given.match_dim, longer)


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
            return CandidateSnapshot.of_rows(catalogue.resident.snapshot(), given)
        named = [arm_id for arm_id in given.ids if arm_id not in given.own]
        stored = await self._store.read(catalogue.uid, named)
        arms = {**{arm.id: arm for arm in stored if arm is not None}, **given.own}
        there = [arms[arm_id] for arm_id in given.ids if arm_id in arms]
        return CandidateSnapshot.of_arms(catalogue.dim, there, given)


def candidates_in(base: Snapshot, given: CandidateList) -> CandidateSnapshot:
    """The candidates that there are of a catalogue in memory, ``base``, and what they bring.

    Beside arms that they bring those of the catalogue have no tags nor metadata.
    """
    if not given.own:
        return CandidateSnapshot.of_rows(base, given)
    arms = list[StoredArm]()
    for arm_id, row in zip(given.ids, base.table.row_of_each(given.ids).tolist(), strict=True):
        if arm_id in given.own:
            arms.append(given.own[arm_id])
        elif row >= 0:
            features = vector_to_bytes(base.table.features[row])
            arms.append(StoredArm(arm_id, base.revision_of(row), 0, features))
    return CandidateSnapshot.of_arms(base.table.dim, arms, given)
