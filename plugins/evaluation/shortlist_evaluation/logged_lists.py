"""Rows of the decision log as lists with propensities and rewards, for estimators; and arms that none shows.

Rows are sorted into pools: lists that were drawn from the same arms. A decision can be used when the
propensity of every arm is known (a pinned arm has 1), and when its row says what each constraint left
(``Constraint.is_in_row``). So a decision with ``at_most`` cannot be used: which arms were left after the
first one depends on attributes as they were then. Rewards of a decision count as learners count them:
rewards of one arm are added, they replace its default, and an arm without any has the default of the
decision's terms.

``UnshownArms`` finds the arms that a policy would choose and that no decision of the log shows: no estimate
says anything of them. An arm that the log shows as often as the policy would is in none of the lists with
probability exp(-S_a) at most. So arms with S_a > ln(K / CHANCE) are those that could never, or hardly ever,
be drawn (union bound).

Notation
    n, k        lists, places of each
    q, m        contexts, numbers of each
    d           dimension of the arms
    K           arms that the policy would choose
    S_a         how many of the lists considered would have arm a, by the policy's propensities
    CHANCE      probability that any arm is named although the log shows it as often as the policy would
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from shortlist.evaluation.logged import MAX_PLACES
from shortlist.types import NO_ROWS, Matrix, Rows, Vector
from shortlist_service.catalogues import LoggedCandidates
from shortlist_service.constraints import ChooseRequest, Filter, none_of, parse_filter
from shortlist_service.decision_log import (
    ConstraintRow,
    LoggedArm,
    Row,
    Terms,
    ThinnedRow,
    asked_in,
    candidates_in_row,
    counted_rewards,
    terms_by_version,
)
from shortlist_service.policies import ArmEffects, Bandit, Directions, LearnerSnapshot

NO_CONTEXT = b""
_encode = msgspec.json.Encoder(order="sorted").encode
_pack = msgspec.msgpack.Encoder().encode
BATCH_SIZE = 1_000_000  # features of arms in lists
CHANCE = 0.01
MOST_ARMS = 20_000_000  # of all policies together: 9 bytes each
FIRST_NUMBERS = 60_000_000  # features that may be read for the first lists,
MORE_NUMBERS = 2_000_000  # and for those of each further piece of a log


@dataclass(frozen=True, slots=True)
class PoolName:
    """The common form of decisions drawn from the same arms.

    ``arm_filter``      the filter of the request; None: without one
    ``barred``          the filter of arms which were not barred; None: none was
    ``pinned_places``   places of pinned arms, from 0
    ``k``               number of drawn arms
    ``candidates``      of the request (``LoggedCandidates``), packed; None: the arms of the catalogue
    """

    arm_filter: Filter | None
    barred: Filter | None
    pinned_places: tuple[int, ...]
    k: int
    candidates: bytes | None = None

    @property
    def places(self) -> int:
        """Length of the lists, as far as they are used."""
        return min(self.k + len(self.pinned_places), MAX_PLACES)

    @property
    def drawn_places(self) -> Sequence[int]:
        """The places of the drawn arms, from 0."""
        pinned = set(self.pinned_places)
        return [position for position in range(self.places) if position not in pinned]


@dataclass(slots=True)
class LoggedLists:
    """Decisions of one ``PoolName``; every list of values is one after the other.

    ``situations``     (key, context as float32) of each decision
    ``excluded``       ids of the arms that could not be drawn, of each; those that were pinned among them
    ``ids``            of all arms of the lists
    ``stands_for``     how many decisions each stands for
    """

    name: PoolName
    situations: list[tuple[str | None, bytes]] = field(default_factory=list)
    excluded: list[tuple[str, ...]] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)
    stands_for: list[float] = field(default_factory=list)
    _propensities: list[float] = field(default_factory=list)
    _rewards: list[float] = field(default_factory=list)
    _by_signal: dict[str, list[float]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.situations)

    @property
    def propensities(self) -> Matrix:
        """Shape: (n, places)."""
        return np.array(self._propensities).reshape(len(self), -1)

    def rewards_by(self, weights: Mapping[str, float] | None) -> Matrix:
        """The weighted sum of the signals; without ``weights`` the rewards of a bandit that has none.

        Shape: (n, places).
        """
        if weights is None:
            return np.array(self._rewards).reshape(len(self), -1)
        result = np.zeros((len(self), self.name.places))
        for name, values in self.signals.items():
            result += weights.get(name, 0.0) * values
        return result

    @property
    def signals(self) -> Mapping[str, Matrix]:
        """The values of each signal. Shapes: (n, places)."""
        return {name: np.array(values).reshape(len(self), -1) for name, values in self._by_signal.items()}

    def add(
        self,
        row: Row,
        arms: Sequence[LoggedArm],
        exclude: Sequence[str],
        terms: Terms,
        signals: Collection[str],
    ) -> None:
        """One more decision, of which ``arms`` are used; ``exclude``: as it was asked."""
        context = NO_CONTEXT if row.context is None else array("f", row.context).tobytes()
        self.situations.append((row.key, context))
        if self.name.pinned_places:
            exclude = [*exclude, *(arm.id for arm in row.arms if arm.pinned)]
        self.excluded.append(tuple(exclude))
        self.ids += [arm.id for arm in arms]
        self.stands_for.append(row.stands_for if isinstance(row, ThinnedRow) else 1.0)
        self._propensities += [1.0 if arm.pinned else arm.propensity or 0.0 for arm in arms]
        if terms.weights is None:
            counted, _ = counted_rewards(row, terms)
            self._rewards += [counted.get(arm.id, terms.default) for arm in arms]
        for name in signals:
            terms_of_signal = terms.of_signal(name)
            counted, _ = counted_rewards(row, terms_of_signal)
            values = self._by_signal.setdefault(name, [])
            values += [counted.get(arm.id, terms_of_signal.default) for arm in arms]


@dataclass(slots=True)
class SortedCounts:
    """The number of decisions left out, by reason.

    ``unknown``      decisions without propensities
    ``unreadable``   decisions drawn from unknown arms
    ``cut``          lists of which only the first places are used
    ``capped``       decisions with arms that quotas or frequency caps did not allow
    """

    unknown: int = 0
    unreadable: int = 0
    cut: int = 0
    capped: int = 0


def sort(
    rows: Sequence[Row],
    bandit: Bandit,
    versions: Mapping[int, Bandit],
    constraints: Sequence[ConstraintRow],
    counts: SortedCounts,
) -> Sequence[LoggedLists]:
    """Read rows, and add to ``counts``. ``versions``: of the bandit, those that decided.

    Cost: some microseconds for each row.
    """
    terms, signals = terms_by_version(versions, bandit), list(bandit.record.signals or ())
    lists = dict[PoolName, LoggedLists]()
    filters = dict[bytes, tuple[Filter | None, Filter | None]]()
    not_in_row = [
        applies for constraint, applies in constraints if not (constraint.is_in_row or constraint.counts)
    ]
    for row in rows:
        arms = row.arms
        pinned, is_known = _pinned_places(arms)
        if not is_known:
            counts.unknown += 1
            continue
        asked = asked_in(row)
        barred = row.barred
        if asked is None or barred is None or asked.diverse is not None or row.candidates is None:
            counts.unreadable += 1
            continue
        candidates = candidates_in_row(row, bandit.match_dim)
        is_filtered = row.filter is not None or bool(barred.filters)
        if candidates is not None and not _are_known(candidates, bandit, is_filtered=is_filtered):
            counts.unreadable += 1
            continue
        text = _encode((asked.filter, barred.filters))
        if text not in filters:
            filters[text] = _filters_of(asked.filter, barred.filters)
        choice = ChooseRequest.of(asked, filters[text][0])
        if any(applies(choice, versions[row.bandit_version]) for applies in not_in_row):
            counts.unreadable += 1
            continue
        packed = None if candidates is None else _pack(candidates)
        name = PoolName(*filters[text], pinned, len(arms) - len(pinned), packed)
        counts.cut += len(arms) > MAX_PLACES
        # What a log of another system did not offer is its word, as a filter is: no quota has a say.
        counts.capped += bool(barred.filters or barred.arms) and not isinstance(row, ThinnedRow)
        group = lists.setdefault(name, LoggedLists(name))
        exclude = [*asked.exclude, *barred.arms]
        group.add(row, arms[:MAX_PLACES], exclude, terms[row.bandit_version], signals)
    return list(lists.values())


def _are_known(candidates: LoggedCandidates, bandit: Bandit, *, is_filtered: bool) -> bool:
    """True if a row tells a bandit all about its candidates.

    A row lacks the metadata of a request's own arms. A file may be of another catalogue.
    """
    numbers, match_numbers = len(candidates.own) * bandit.arm_dim, len(candidates.said) * bandit.match_dim
    are_of_now = (len(candidates.features), len(candidates.match)) == (4 * numbers, 4 * match_numbers)
    return are_of_now and not (candidates.own and is_filtered)


def _filters_of(
    asked: Mapping[str, Any] | None, barred: Sequence[Mapping[str, Any]]
) -> tuple[Filter | None, Filter | None]:
    asked_filter = None if asked is None else parse_filter(dict(asked))
    return asked_filter, none_of([parse_filter(dict(document)) for document in barred]) if barred else None


def _pinned_places(arms: Sequence[LoggedArm]) -> tuple[tuple[int, ...], bool]:
    """The places of arms that stood there by a rule, and whether all others have a propensity."""
    pinned = list[int]()
    for position, arm in enumerate(arms):
        if arm.pinned:
            pinned.append(position)
        elif arm.propensity is None:
            return (), False
    return tuple(pinned), bool(arms)


def rows_of(arms: LearnerSnapshot, ids: Sequence[str]) -> Rows:
    """Rows of arms in the whole catalogue; -1 for those that it has not. Shape: -> (n,)."""
    distinct = dict.fromkeys(ids)
    places = arms.plain.whole.table.row_of_each(distinct).tolist()
    rows = dict(zip(distinct, places, strict=True))
    return np.array([rows[arm] for arm in ids], dtype=np.int64)


def known_rows(arms: LearnerSnapshot, ids: Sequence[str]) -> Rows:
    """Rows of arms of a snapshot, each once."""
    return np.unique(arms.rows_of(ids)) if ids else NO_ROWS


def padded(columns: Sequence[Rows]) -> Rows:
    """Lists of rows side by side, filled up with -1. Shape: (n, longest)."""
    result = np.full((len(columns), max(map(len, columns))), -1, dtype=np.int64)
    for number, rows in enumerate(columns):
        result[number, : len(rows)] = rows
    return result


def joined(contexts: Sequence[bytes]) -> NDArray[np.float32] | None:
    """Encoded contexts of one length; None where there is none. Shape: (q, m)."""
    if not contexts or contexts[0] == NO_CONTEXT:
        return None
    return np.frombuffer(b"".join(contexts), dtype=np.float32).reshape(len(contexts), -1)


def lets_in(arms: LearnerSnapshot, rows: Rows) -> NDArray[np.bool_]:
    """A mask of the arms which can be drawn. Shapes: (n, k) -> (n, k)."""
    is_let_in = rows >= 0
    is_let_in[is_let_in] = arms.plain.lets_in(rows[is_let_in])
    return is_let_in


def scores_of(arms: LearnerSnapshot, rows: Rows, queries: Matrix, which: Rows) -> Matrix:
    """x.query of every arm of lists, 0 for those without a row. Shapes: rows (n, k), which (n,) -> (n, k)."""
    result = np.zeros(rows.shape)
    if not arms.table.rows or not rows.size:
        return result
    step = max(1, BATCH_SIZE // (rows.shape[1] * arms.table.dim))
    for start in range(0, len(rows), step):
        part = slice(start, start + step)
        features = arms.plain.features_of(np.maximum(rows[part], 0).reshape(-1))
        shaped = features.reshape(*rows[part].shape, -1)
        np.einsum("nkd,nd->nk", shaped, queries[which[part]], out=result[part])
    return np.where(rows >= 0, result, 0.0)


def effects_of_candidates(bandit: Bandit, arms: LearnerSnapshot) -> ArmEffects | None:
    """The effects of the candidates of one request beyond their features; 0 for the request's own arms."""
    if bandit.effects is None:
        return None
    weights = np.array((1.0,) if bandit.weighing is None else bandit.weighing.weights)
    table = arms.plain.whole.table
    effects = ArmEffects.of(bandit.effects, Directions(), table, weights, bandit.exploration)
    return effects.only_of_catalogue(table)


class UnshownArms:
    """Unshown arms of one policy. Memory: 9 bytes for each row of the table. ``policies``: how many others
    there are.
    """

    def __init__(self, *, policies: int = 1) -> None:
        self._policies = policies
        self._number = -1
        self._wanted: Vector = np.empty(0)
        self._shown = np.empty(0, dtype=np.bool_)
        self._lists = 0.0
        self._numbers = FIRST_NUMBERS

    def show(self, number: int, size: int, rows: Rows) -> bool:
        """Note arms that decisions show, -1 for none, of a table of ``size`` rows. False: there are too many
        arms to look for others. ``number``: another one where rows were renumbered.
        """
        if size * self._policies > MOST_ARMS:
            return False
        if number != self._number:
            self._number, self._lists = number, 0.0
            self._wanted, self._shown = np.zeros(0), np.zeros(0, dtype=np.bool_)
        more = size - len(self._shown)
        if more > 0:
            self._wanted = np.concatenate((self._wanted, np.zeros(more)))
            self._shown = np.concatenate((self._shown, np.zeros(more, dtype=np.bool_)))
        self._shown[rows[rows >= 0]] = True
        self._numbers += MORE_NUMBERS
        return True

    def affords(self, numbers: int) -> bool:
        """True if one more list may be looked at, with so many features to read."""
        self._numbers -= max(numbers, 1)
        return self._numbers >= 0

    def want(self, rows: Rows, counts: Vector, lists: float) -> None:
        """Note what the policy would choose in some lists: how many of them would have each arm."""
        self._wanted[rows] += lists * counts
        self._lists += lists

    def found(self) -> tuple[int, float]:
        """The number of arms shown by no decision, beyond chance, and the part of the policy's lists with
        one of them.
        """
        wanted = np.count_nonzero(self._wanted)
        if not wanted:
            return 0, 0.0
        unshown = ~self._shown & (self._wanted > math.log(wanted / CHANCE))
        share = float(self._wanted[unshown].sum()) / self._lists
        return int(np.count_nonzero(unshown)), min(share, 1.0)


def widened(rewards: Matrix, places: int) -> Matrix:
    """The rewards of lists, and 0 at missing places. Shapes: (n, k) -> (n, places)."""
    return np.pad(rewards, ((0, 0), (0, places - rewards.shape[1])))
