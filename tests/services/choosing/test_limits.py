"""At most so many arms of a value, within a filter, while arms come and go: against a greedy walk."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from app.filters.filter import parse
from app.indexes.eligible_rows import eligible_rows
from app.indexes.filtered_snapshot import FilteredSnapshot
from app.indexes.live import LiveIndex
from app.services.choosing.limits import AtMost, LimitedSolver, Limits

DIM = 3
VALUES = st.one_of(
    st.none(), st.sampled_from(["x", "y", 1, True, 2.5]), st.lists(st.sampled_from(["x", "z", 1]), max_size=3)
)
DOCUMENTS = st.fixed_dictionaries({"stock": st.booleans()}, optional={"maker": VALUES, "kind": VALUES})
CHANGES = st.lists(st.tuples(st.integers(0, 25), st.none() | DOCUMENTS), min_size=1, max_size=60)
LIMITS = st.dictionaries(st.sampled_from(["maker", "kind"]), st.integers(1, 3), min_size=1)


def values(document: Mapping[str, Any], field: str) -> set[tuple[type, Any]]:
    """Of one field, told apart by type: True is not 1."""
    found = document.get(field)
    members = found if isinstance(found, list) else [] if found is None else [found]
    return {(bool if isinstance(v, bool) else str if isinstance(v, str) else float, v) for v in members}


@given(CHANGES, LIMITS, st.integers(1, 8), st.booleans(), st.integers(0, 2**20))
@settings(max_examples=150)
def test_limits_hold_in_the_order_of_the_scores(changes, allowed, k, filtered, seed):
    rng = np.random.default_rng(seed)
    index, model = LiveIndex(DIM), dict[str, tuple[np.ndarray, dict[str, Any]]]()
    for revision, (number, document) in enumerate(changes):
        name = f"a{number}"
        if document is None:
            index.remove([name])
            model.pop(name, None)
        else:
            row = rng.normal(size=DIM)
            index.upsert([name], row[None], [revision])
            index.describe([name], [([], document)])
            model[name] = (row, document)
    snapshot, query = index.snapshot(), rng.normal(size=DIM)
    wanted = parse({"stock": True} if filtered else {})
    eligible = eligible_rows(wanted, snapshot.view, snapshot.attributes)
    view = FilteredSnapshot(snapshot.view, None, 1.0, deque(), snapshot.attributes, snapshot, eligible, None)
    let_in = [name for name, (_, document) in model.items() if not filtered or document["stock"]]
    order = sorted(let_in, key=lambda name: -float(model[name][0] @ query))

    pinned = [*model][:2]
    taken = Counter((field, v) for name in pinned for field in allowed for v in values(model[name][1], field))
    chosen: list[str] = []
    for name in order:
        own = [(field, v) for field in allowed for v in values(model[name][1], field)]
        if name not in pinned and len(chosen) < k and all(taken[entry] < allowed[entry[0]] for entry in own):
            chosen.append(name)
            taken.update(own)

    limits = Limits(
        [AtMost(field, count) for field, count in allowed.items()],
        snapshot.attributes,
        snapshot.rows_of(pinned),
    )
    found = LimitedSolver(view, view, limits).search(query, k, view.rows_of(pinned))
    assert [view.id_of(row) for row in found.rows.tolist()] == chosen
    assert found.exact

    rows = snapshot.rows_of(model)
    barred = limits.after(found.rows).over(rows).barred
    one_by_one = limits.over(rows)
    for row in found.rows.tolist():
        one_by_one.take(int(np.flatnonzero(rows == row)[0]))
    for place, (name, (_, document)) in enumerate(model.items()):
        own = [(field, v) for field in allowed for v in values(document, field)]
        full = any(taken[entry] >= allowed[entry[0]] for entry in own)
        assert barred[place] == full
        assert one_by_one.barred[place] == (full or name in chosen)
