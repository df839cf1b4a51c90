"""Draws over a catalogue with filters, exclusions and rules come as often as their propensities say."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from itertools import permutations
from typing import Any

import numpy as np
import pytest

from app.filtering.filtered_snapshot import FilteredSnapshot
from app.filters.filter import parse
from app.indexes.eligible_rows import eligible_rows
from app.indexes.live import LiveIndex
from app.indexes.snapshot import Snapshot
from app.policies import igw, softmax
from app.selection.list_limits import AtMost, Limits
from frequencies import furthest_sigma
from shortlist.linear import scales
from shortlist.types import NO_ROWS

MANY = 100_000
ARMS, DIM, K = 14, 3, 3
FEATURES = np.random.default_rng(5).normal(size=(ARMS, DIM))
THETA = np.array([0.4, -0.2, 0.3])
GAMMA, TAU, COUNT = 6.0, 0.5, 3
EXCLUDED = 4
COVER = np.array([2, 4, 8, 10])  # 2 is among the best as well
LIVING = [arm for arm in range(0, ARMS, 2) if arm != EXCLUDED]
SHARED = (8, 2)  # arms of one maker: at most one of them

Weigh = Callable[[np.ndarray], np.ndarray]


def filtered() -> Snapshot:
    """The arms of even number, in the order of their rows."""
    index = LiveIndex(DIM)
    ids = [f"a{arm}" for arm in range(ARMS)]
    index.upsert(ids, FEATURES, range(ARMS))
    documents = [{"even": arm % 2 == 0, "maker": "one" if arm in SHARED else arm} for arm in range(ARMS)]
    index.describe(ids, [([], document) for document in documents])
    whole = index.snapshot()
    eligible = eligible_rows(parse({"even": True}), whole.table, whole.attributes)
    return FilteredSnapshot(whole.table, None, 1.0, deque(), whole.attributes, whole, eligible, None)


def inverse_gap(estimates: np.ndarray) -> np.ndarray:
    best = estimates.argmax()
    found = 1.0 / (len(estimates) + GAMMA * (estimates[best] - estimates))
    found[best] += 1.0 - found.sum()
    return found


def boltzmann(estimates: np.ndarray) -> np.ndarray:
    mass = np.exp(estimates / TAU)
    return mass / mass.sum()


def probabilities(
    weigh: Weigh, candidates: list[int], *, limited: bool = False
) -> dict[tuple[int, ...], float]:
    """Of every ordered list of K, walked arm by arm; with ``limited`` at most one of ``SHARED``."""
    found = {}
    for order in permutations(candidates, K):
        left, product = list(candidates), 1.0
        for arm in order:
            if arm not in left:
                break
            product *= weigh(FEATURES[left] @ THETA)[left.index(arm)]
            gone = SHARED if limited and arm in SHARED else (arm,)
            left = [other for other in left if other not in gone]
        else:
            found[order] = product
    return found


def candidates() -> list[int]:
    """Those of igw: the best ``COUNT``, and the cover."""
    best = sorted(LIVING, key=lambda arm: -float(FEATURES[arm] @ THETA))[:COUNT]
    return best + [arm for arm in COVER.tolist() if arm in LIVING and arm not in best]


def limits(view: Snapshot) -> Limits:
    return Limits([AtMost("maker", 1)], view.whole, NO_ROWS)


def test_the_case_has_something_to_tell():
    assert 4 < len(candidates()) < len(LIVING)
    assert set(SHARED) <= set(candidates())
    assert set(COVER.tolist()) & set(candidates()[:COUNT])


@pytest.mark.parametrize(
    ("limited", "draws"),
    [
        (False, 20_000),
        (True, 4_000),
        *(pytest.param(limited, MANY, marks=pytest.mark.slow) for limited in (False, True)),
    ],
)
@pytest.mark.parametrize("policy", ["igw", "softmax"])
def test_draws_come_as_often_as_their_propensities_say(policy: str, limited: bool, draws: int):
    """Beside the propensities of the other policy, from which draws are far: so the comparison sees it."""
    view, rng = filtered(), np.random.default_rng(6)
    shared: dict[str, Any] = {"k": K, "rng": rng, "exclude": np.array([EXCLUDED])}

    counts, claimed = Counter[tuple[int, ...]](), dict[tuple[int, ...], float]()
    for _ in range(draws):
        shared["limits"] = limits(view) if limited else None
        if policy == "igw":
            drawn = igw.draw(view, THETA, COVER, count=COUNT, gamma=GAMMA, **shared)
        else:
            drawn = softmax.draw(view, THETA, temperature=TAU, **shared)
        order = tuple(drawn.hits.rows.tolist())
        counts[order] += 1
        claimed[order] = float(drawn.propensities.prod())

    arms = candidates() if policy == "igw" else LIVING
    right, wrong = (inverse_gap, boltzmann) if policy == "igw" else (boltzmann, inverse_gap)
    expected = probabilities(right, arms, limited=limited)
    assert claimed == pytest.approx({order: expected[order] for order in claimed})
    assert furthest_sigma(counts, expected) < 4.0
    assert furthest_sigma(counts, probabilities(wrong, arms, limited=limited)) > 8.0


@pytest.mark.rest
def test_the_index_is_asked_for_more_when_the_rules_leave_no_candidate():
    """The best arms are all of one maker: one of them, and then others, each with its exact propensity."""
    index = LiveIndex(1)
    names = [f"a{arm}" for arm in range(9)]
    index.upsert(names, np.arange(9.0)[:, None], range(9))
    index.describe(names, [([], {"maker": "big" if arm > 3 else arm}) for arm in range(9)])
    view, rng = index.snapshot(), np.random.default_rng(1)
    for _ in range(50):
        drawn = igw.draw(
            view, np.ones(1), np.empty(0, np.int64), k=6, count=2, gamma=0.0, rng=rng, limits=limits(view)
        )
        rows = drawn.hits.rows.tolist()
        assert rows[0] in {7, 8}
        assert sorted(rows[1:]) == [0, 1, 2, 3]
        # Two candidates; when none is left, the best two of those that are allowed, and the next two.
        assert drawn.propensities == pytest.approx([1 / 2, 1 / 2, 1, 1 / 2, 1])


def test_a_choice_is_one_search_of_the_index(monkeypatch: pytest.MonkeyPatch):
    """Whatever the size of the list and of the cover, and no other look at the arms but at the candidates."""
    index, rng = LiveIndex(DIM), np.random.default_rng(2)
    index.upsert([f"a{arm}" for arm in range(5_000)], rng.normal(size=(5_000, DIM)), range(5_000))
    view = index.snapshot()
    searches, read = [], []
    search, features_of = Snapshot.search, Snapshot.features_of
    monkeypatch.setattr(Snapshot, "search", lambda *a: searches.append(a[2]) or search(*a))
    monkeypatch.setattr(Snapshot, "features_of", lambda *a: read.append(len(a[1])) or features_of(*a))
    monkeypatch.setattr(Snapshot, "eligible", None)
    for k in (1, 3, 30):
        drawn = igw.draw(view, THETA, np.arange(100, 130), k=k, count=30, gamma=GAMMA, rng=rng)
        assert len(drawn.hits.rows) == k
    assert searches == [30, 30, 30]
    assert max(read) <= 30


@pytest.mark.rest
@pytest.mark.parametrize("limited", [False, True])
def test_the_automatic_gamma_follows_from_the_candidates_there_are_to_begin_with(limited: bool):
    """Also of later places, when some are drawn or left out: evaluations know no others."""
    view, noise = filtered(), 0.3
    auto, fixed = [
        [
            igw.draw(
                view, THETA, COVER, k=K, count=COUNT, gamma=gamma, unit=noise, exclude=np.array([EXCLUDED]),
                rng=np.random.default_rng(seed), limits=limits(view) if limited else None,
            )
            for seed in range(50)
        ]
        for gamma in (None, scales.GAMMA * len(candidates()) / noise)
    ]  # fmt: skip
    for one, other in zip(auto, fixed, strict=True):
        np.testing.assert_array_equal(one.hits.rows, other.hits.rows)
        np.testing.assert_allclose(one.propensities, other.propensities, rtol=1e-12)
    assert np.ptp([each.propensities for each in auto], axis=0).min() > 0.05
