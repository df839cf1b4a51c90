"""The candidates of a request: arms of the catalogue, by their ids, and arms of this request alone.

For either kind the request may say numbers of its own, such as a distance (``match`` of the bandit).

They are a small snapshot in memory, in the place of the catalogue's snapshot. An arm of the request costs no
memory of the service, and is forgotten with the answer: its features, for learning, are in the token of the
decision.
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
    """The candidates of a request. ``ids``: of all, each once, in the caller's order.

    ``request_arms``: the arms of this request alone, by id. Their features are float32 numbers, as tokens
    carry them. ``match``: the request's numbers of arms of either kind, by id, unless 0: m numbers each.
    ``match_dim``: m; 0 of a bandit without.
    """

    ids: Sequence[str]
    request_arms: Mapping[str, StoredArm]
    match: Mapping[str, Numbers32] = field(default_factory=dict)
    match_dim: int = 0

    def carried(self, ids: Sequence[str], revisions: Sequence[int]) -> list[bytes] | None:
        """The token's numbers of these arms: d + m of an arm of the request, m of others if the request
        said any. None: no numbers.
        """
        if not self.request_arms and not self.match:
            return None
        nothing, carried = np.zeros(self.match_dim, dtype="<f4").tobytes(), list[bytes]()
        for arm_id, revision in zip(ids, revisions, strict=True):
            match = self.match.get(arm_id)
            numbers = b"" if match is None else match.astype("<f4").tobytes()
            if revision == OF_REQUEST:
                numbers = _as_float32(self.request_arms[arm_id].features) + (numbers or nothing)
            carried.append(numbers)
        return carried if any(carried) else None

    def logged(self, *, has_readers: bool) -> LoggedCandidates:
        """The row's record of the candidates. ``has_readers``: documents are needed too, not only
        features.
        """
        of_request = self._positions_in(self.request_arms)
        arms = [self.request_arms[self.ids[position]] for position in of_request]
        documents = [arm.document for arm in arms] if has_readers else []
        features = _as_float32(b"".join([arm.features for arm in arms]))
        with_match = self._positions_in(self.match)
        match = b"".join([self.match[self.ids[position]].astype("<f4").tobytes() for position in with_match])
        ids, m = list(self.ids), self.match_dim
        return LoggedCandidates(ids, of_request, features, documents, with_match, match, m)

    @classmethod
    def of_logged(cls, logged: LoggedCandidates) -> CandidateList:
        """Inverse of ``logged``."""
        request_arms = dict[str, StoredArm]()
        if logged.own:
            documents = logged.documents or repeat(b"")
            for position, row, document in zip(logged.own, logged.own_features, documents, strict=False):
                arm_id = logged.ids[position]
                request_arms[arm_id] = StoredArm(arm_id, OF_REQUEST, 0, vector_to_bytes(row), document)
        match = dict[str, Numbers32]()
        if logged.said:
            match = {
                logged.ids[position]: row
                for position, row in zip(logged.said, logged.said_numbers, strict=True)
            }
        return cls(logged.ids, request_arms, match, logged.match_dim)

    def _positions_in(self, mapping: Mapping[str, object]) -> list[int]:
        """The positions of the ids which the mapping has."""
        return [position for position, arm_id in enumerate(self.ids) if arm_id in mapping] if mapping else []

    def match_of(self, ids: Sequence[str]) -> Matrix:
        """The request's numbers of arms, 0 where absent. Shapes: (n,) -> (n, m)."""
        numbers = np.zeros((len(ids), self.match_dim))
        if self.match:
            for position, arm_id in enumerate(ids):
                if (values := self.match.get(arm_id)) is not None:
                    numbers[position] = values
        return numbers

    @property
    def identity(self) -> tuple[Any, ...]:
        """The parts by which lists differ: for the digest of a request."""
        request_arms = sorted((arm.id, arm.features, arm.document) for arm in self.request_arms.values())
        if not self.match:  # else digests stay those of earlier versions
            return list(self.ids), request_arms
        return (
            list(self.ids),
            request_arms,
            sorted((arm, numbers.tobytes()) for arm, numbers in self.match.items()),
        )


def _as_float32(features: bytes) -> bytes:
    return bytes_to_vector(features).astype("<f4").tobytes()


async def candidate_list(
    encoding: FeatureEncoding,
    candidates: Sequence[str | Arm],
    k: int,
    match_values: Mapping[int, Mapping[str, object]] = MappingProxyType({}),
    match: MatchEncoding | None = None,
) -> CandidateList:
    """The candidates of a request for ``k`` arms, its own arms encoded as those of the catalogue are.

    ``match_values``: the request's values for an arm, by its position, encoded by ``match``.
    Raises Invalid, DimensionMismatch: below ``("candidates", the position)``; of ``("k",)`` where the token
    could not carry the numbers of all shown arms.
    """
    request_arms = [(position, arm) for position, arm in enumerate(candidates) if not isinstance(arm, str)]
    encoded = _encoded_match(match_values, match)
    _check_carried(encoding.dim, 0 if match is None else match.dim, k, candidates, encoded)
    arms = await _own_arms(encoding, request_arms)
    ids = [arm if isinstance(arm, str) else arm.id for arm in candidates]
    numbers = {ids[position]: row for position, row in encoded.items()}
    return CandidateList(ids, arms, numbers, 0 if match is None else match.dim)


def _check_carried(
    dim: int, match_dim: int, k: int, candidates: Sequence[str | Arm], encoded: Collection[int]
) -> None:
    """Raise Invalid where a token could not carry the numbers of ``k`` arms, those with most of them."""
    if 4 * k * (dim + match_dim) <= MOST_CARRIED_BYTES:
        return
    needs = list[int]()  # how many numbers of each arm
    for position, arm in enumerate(candidates):
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
    match_values: Mapping[int, Mapping[str, object]], match: MatchEncoding | None
) -> Mapping[int, Numbers32]:
    """The numbers of what a request says of arms, by position, where they are not 0. Raises Invalid."""
    if not match_values:
        return {}
    if match is None:
        reason = "the bandit has no match: its settings say what a candidate may have"
        raise Invalid(reason, path=(WHERE, next(iter(match_values)), "match"))
    if match.reads_texts:
        _check_texts(match_values)
    numbers, errors = (
        np.zeros((len(match_values), match.dim), dtype=np.float32),
        list[tuple[FieldPath, str]](),
    )
    for (position, values), row in zip(match_values.items(), numbers, strict=True):
        where = (WHERE, position, "match")
        errors += match.write_all(values, row, where, "the match of this bandit has no such field")
        if len(errors) >= MAX_ERRORS:
            break
    positions = list(match_values)
    for row_number, column in np.argwhere(np.abs(numbers) > MOST_SIZE).tolist()[:MAX_ERRORS]:
        message = f"{match.columns[column]} must be from -{MOST_SIZE:.0f} to {MOST_SIZE:.0f}"
        errors.append(((WHERE, positions[row_number], "match"), message))
    if errors:
        raise named_in_detail(errors)
    filled = np.flatnonzero(numbers.any(axis=1)).tolist()
    return {positions[row_number]: numbers[row_number] for row_number in filled}


def _check_texts(match_values: Mapping[int, Mapping[str, object]]) -> None:
    """Raise Invalid for texts which take too long to hash."""
    chars = 0
    for position, values in match_values.items():
        if (chars := chars + sum(map(chars_of, values.values()))) > MOST_MATCH_CHARS:
            message = f"the texts of all matches must have at most {MOST_MATCH_CHARS:,} characters together"
            raise Invalid(message, path=(WHERE, position, "match"))


async def _own_arms(
    encoding: FeatureEncoding, request_arms: Sequence[tuple[int, Arm]]
) -> Mapping[str, StoredArm]:
    """The arms of the request alone, by id, from their positions. Raises Invalid, DimensionMismatch."""
    arms = dict[str, StoredArm]()
    if request_arms:
        raw = np.array(
            [arm.features for arm in await raw_arms(encoding, request_arms, WHERE)], dtype=np.float64
        )
        features = encoding.features(raw).astype(np.float32).astype(np.float64)
        for position in np.flatnonzero((np.abs(features) > MOST_SIZE).any(axis=1)).tolist():
            at, arm = request_arms[position]
            field = "metadata" if arm.features is NO_FEATURES else "features"
            message = f"numbers of an arm of the request must be from -{MOST_SIZE:.0f} to {MOST_SIZE:.0f}"
            raise Invalid(message, path=(WHERE, at, field))
        data, size = vector_to_bytes(features), 8 * encoding.dim  # at once: in a third of the time
        for start, (_, arm) in zip(range(0, len(data), size), request_arms, strict=True):
            arms[arm.id] = StoredArm(arm.id, OF_REQUEST, 0, data[start : start + size], document_of(arm))
    return arms


class CandidateSnapshot(ProposedSnapshot):
    """The existing candidates of one request.

    Its features are the arms' own, and after them the request's numbers: (n, d + m).
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
    def of_rows(cls, base: Snapshot, candidates: CandidateList) -> CandidateSnapshot:
        """The candidates among the arms of ``base``. Cost: a look-up and d + m numbers for each."""
        rows_of_ids, ids = base.table.row_of_each(candidates.ids), candidates.ids
        positions = np.flatnonzero(rows_of_ids >= 0)
        revisions = base.table.revisions[rows_of_ids[positions]]
        order = np.argsort(revisions, kind="stable")
        positions = positions[order]
        rows, names = rows_of_ids[positions], [ids[position] for position in positions.tolist()]
        features = base.features_of(rows)
        if candidates.match_dim:
            features = np.hstack((features, candidates.match_of(names)))
        table = small_table(names, features, revisions[order], base.table.came[rows])
        return cls(table, partial(base.attributes.of_rows, rows))

    @classmethod
    def of_arms(cls, dim: int, arms: Sequence[StoredArm], candidates: CandidateList) -> CandidateSnapshot:
        """These arms, which the request brought or the store has."""
        if not candidates.match_dim:
            return cls.of_stored(dim, arms)
        match = candidates.match_of([arm.id for arm in arms])
        longer = [
            arm._replace(features=arm.features + vector_to_bytes(row))
            for arm, row in zip(arms, match, strict=True)
        ]
        return cls.of_stored(dim + candidates.match_dim, longer)


class CandidateArms:
    """Finds the candidates of requests. ``store``: where arms with their documents are read."""

    def __init__(self, store: FollowedArms) -> None:
        self._store = store

    async def of(self, catalogue: Catalogue, candidates: CandidateList) -> CandidateSnapshot:
        """The snapshot of the existing candidates.

        Awaits nothing for ids alone whose catalogue is in memory, nor for arms of the request alone; else a
        read of the store. Raises Unavailable.
        """
        if catalogue.resident is not None and not candidates.request_arms:
            return CandidateSnapshot.of_rows(catalogue.resident.snapshot(), candidates)
        named = [arm_id for arm_id in candidates.ids if arm_id not in candidates.request_arms]
        stored = await self._store.read(catalogue.uid, named)
        arms = {**{arm.id: arm for arm in stored if arm is not None}, **candidates.request_arms}
        existing = [arms[arm_id] for arm_id in candidates.ids if arm_id in arms]
        return CandidateSnapshot.of_arms(catalogue.dim, existing, candidates)


def candidates_in(base: Snapshot, candidates: CandidateList) -> CandidateSnapshot:
    """The existing candidates of a catalogue in memory, ``base``, and the arms of the request.

    Beside arms of the request, arms of the catalogue have neither tags nor metadata.
    """
    if not candidates.request_arms:
        return CandidateSnapshot.of_rows(base, candidates)
    arms = list[StoredArm]()
    for arm_id, row in zip(candidates.ids, base.table.row_of_each(candidates.ids).tolist(), strict=True):
        if arm_id in candidates.request_arms:
            arms.append(candidates.request_arms[arm_id])
        elif row >= 0:
            features = vector_to_bytes(base.table.features[row])
            came_ms = base.table.came.item(row)
            arms.append(StoredArm(arm_id, base.revision_of(row), came_ms, features))
    return CandidateSnapshot.of_arms(base.table.dim, arms, candidates)
