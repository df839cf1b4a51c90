"""What a learner sees of a snapshot with one more coordinate, that of an intercept."""

from __future__ import annotations

import numpy as np
import pytest

from app.catalogues.learner_snapshot import ConstantSnapshot, LearnerSnapshot
from app.indexes.live import LiveIndex

N, D = 40, 5
IDS = [f"a{i}" for i in range(N)]
CONSTANT = 0.75


def joint(features: np.ndarray) -> np.ndarray:
    return np.column_stack((features, np.full(len(features), 0.75)))


@pytest.fixture
def index() -> LiveIndex:
    index = LiveIndex(D)
    index.upsert(IDS, np.random.default_rng(1).standard_normal((N, D)), range(1, N + 1))
    index.remove(["a3", "a7"])
    return index


def test_features_have_one_dimension_more_and_bounded_norms(index: LiveIndex):
    view: LearnerSnapshot = ConstantSnapshot(index.snapshot(), CONSTANT)
    rows = view.eligible()
    features = view.features_of(rows)
    np.testing.assert_array_equal(features, joint(view.plain.features_of(rows)))
    assert features.shape == (N - 2, D + 1)
    assert np.linalg.norm(features, axis=1).max() == pytest.approx(view.largest_norm, abs=1e-12)


@pytest.mark.parametrize("method", ["search", "search_exact"])
def test_a_search_finds_the_best_products_of_d_plus_one_dimensions(index: LiveIndex, method: str):
    view = ConstantSnapshot(index.snapshot(), CONSTANT)
    query = np.random.default_rng(2).standard_normal(D + 1)
    rows = view.eligible()
    scores = view.features_of(rows) @ query
    best = np.argsort(-scores)[:6]
    found = getattr(view, method)(query, 5, rows[best[:1]])
    assert found.rows.tolist() == rows[best[1:]].tolist()
    np.testing.assert_allclose(found.scores, scores[best[1:]], rtol=1e-12)


@pytest.mark.rest
@pytest.mark.parametrize(("constant", "zeros"), [(CONSTANT, 2), (None, 3)])
def test_numbers_that_no_request_says_are_zeros(index: LiveIndex, constant: float | None, zeros: int):
    view = ConstantSnapshot(index.snapshot(), constant, zeros)
    last = [0.0] * zeros + ([] if constant is None else [constant])
    query = np.random.default_rng(2).standard_normal(D + len(last))
    rows = view.eligible()
    features = view.features_of(rows)
    np.testing.assert_array_equal(features[:, :D], view.plain.features_of(rows))
    np.testing.assert_array_equal(features[:, D:], np.tile(last, (len(rows), 1)))
    found = view.search(query, 5)
    np.testing.assert_allclose(found.scores, np.sort(features @ query)[::-1][:5], rtol=1e-12)
    plain = view.plain.features_of(rows) @ view.catalogue_query(query) + view.constant_score(query)
    np.testing.assert_allclose(plain, features @ query, rtol=1e-12)
    assert np.linalg.norm(features, axis=1).max() == pytest.approx(view.largest_norm, abs=1e-12)


@pytest.mark.rest
def test_arms_are_those_of_the_snapshot(index: LiveIndex):
    snapshot = index.snapshot()
    view = ConstantSnapshot(snapshot, CONSTANT)
    rows = view.rows_of(["a0", "a3", "a9"])
    assert [view.id_of(row) for row in rows.tolist()] == ["a0", "a9"]
    assert [view.revision_of(row) for row in rows.tolist()] == [1, 10]
    assert (view.size, view.expected_us) == (N - 2, snapshot.expected_us)
    assert view.eligible(rows).tolist() == snapshot.eligible(rows).tolist()
