"""The search for arms that are worth most with their effects, beside a comparison of all arms."""

from __future__ import annotations

import numpy as np
import pytest

from app.bandits.effect_version import EffectVersion, record_of, version_of
from app.catalogues.learner_snapshot import ConstantCoordinate, ConstantSnapshot
from app.indexes.live import IndexOptions, LiveIndex
from app.policies.arm_effects import Directions, EffectSolver, RowEffects, direction_of
from shortlist.linear.arm_effects import EffectFit, estimates

ARMS, DIM, HEAD, E = 600, 6, 60, 0.6


def index_of(rng: np.random.Generator) -> LiveIndex:
    index = LiveIndex(DIM, IndexOptions(kind="exact"))
    index.upsert([f"a{n}" for n in range(ARMS)], rng.normal(size=(ARMS, DIM)) / 2, range(1, ARMS + 1))
    index.remove(["a11", "a12"])
    return index


def version(rng: np.random.Generator, taus: list[float], arms: int = ARMS // 2) -> EffectVersion:
    """Effects of half of the arms, those of ``a0`` of features that it has no more."""
    n = rng.integers(1, 30, arms).astype(float)
    R = np.array([n * tau * rng.normal(size=arms) for tau in taus])
    fits = [EffectFit(tau**2, 0.5) for tau in taus]
    return version_of(
        record_of(
            1, 1, space=0, decisions=arms, fits=fits, arms=[f"a{n}" for n in range(arms)],
            revisions=[99, *range(2, arms + 1)], n=n, R=R,
        )
    )  # fmt: skip


def worth_of(found: EffectVersion, ids: list[str], weights: np.ndarray, w: np.ndarray) -> np.ndarray:
    """What each arm has beyond its features, one after the other."""
    worth = []
    for arm in ids:
        effect, variance = 0.0, weights**2 @ np.array(found.record.variances)
        place = found.places.get(arm)
        if place is not None and arm != "a0":
            effect, variance = weights @ found.effects[:, place], weights**2 @ found.deviations[:, place] ** 2
        worth.append(effect + E * np.sqrt(variance) * (np.array(direction_of(arm)) @ w))
    return np.array(worth)


@pytest.mark.parametrize("most_asked", [16, 4_096])
@pytest.mark.parametrize("taus", [[0.1], [1.0], [4.0], [0.3, 1.0]])
def test_what_is_said_to_be_exact_is_the_best_list(taus: list[float], most_asked: int):
    rng = np.random.default_rng(len(taus) + int(10 * taus[0]))
    snapshot, weights = index_of(rng).snapshot(), np.array([1.0, -2.0])[: len(taus)]
    found, exact = version(rng, taus), 0
    effects = RowEffects.of(found, Directions(), snapshot.table, weights, E, most_head=HEAD)
    rows = snapshot.eligible()
    ids = [snapshot.id_of(row) for row in rows.tolist()]
    for k in (1, 5, 30):
        for _ in range(5):
            query, exclude = rng.normal(size=DIM), rng.choice(rows, 20, replace=False)
            solver = EffectSolver(snapshot, snapshot, effects, rng, most_asked=most_asked)
            hits = solver.search(query, k, exclude)
            worth = snapshot.features_of(rows) @ query + worth_of(found, ids, weights, solver.w)
            worth[np.isin(rows, exclude)] = -np.inf
            order = np.argsort(-worth)[:k]
            assert len(hits.rows) == k
            if hits.exact:
                exact += 1
                assert hits.rows.tolist() == rows[order].tolist()
            np.testing.assert_allclose(hits.scores, [worth[np.flatnonzero(rows == r)[0]] for r in hits.rows])
    # who may ask for all arms finds the best ones always; small effects need few
    assert exact == 15 if most_asked > ARMS else exact < 15 or taus == [0.1]


@pytest.mark.rest
def test_few_arms_are_compared_at_once_with_those_that_came_since():
    rng = np.random.default_rng(2)
    index, found = index_of(rng), version(rng, [1.0])
    effects = RowEffects.of(found, Directions(), index.snapshot().table, np.ones(1), E)
    assert effects.is_whole
    index.upsert(["new"], np.full((1, DIM), 9.0), [5_000])
    snapshot = index.snapshot()
    solver = EffectSolver(snapshot, snapshot, effects, w=np.zeros(4))
    assert snapshot.id_of(int(solver.search(np.ones(DIM), 1).rows[0])) == "new"
    # an arm whose features were replaced has no effect of before
    index.upsert(["a5"], np.zeros((1, DIM)), [5_001])
    snapshot = index.snapshot()
    again = RowEffects.of(found, Directions(), snapshot.table, np.ones(1), E)
    for one in (effects, again):
        assert one.worth(snapshot.table, snapshot.rows_of(["a5", "new"])).tolist() == [0.0, 0.0]


@pytest.mark.rest
def test_the_constant_of_an_intercept_is_in_the_scores():
    rng = np.random.default_rng(3)
    plain, found = index_of(rng).snapshot(), version(rng, [1.0])
    arms = ConstantSnapshot(plain, ConstantCoordinate(0.5))
    effects = RowEffects.of(found, Directions(), plain.table, np.ones(1), E, most_head=HEAD)
    query = rng.normal(size=DIM + 1)
    hits = EffectSolver(arms, arms, effects).search(query, 4)
    wanted = EffectSolver(plain, plain, effects).search(query[:-1], 4)
    assert hits.rows.tolist() == wanted.rows.tolist()
    np.testing.assert_allclose(hits.scores, wanted.scores + 0.5 * query[-1])


def test_the_bound_is_above_all_that_is_outside_of_the_head():
    rng = np.random.default_rng(4)
    snapshot, found = index_of(rng).snapshot(), version(rng, [0.7])
    effects = RowEffects.of(found, Directions(), snapshot.table, np.ones(1), E, most_head=HEAD)
    others = np.setdiff1d(snapshot.eligible(), effects.head)
    for w in rng.normal(size=(50, 4)) * rng.uniform(0.1, 3.0, (50, 1)):
        assert effects.worth(snapshot.table, others, w).max() <= effects.bound(w)
    assert effects.bound(np.full(4, 100.0)) == np.inf
    assert effects.bound(None) >= effects.effects[others].max()


@pytest.mark.rest
def test_directions_follow_from_the_id_alone_and_are_spread_evenly():
    found = np.array([direction_of(f"arm-{n}") for n in range(4_000)])
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1.0)
    # of 4,000 the mean has a length of about 1 / sqrt(4,000) = .016, and each square a mean of 1 / 4
    assert np.linalg.norm(found.mean(0)) < 0.08
    np.testing.assert_allclose((found**2).mean(0), 0.25, atol=0.03)
    assert direction_of("arm-1") == direction_of("arm-1")


@pytest.mark.rest
def test_estimates_are_those_of_the_version():
    rng = np.random.default_rng(5)
    found = version(rng, [0.8])
    n, R = np.frombuffer(found.record.n), np.frombuffer(found.record.R)
    effects, deviations = estimates(n, R, EffectFit(0.8**2, 0.5))
    np.testing.assert_allclose(found.effects[0], effects, atol=1e-6)
    np.testing.assert_allclose(found.deviations[0], deviations)
    assert found.served(["a0", "a3", "nobody"], [1, 4, 1], 1)[:, 0].tolist() == [
        0.0,
        found.effects[0, 3],
        0.0,
    ]
