"""At most so many arms of a value, within a filter, while arms come and go: against a greedy walk.

And that no arm is looked at again for each place of a list.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from app.filtering.filtered_snapshot import FilteredSnapshot
from app.filters.filter import parse
from app.indexes.eligible_rows import eligible_rows
from app.indexes.live import LiveIndex
from app.indexes.snapshot import Snapshot
from app.policies import igw
from app.selection.list_limits import AtMost, LimitedSolver, Limits
from shortlist.linear import igw as algorithm
from shortlist.types import NO_ROWS

DIM = 3
VALUES = st.one_of(
    st.none(), st.sampled_from(["x", "y", 1, True, 2.5]), st.lists(st.sampled_from(["x", "z", 1]), max_size=3)
)
DOCUMENTS = st.fixed_dictionaries({"stock": st.booleans()}, optional={"maker": VALUES, "kind": VALUES})
CHANGES = st.lists(st.tuples(st.integers(0, 25), st.none() | DOCUMENTS), min_size=1, max_size=60)
LIMITS = st.dictionaries(st.sampled_from(["maker", "kind"]), st.integers(1, 3), min_size=1)


def values(document: Mapping[str, Any], field: str) -> set[tuple[type, Any]]:
    """Of one field, told apart by type: True is not 1."""
    value = document.get(field)
    members = value if isinstance(value, list) else [] if value is None else [value]
    return {(bool if isinstance(v, bool) else str if isinstance(v, str) else float, v) for v in members}


class Shop:
    """An index, and beside it the features and the document of each arm that is left."""

    def __init__(self) -> None:
        self.index = LiveIndex(DIM)
        self.features: dict[str, np.ndarray] = {}
        self.documents: dict[str, dict[str, Any]] = {}

    def change(self, name: str, features: np.ndarray, document: dict[str, Any] | None, revision: int) -> None:
        """``document`` is None: the arm is deleted."""
        if document is None:
            self.index.remove([name])
            self.features.pop(name, None)
            self.documents.pop(name, None)
        else:
            self.index.upsert([name], features[None], [revision])
            self.index.describe([name], [([], document)])
            self.features[name], self.documents[name] = features, document

    def view(self, document: dict[str, Any]) -> FilteredSnapshot:
        """The arms that a filter lets in."""
        whole = self.index.snapshot()
        eligible = eligible_rows(parse(document), whole.table, whole.attributes)
        return FilteredSnapshot(whole.table, None, 1.0, deque(), whole.attributes, whole, eligible, None)


@given(CHANGES, LIMITS, st.integers(1, 8), st.booleans(), st.integers(0, 2**20))
@example([(number, {"stock": True, "maker": "x"}) for number in range(9)], {"maker": 4}, 8, False, 0)
@settings(max_examples=150)
def test_limits_hold_in_the_order_of_the_scores(changes, allowed, k, filtered, seed):
    rng, shop = np.random.default_rng(seed), Shop()
    for revision, (number, document) in enumerate(changes):
        shop.change(f"a{number}", rng.normal(size=DIM), document, revision)
    query, pinned = rng.normal(size=DIM), [*shop.documents][:2]

    view = shop.view({"stock": True} if filtered else {})
    snapshot = view.whole
    within = Limits([AtMost(*limit) for limit in allowed.items()], snapshot, snapshot.rows_of(pinned))
    hits = LimitedSolver(view, view, within).search(query, k, view.rows_of(pinned))

    def entries(name: str) -> list[tuple[str, tuple[type, Any]]]:
        return [(field, value) for field in allowed for value in values(shop.documents[name], field)]

    def is_full(name: str) -> bool:
        return any(taken[field, value] >= allowed[field] for field, value in entries(name))

    # A greedy walk: the best first, each unless one of its values is used up.
    taken, chosen = Counter(entry for name in pinned for entry in entries(name)), list[str]()
    for name in sorted(shop.features, key=lambda name: -float(shop.features[name] @ query)):
        is_let_in = not filtered or shop.documents[name]["stock"]
        if is_let_in and name not in pinned and len(chosen) < k and not is_full(name):
            chosen.append(name)
            taken.update(entries(name))
    assert [view.id_of(row) for row in hits.rows.tolist()] == chosen
    assert hits.exact

    # What is full after the list is the same, told of the list or of one arm after the other.
    rows = snapshot.rows_of(shop.documents)
    barred, one_by_one = within.after(hits.rows).over(rows).barred, within.over(rows)
    for row in hits.rows.tolist():
        one_by_one.take(int(np.flatnonzero(rows == row)[0]))
    assert barred.tolist() == [is_full(name) for name in shop.documents]
    assert one_by_one.barred.tolist() == [is_full(name) or name in chosen for name in shop.documents]


def snapshot_of(documents: list[dict[str, Any]], features: np.ndarray) -> Snapshot:
    index = LiveIndex(features.shape[1])
    names = [f"a{place}" for place in range(len(documents))]
    index.upsert(names, features, range(len(names)))
    index.describe(names, [([], document) for document in documents])
    return index.snapshot()


def test_what_is_taken_among_the_first_arms_counts_among_the_later_ones():
    documents = [{"maker": "x"}] * 200 + [{"maker": "y"}]
    snapshot = snapshot_of(documents, np.ones((201, 1)))
    within = Limits([AtMost("maker", 1)], snapshot, NO_ROWS)
    assert within.take_allowed(np.arange(201), 3).tolist() == [0, 200]


def test_a_list_is_filled_where_the_best_arms_share_a_value():
    snapshot = snapshot_of([{"maker": "x"}] * 10 + [{"maker": "y"}], np.arange(11.0, 0.0, -1.0)[:, None])
    within = Limits([AtMost("maker", 1)], snapshot, NO_ROWS)
    assert LimitedSolver(snapshot, snapshot, within).search(np.ones(1), 2).rows.tolist() == [0, 10]


def test_igw_draws_no_arm_twice_where_limits_leave_none_of_its_candidates():
    """Its four candidates are an arm without a maker and three of one maker, of which one may come."""
    documents = [{}, *[{"maker": "x"}] * 3, {"maker": "y"}, {"maker": "z"}]
    snapshot = snapshot_of(documents, np.arange(6.0, 0.0, -1.0)[:, None])
    within = Limits([AtMost("maker", 1)], snapshot, NO_ROWS)
    for seed in range(5):
        rng = np.random.default_rng(seed)
        drawn = igw.draw(snapshot, np.ones(1), NO_ROWS, k=4, count=4, gamma=9.0, rng=rng, limits=within)
        assert len(set(drawn.hits.rows.tolist())) == 4


@pytest.mark.rest
@given(
    st.lists(DOCUMENTS, min_size=1, max_size=20),
    LIMITS,
    st.tuples(st.integers(1, 8), st.integers(0, 8), st.sets(st.integers(0, 19), max_size=4)),
    st.integers(0, 2**20),
)
@settings(max_examples=150)
def test_igw_draws_among_candidates_that_are_allowed_and_then_the_next_best(documents, allowed, sizes, seed):
    (k, more, cover), rng = sizes, np.random.default_rng(seed)
    view, theta = snapshot_of(documents, rng.normal(size=(len(documents), DIM))), rng.normal(size=DIM)
    within = Limits([AtMost(*limit) for limit in allowed.items()], view.whole, NO_ROWS)
    rows = np.array([row for row in sorted(cover) if row < len(documents)], dtype=np.int64)
    drawn = igw.draw(
        view, theta, rows, k=k, count=k + more, gamma=3.0, rng=np.random.default_rng(seed), limits=within
    )

    taken: Counter[tuple[str, Any]] = Counter()
    estimates = view.features_of(np.arange(len(documents))) @ theta
    order = np.argsort(-estimates, kind="stable").tolist()
    pool = order[: k + more]
    pool += [row for row in rows.tolist() if row not in pool]
    left, most, chosen, again = pool, len(pool), list[int](), np.random.default_rng(seed)

    def may_come(row: int) -> bool:
        own = [(field, v) for field in allowed for v in values(documents[row], field)]
        return row not in chosen and all(taken[entry] < allowed[entry[0]] for entry in own)

    for place in range(len(drawn.hits.rows) + 1):
        left = [row for row in left if may_come(row)] or [row for row in order if may_come(row)][:most]
        if not left or place == k:
            break
        one = algorithm.choose(estimates[left], k=1, gamma=3.0, rng=again)
        chosen.append(left[int(one.places[0])])
        taken.update((field, v) for field in allowed for v in values(documents[chosen[-1]], field))
        assert drawn.hits.rows[place] == chosen[-1]
        assert drawn.propensities[place] == pytest.approx(one.propensities[0])
    assert drawn.hits.rows.tolist() == chosen
    assert len(chosen) == k or not left
