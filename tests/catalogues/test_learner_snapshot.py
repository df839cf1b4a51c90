"""What a learner sees of a snapshot with one more coordinate: an intercept, or that of shifted rewards."""

from __future__ import annotations

import numpy as np
import pytest

from app.bandits.completion import SHIFTED
from app.catalogues.learner_snapshot import ConstantCoordinate, ConstantSnapshot, LearnerSnapshot
from app.indexes.live import LiveIndex
from shortlist.linear.shifted_rewards import shift_features, unshift_scores

N, D = 40, 5
IDS = [f"a{i}" for i in range(N)]
INTERCEPT = ConstantCoordinate(0.75)
either = pytest.mark.parametrize("constant", [SHIFTED, INTERCEPT])


def joint(features: np.ndarray, constant: ConstantCoordinate) -> np.ndarray:
    """As the papers write it."""
    if constant is SHIFTED:
        return shift_features(features)
    return np.column_stack((features, np.full(len(features), 0.75)))


@pytest.fixture
def index() -> LiveIndex:
    index = LiveIndex(D)
    index.upsert(IDS, np.random.default_rng(1).standard_normal((N, D)), range(1, N + 1))
    index.remove(["a3", "a7"])
    return index


@either
def test_features_have_one_dimension_more_and_bounded_norms(index: LiveIndex, constant: ConstantCoordinate):
    view: LearnerSnapshot = ConstantSnapshot(index.snapshot(), constant)
    rows = view.eligible()
    features = view.features_of(rows)
    np.testing.assert_array_equal(features, joint(view.plain.features_of(rows), constant))
    assert features.shape == (N - 2, D + 1)
    assert np.linalg.norm(features, axis=1).max() == pytest.approx(view.largest_norm, abs=1e-12)


@either
@pytest.mark.parametrize("method", ["search", "search_exact"])
def test_a_search_finds_the_best_products_of_d_plus_one_dimensions(
    index: LiveIndex, method: str, constant: ConstantCoordinate
):
    view = ConstantSnapshot(index.snapshot(), constant)
    query = np.random.default_rng(2).standard_normal(D + 1)
    rows = view.eligible()
    scores = view.features_of(rows) @ query
    best = np.argsort(-scores)[:6]
    found = getattr(view, method)(query, 5, rows[best[:1]])
    assert found.rows.tolist() == rows[best[1:]].tolist()
    np.testing.assert_allclose(found.scores, scores[best[1:]], rtol=1e-12)


@either
def test_what_is_observed_predicts_what_the_learner_predicts(index: LiveIndex, constant: ConstantCoordinate):
    theta = np.random.default_rng(3).standard_normal(D + 1)
    view, features = ConstantSnapshot(index.snapshot(), constant), np.eye(D)
    scores = joint(features, constant) @ theta
    expected = unshift_scores(scores) if constant is SHIFTED else scores
    own, offset = constant.observed_theta(theta)
    np.testing.assert_allclose(features @ own + offset, expected, rtol=1e-12)
    hits = view.search_exact(theta, 3)
    observed = constant.observed(hits).scores
    np.testing.assert_allclose(observed, view.plain.features_of(hits.rows) @ own + offset, rtol=1e-12)
    squares = (joint(view.plain.features_of(view.eligible()), constant) ** 2).sum(axis=1)
    plain = (view.plain.features_of(view.eligible()) ** 2).sum(axis=1).mean()
    assert constant.mean_square(plain) == pytest.approx(squares.mean())


@pytest.mark.rest
def test_arms_are_those_of_the_snapshot(index: LiveIndex):
    snapshot = index.snapshot()
    view = ConstantSnapshot(snapshot, SHIFTED)
    rows = view.rows_of(["a0", "a3", "a9"])
    assert [view.id_of(row) for row in rows.tolist()] == ["a0", "a9"]
    assert [view.revision_of(row) for row in rows.tolist()] == [1, 10]
    assert (view.size, view.expected_us) == (N - 2, snapshot.expected_us)
    assert view.eligible(rows).tolist() == snapshot.eligible(rows).tolist()
