"""Spaces: the meanings of learners' numbers, from one move of a bandit to another catalogue to the next.

A move raises the number of the bandit's space. States, entries of the reward log and versions say which space
they are of, 0 where they say nothing. Of each move a record is kept with the bandit: ``SpaceMap`` is its
effect on states and features. The fold carries a learner where the log has the entry of the move.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

import msgspec

from app.platform.cache import BoundedCache
from app.platform.errors import Unavailable
from app.records.records import LearnerState, bytes_to_vector
from app.storage.moves import MoveStore
from shortlist.linear.feature_map import carried_each
from shortlist.types import Matrix

KEPT_BYTES = 1 << 30  # of moves, in memory: as many as the store keeps by default, for each fold needs them
MOVE_BYTES = 4_000  # that a move takes besides its map

Carry = Literal["map", "none"]
Maps: TypeAlias = "Mapping[str, Mapping[int, SpaceMap]]"
"""By the uid of a bandit, and number."""


class BanditMoved(Unavailable):
    """This process has not heard of a move yet. Whoever has the bandit again goes on."""

    def __init__(self) -> None:
        super().__init__("the bandit has just been moved to another catalogue; safe to try again")


class MoveRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """A move: the space ``number - 1`` ended with it.

    ``left``, ``left_uid``, ``left_dim``, ``joined``, ``joined_uid``   the catalogues
    ``version``    the version of the bandit made by the move
    ``answer``     the answer to the caller, but for the version
    ``residual``   R, likewise (d' rows, d' columns); b"": 0
    ``transform``  T of ``shortlist.linear.feature_map``, float64 row by row; b"": nothing is carried
    ``history``    the mapped prior of the history with which the bandit began, where the catalogue has none
                   (``app.bandits.history_prior``); b"": there is none
    """

    number: int
    carry: Carry
    left: str
    left_uid: str
    left_dim: int
    joined: str
    joined_uid: str
    moved_ms: int
    version: int
    answer: dict[str, Any]
    transform: bytes = b""
    dim: int = 0
    residual: bytes = b""
    history: bytes = b""


@dataclass(frozen=True)
class SpaceMap:
    """The map of states by a move. ``transform``: T (D', D); None: nothing is carried.

    ``residual``: R (d', d'), None: 0; ``left_dim``: d.
    """

    number: int
    transform: Matrix | None
    residual: Matrix | None = None
    left_dim: int = 0

    @classmethod
    def of(cls, record: MoveRecord) -> SpaceMap:
        if record.carry == "none":
            return cls(record.number, None)
        residual = bytes_to_vector(record.residual) if record.residual else None
        if residual is not None:
            residual = residual.reshape(math.isqrt(len(residual)), -1)
        transform = bytes_to_vector(record.transform).reshape(record.dim, -1)
        return cls(record.number, transform, residual, record.left_dim)

    @property
    def bytes(self) -> int:
        """Size of its matrices."""
        return sum(matrix.nbytes for matrix in (self.transform, self.residual) if matrix is not None)

    def states(self, states: Sequence[LearnerState]) -> list[LearnerState | None]:
        """The states of learners of a bandit after the move. Raises InvalidShape, NonFinite."""
        if self.transform is None or not states:
            return [None] * len(states)
        sums = [state.sums for state in states]
        carried = carried_each(sums, self.transform, self.residual, self.left_dim)
        return [
            replace(state, sums=moved, space=self.number)
            for state, moved in zip(states, carried, strict=True)
        ]


@dataclass(frozen=True, slots=True)
class Spaces:
    """The moves needed by a fold. ``folded``: by uid, the last move before the entries to fold."""

    folded: Mapping[str, int] = field(default_factory=dict)
    maps: Maps = field(default_factory=dict)

    def carried(self, uid: str, state: LearnerState | None, to: int) -> LearnerState | None:
        """The state in a later space. Raises KeyError (the move is not known here), InvalidShape."""
        return self.carried_each(uid, [state], to)[0]

    def carried_each(
        self, uid: str, states: Sequence[LearnerState | None], to: int
    ) -> Sequence[LearnerState | None]:
        """The states of learners of a bandit in a later space, as ``carried`` has each, to the bit.

        Several times as fast. Raises as ``carried``, for any of them.
        """
        carried = list(states)
        first = min((state.space for state in carried if state is not None), default=to)
        for number in range(first + 1, to + 1):
            due = [
                (position, learner_state)
                for position, learner_state in enumerate(carried)
                if learner_state and learner_state.space == number - 1
            ]
            later = self.maps[uid][number].states([learner_state for _, learner_state in due])
            for (position, _), state in zip(due, later, strict=True):
                carried[position] = state
        return carried


class Moves:
    """The moves of bandits, as they are stored; those used last are kept in memory."""

    def __init__(self, store: MoveStore, *, kept_bytes: int = KEPT_BYTES) -> None:
        self._store = store
        self._kept: BoundedCache[str, Mapping[int, tuple[MoveRecord, SpaceMap]]] = BoundedCache(kept_bytes)

    async def of(self, uid: str, last: int) -> Mapping[int, MoveRecord]:
        """The moves of a bandit by number, up to ``last`` if there are as many. Raises Unavailable."""
        return {number: record for number, (record, _) in (await self._read(uid, last)).items()}

    async def maps(self, wanted: Mapping[str, int]) -> Maps:
        """The maps of bandits, up to these moves. Raises Unavailable."""
        moves = {uid: await self._read(uid, last) for uid, last in wanted.items()}
        return {uid: {number: pair[1] for number, pair in pairs.items()} for uid, pairs in moves.items()}

    async def _read(self, uid: str, last: int) -> Mapping[int, tuple[MoveRecord, SpaceMap]]:
        moves = self._kept.get(uid) or {}
        # Moves have no gaps, so a count says whether the last one is known.
        while len(moves) < last:
            stored = await self._store.record(uid, len(moves) + 1)
            if stored is None:
                break
            record = msgspec.msgpack.decode(stored, type=MoveRecord)
            moves = {**moves, len(moves) + 1: (record, SpaceMap.of(record))}
            self._kept.put(uid, moves, sum(MOVE_BYTES + space_map.bytes for _, space_map in moves.values()))
        return moves

    async def spaces(self, uid: str, last: int) -> Spaces:
        """The map which carries states of one bandit up to this move. Raises Unavailable."""
        return Spaces(maps=await self.maps({uid: last}))

    async def carried(self, uid: str, state: LearnerState | None, to: int) -> LearnerState | None:
        """The state of a learner of a bandit in a later space. Raises Unavailable."""
        if state is None or state.space >= to:
            return state
        return (await self.spaces(uid, to)).carried(uid, state, to)


def move_to_bytes(record: MoveRecord) -> bytes:
    return msgspec.msgpack.encode(record)
