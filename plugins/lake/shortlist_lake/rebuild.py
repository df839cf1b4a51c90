"""Rebuilds the learners of a bandit from its lake: in one process, or as a map and a reduce on any cluster.

    plan = plan_of(Lake(address))                                   # small: arms, and who was forgotten
    parts = [mapped(plan, rewards) for rewards in ...]              # anywhere, of any cut of the rewards
    learners = finished(plan, functools.reduce(merged_parts, parts))

A learner is made of sums over its rewards (``ridge_sums``), so parts of them add up in any order, wherever
the rewards are cut. ``mapped`` and ``merged_parts`` are pure, and all their arguments and results can be
pickled. If the lake has all rewards, the learners are those of the service up to rounding, which is below
1e-9 of the largest entry.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from shortlist.linear import bilinear
from shortlist.types import Matrix, Rows, Vector
from shortlist_lake.files import Lake
from shortlist_service.errors import ShortlistError
from shortlist_service.learners import (
    GLOBAL_LEARNER,
    LearnerState,
    RewardRows,
    SpaceMap,
    Spaces,
    bytes_to_state,
    merged,
    state_of,
)

COLUMNS = (
    "partition", "number", "kind", "key", "revision", "value", "decided", "first", "before", "replaces",
    "context", "features", "examined", "signal_number", "had", "space", "effect", "weight",
)  # fmt: skip
BATCH_SIZE = 100_000  # rewards, in one process
MOST_NUMBERS = 1 << 24  # of features that are held at once


@dataclass(frozen=True)
class RebuildPlan:
    """The needs of each part besides its rewards.

    ``revisions``    ascending, with their ``features``. Shapes: (n,), (n, d)
    ``directions``   the ones which interact with a context. Shape: (p, d), None: all
    ``constant``     of the intercept; None: there is none
    ``match``        number of numbers before it, 0 where a reward does not bring its features
    ``forgotten``    of each forgotten learner, the number of the last forgetting entry
    ``states``       of each restored learner, the numbers and bytes of its states, in the order of the log
    ``left_out``     partition and number of dead letters replayed later
    ``space``        number of the bandit's last move; 0: none
    ``maps``         the map of each move, by its number
    """

    revisions: NDArray[np.int64]
    features: Matrix
    contexts: int | None
    directions: Matrix | None
    half_life_s: float
    arm_half_life_s: float
    constant: float | None
    forgotten: Mapping[str, int]
    states: Mapping[str, list[tuple[int, bytes]]]
    left_out: frozenset[tuple[int, int]]
    space: int = 0
    maps: Mapping[int, SpaceMap] = field(default_factory=dict)
    match: int = 0


@dataclass(frozen=True)
class LearnedPart:
    """The learners' states from some rewards, and the least number of the rewards of each. Both are by key
    and the number of the move before, for a learner's rewards in one catalogue.
    """

    states: dict[tuple[str, int], LearnerState] = field(default_factory=dict)
    begins: dict[tuple[str, int], int] = field(default_factory=dict)


def plan_of(lake: Lake) -> RebuildPlan:
    """Read what all parts share. Cost: the arms of the lake, and one column of its rewards.

    Raises ShortlistError: a move corrected learners, as moves of 2.0.0 did.
    """
    terms, forgotten, states = lake.manifest["terms"], dict[str, int](), dict[str, list[tuple[int, bytes]]]()
    left_out = set[tuple[int, int]]()
    for name in lake.files("rewards"):
        columns = ["partition", "number", "kind", "key", "replayed", "state"]
        for batch in lake.batches(name, 1 << 16, columns):
            odd = pc.or_(
                pc.is_in(batch["kind"], pa.array(["forget", "state", "move"])), pc.is_valid(batch["replayed"])
            )
            for row in batch.filter(odd).to_pylist():
                key = GLOBAL_LEARNER if row["key"] is None else row["key"]
                if row["replayed"] is not None:
                    left_out.add((row["partition"], row["replayed"]))
                if row["kind"] == "forget":
                    forgotten[key] = max(row["number"], forgotten.get(key, 0))
                elif row["kind"] == "move" and row["state"] is not None:
                    raise ShortlistError("the lake has a move that corrected learners: rebuild it by 2.0.0")
                elif row["state"] is not None:
                    states.setdefault(key, []).append((row["number"], row["state"]))
    revisions, features = _arms(lake, terms["features"])
    directions = terms["directions"]
    return RebuildPlan(
        revisions=revisions,
        features=features,
        contexts=terms["context"],
        directions=None if directions is None else np.array(directions, dtype=np.float64),
        half_life_s=terms["half_life_s"] or 0.0,
        arm_half_life_s=terms.get("arm_half_life_s", terms["half_life_s"]) or 0.0,
        constant=terms.get("constant"),
        forgotten=forgotten,
        states={key: sorted(states_of_key) for key, states_of_key in states.items()},
        left_out=frozenset(left_out),
        space=terms.get("space", 0),
        maps={move["space"]: _map_of(move) for move in terms.get("moves", ())},
        match=terms.get("match", 0),
    )


def mapped(plan: RebuildPlan, rewards: Any) -> LearnedPart:
    """The learners' states from these rewards and no others.

    ``rewards``: an Arrow table or record batch with ``COLUMNS``: any rows of the table ``rewards``, in any
    order. Cost: D^2 multiply-adds for each. Raises ShortlistError: a reward of an arm missing in the lake.
    """
    rows = rewards.select(list(COLUMNS))
    rows = pa.Table.from_batches([rows]) if isinstance(rows, pa.RecordBatch) else rows.combine_chunks()
    rows = rows.filter(counted(plan, rows))
    dim = plan.features.shape[1] * (1 + (plan.contexts or 0))
    step, parts, spaces = max(1, MOST_NUMBERS // max(1, dim)), list[LearnedPart](), rows["space"].fill_null(0)
    for space in pc.unique(spaces).to_pylist():
        of_space = rows.filter(pc.equal(spaces, space))
        parts += [
            _mapped(plan, of_space.slice(start, step), space) for start in range(0, of_space.num_rows, step)
        ]
    return reduce(merged_parts, parts, LearnedPart())


def merged_parts(one: LearnedPart, other: LearnedPart) -> LearnedPart:
    """The learners' states from the rewards of both. Cost: D^2 for each learner of the smaller part."""
    # The smaller part is added to the larger: to reduce many parts copies each learner O(log parts) times.
    if len(one.states) < len(other.states):
        one, other = other, one
    states, begins = dict(one.states), dict(one.begins)
    for key, state in other.states.items():
        states[key] = merged(states.get(key), state)
        begins[key] = min(begins.get(key, other.begins[key]), other.begins[key])
    return LearnedPart(states, begins)


def finished(plan: RebuildPlan, part: LearnedPart) -> Mapping[str, LearnerState]:
    """The learners, by their keys; the key of a bandit of scope ``global`` is ``_global``.

    A state given to a learner counts if the learner had no rewards then, as in the service.
    """
    result, begins = dict[str, LearnerState](), dict[str, int]()
    spaces = Spaces({}, {"": plan.maps})

    def add(key: str, state: LearnerState) -> bool:
        """Add a state; return whether a part of it was carried to the present catalogue."""
        if (carried := spaces.carried("", state, plan.space)) is not None:
            result[key] = merged(result.get(key), carried)
        return carried is not None

    for (key, space), state in part.states.items():
        if add(key, state):
            number = part.begins[key, space]
            begins[key] = min(begins.get(key, number), number)
    for key, states_of_key in plan.states.items():
        since = plan.forgotten.get(key, 0)
        number, data = next(((n, data) for n, data in states_of_key if n > since), (0, b""))
        # As the fold does: a state counts only for a learner without rewards then.
        if data and begins.get(key, number + 1) > number:
            add(key, bytes_to_state(data))
    return result


def rebuilt(lake: Lake) -> Mapping[str, LearnerState]:
    """The learners of a lake, in this process. Raises ShortlistError."""
    plan, part = plan_of(lake), LearnedPart()
    for name in lake.files("rewards"):
        for batch in lake.batches(name, BATCH_SIZE, COLUMNS):
            part = merged_parts(part, mapped(plan, batch))
    return finished(plan, part)


def _arms(lake: Lake, dim: int) -> tuple[NDArray[np.int64], Matrix]:
    revisions, features = [np.zeros(0, dtype=np.int64)], [np.zeros((0, dim))]
    for name in lake.files("arms"):
        for batch in lake.batches(name, 1 << 16, ["revision", "features"]):
            revisions.append(batch["revision"].to_numpy())
            features.append(_lists(batch["features"], np.float64, dim))
    # Sorted: rewards find the revision of their arm by ``searchsorted``.
    distinct, first = np.unique(np.concatenate(revisions), return_index=True)
    return distinct, np.concatenate(features)[first]


def counted(plan: RebuildPlan, rows: Any) -> Any:
    """A mask of the rewards still known to their learners. Shape: (n,)."""
    counted = (
        ~np.isin(rows["kind"].to_pylist(), ("forget", "state", "move"))
        if rows.num_rows
        else np.zeros(0, bool)
    )
    if plan.forgotten or plan.left_out:
        numbers = rows["number"].to_numpy()
    if plan.forgotten:
        since = {None if key == GLOBAL_LEARNER else key: number for key, number in plan.forgotten.items()}
        counted &= numbers > np.array([since.get(key, 0) for key in rows["key"].to_pylist()], dtype=np.int64)
    if plan.left_out:
        places = zip(rows["partition"].to_pylist(), numbers.tolist(), strict=True)
        counted &= ~np.array([position in plan.left_out for position in places], dtype=bool)
    return pa.array(counted)


def _mapped(plan: RebuildPlan, rows: Any, space: int) -> LearnedPart:
    """The states from rewards of one space."""
    keys = rows["key"].combine_chunks().fill_null(GLOBAL_LEARNER).dictionary_encode()
    owners, names = keys.indices.to_numpy(), keys.dictionary.to_pylist()
    order = np.argsort(owners, kind="stable")
    ends = np.cumsum(np.bincount(owners, minlength=len(names)))
    learned = _Learned.of(plan, rows, space)
    numbers, part, start = rows["number"].to_numpy(), LearnedPart(), 0
    for name, end in zip(names, ends.tolist(), strict=True):
        of_key = order[start:end]
        part.states[name, space] = learned.state(of_key, plan, space)
        part.begins[name, space] = int(numbers[of_key].min())
        start = end
    return part


@dataclass(frozen=True)
class _Learned:
    """Rewards as ``fold`` learns them. Shapes: features (n, D), earlier and served (n, J), the others (n,).

    ``replaces``  the value replaced by a reward; not a number: none
    ``signal``    its number, 0 without signals; -1: all
    ``earlier``   the values of the signals before; ``named``: how many are named
    ``served``    p times the served effects of arms, subtracted once for a decision and arm
    ``roots``     of the weight of each
    """

    features: Matrix
    values: Vector
    first: NDArray[np.bool_]
    replaces: Vector
    decided: Rows
    signal: Rows
    earlier: Matrix
    named: Rows
    served: Matrix
    roots: Vector

    @classmethod
    def of(cls, plan: RebuildPlan, rows: Any, space: int) -> _Learned:
        replaces = rows["replaces"].cast(pa.float64()).fill_null(np.nan).to_numpy()
        effects, signals_had = rows["effect"].to_pylist(), rows["had"].to_pylist()
        signals = max((len(numbers or ()) for numbers in (*effects, *signals_had)), default=1)
        (served, _), (earlier, named) = (_padded(lists, max(1, signals)) for lists in (effects, signals_had))
        signal = rows["signal_number"].cast(pa.int64()).fill_null(-1).to_numpy()
        if not named.any():  # a bandit without signals
            before = rows["before"].to_numpy()
            earlier[:, 0] = np.where(np.isnan(replaces), before, replaces)
            signal = np.zeros(len(before), dtype=np.int64)
        examined: Vector = rows["examined"].cast(pa.float64()).fill_null(1.0).to_numpy()
        return cls(
            _features(plan, rows) if space == plan.space else _own_features(rows, plan.maps[space + 1]),
            rows["value"].to_numpy().astype(np.float64),
            rows["first"].to_numpy(),
            replaces,
            rows["decided"].cast(pa.timestamp("ms", tz="UTC")).cast(pa.int64()).to_numpy(),
            signal,
            earlier,
            named.clip(1),
            served * examined[:, None],
            np.sqrt(rows["weight"].cast(pa.float64()).fill_null(1.0).to_numpy()),
        )

    def state(self, of_key: Rows, plan: RebuildPlan, space: int) -> LearnerState:
        """A learner with these rewards alone: each, less the value which it replaces.

        The first of a decision and arm brings all defaults.
        """
        changed = np.flatnonzero(~np.isnan(self.replaces[of_key]))
        first, signal, earlier = self.first[of_key], self.signal[of_key], self.earlier[of_key]
        values = np.where(first[:, None], earlier, 0.0)
        before = np.where(first[:, None], 0.0, earlier)
        named = np.flatnonzero(signal >= 0)
        values[named, signal[named]] = self.values[of_key][named]
        # What is replaced is the ``before`` of the row that takes it away.
        before[changed, signal[changed]] = 0.0
        taken_back = np.zeros((len(changed), earlier.shape[1]))
        taken_back[np.arange(len(changed)), signal[changed]] = -self.replaces[of_key][changed]
        rows = np.concatenate((np.arange(len(of_key)), changed))
        first, served = np.concatenate((first, np.zeros(len(changed), dtype=bool))), self.served[of_key][rows]
        root = self.roots[of_key][rows][:, None]
        return state_of(
            RewardRows(
                root * self.features[of_key][rows],
                root * (np.concatenate((values, taken_back)) - first[:, None] * served),
                first,
                root * (np.concatenate((before, earlier[changed])) - ~first[:, None] * served),
                reward_at=rows,
                decided_ms=self.decided[of_key],
                half_life_s=np.full(len(of_key), plan.half_life_s),
                signals=self.named[of_key],
                space=space,
            )
        )


def _padded(lists: Sequence[Sequence[float] | None], signals: int) -> tuple[Matrix, Rows]:
    """Numbers of signals, with 0 for missing ones, and their counts. Shapes: (n, J), (n,)."""
    counts = np.array([len(numbers or ()) for numbers in lists], dtype=np.int64)
    padded = np.zeros((len(lists), signals))
    for row, numbers in enumerate(lists):
        padded[row, : counts[row]] = numbers or ()
    return padded, counts


def _features(plan: RebuildPlan, rows: Any) -> Matrix:
    """The features for learning: of arms in their contexts, or in the row itself. Shape: (n, D)."""
    revisions = rows["revision"].cast(pa.int64())
    bare = rows["features"].is_valid().to_numpy()
    wanted = revisions.fill_null(-1).to_numpy()
    places = np.searchsorted(plan.revisions, wanted).clip(max=max(0, len(plan.revisions) - 1))
    is_known = plan.revisions[places] == wanted if len(plan.revisions) else np.zeros(len(wanted), dtype=bool)
    if (~is_known & ~bare).any():
        unknown = int(np.count_nonzero(~is_known & ~bare))
        rewards = f"{unknown:,} reward{'s' * (unknown != 1)}"
        raise ShortlistError(f"the lake lacks the arms of {rewards}: its table arms is not whole")
    features = (
        plan.features[places] if len(plan.revisions) else np.zeros((len(wanted), plan.features.shape[1]))
    )
    if plan.contexts is not None:
        empty = pa.scalar([0.0] * plan.contexts, pa.list_(pa.float32()))
        contexts = rows["context"].cast(pa.list_(pa.float32())).fill_null(empty).combine_chunks()
        features = bilinear.phi(features, plan.directions, _lists(contexts, np.float32, plan.contexts))
    if plan.match:
        features = np.hstack((features, np.zeros((len(features), plan.match))))
    if plan.constant is not None:
        features = np.column_stack((features, np.full(len(features), plan.constant)))
    examined: Vector = rows["examined"].cast(pa.float64()).fill_null(1.0).to_numpy()
    features = features * examined[:, None]
    if bare.any():
        features_of_bare = (
            rows["features"].cast(pa.list_(pa.float64())).combine_chunks().filter(pa.array(bare))
        )
        features[bare] = _lists(features_of_bare, np.float64, features.shape[1])
    return features


def _own_features(rows: Any, left: SpaceMap) -> Matrix:
    """The features of rewards from before a move, which bring them. Shape: (n, D)."""
    if left.transform is None:  # nothing of them is carried
        return np.zeros((rows.num_rows, 1))
    column = rows["features"].cast(pa.list_(pa.float64())).combine_chunks()
    features: Matrix = _lists(column, np.float64, left.transform.shape[1])
    return features


def _map_of(move: Mapping[str, Any]) -> SpaceMap:
    transform, residual = (
        None if move[name] is None else np.array(move[name], dtype=np.float64)
        for name in ("transform", "residual")
    )
    return SpaceMap(move["space"], transform, residual, move["features"])


def _lists(column: Any, kind: Any, length: int) -> Any:
    """Lists of one length as a matrix. Shape: (n, length)."""
    values = column.flatten().to_numpy().astype(kind, copy=False)
    if len(values) != len(column) * length:
        raise ShortlistError("the lake has vectors of a wrong length: it is damaged")
    return values.reshape(len(column), length)
