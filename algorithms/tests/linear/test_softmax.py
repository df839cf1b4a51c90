"""Draws in proportion to exp(score / temperature), where a drawn arm rules out others."""

from math import exp, fsum, log

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shortlist.linear.softmax import choose, choose_within

SCORES = np.array([0.3, -0.1, 0.7, 0.2, 0.5])
MAKERS = np.array([0, 1, 0, 1, 2])
TEMPERATURE = 0.4


def one_of_each(makers, told):
    """At most one arm of each maker; ``told`` collects the arms of which it was told."""

    def take(place):
        told.append(place)
        return np.flatnonzero(makers == makers[place])

    return take


def one_by_one(scores, makers, barred, k, noise):
    """The definition: at each place the largest of those allowed, and its share of their mass."""
    allowed, found = [place for place in range(len(scores)) if not barred[place]], []
    while allowed and len(found) < k:
        best = max(allowed, key=lambda place: (scores[place] + noise[place], -place))
        logs = [scores[place] - scores[best] for place in allowed]
        top = max(logs)
        found.append((best, -top - log(fsum(exp(each - top) for each in logs))))
        allowed = [place for place in allowed if makers[place] != makers[best]]
    return found


@given(
    st.lists(
        st.tuples(st.sampled_from([-900.0, -3.0, 0.0, 0.5, 1.0, 700.0]), st.integers(0, 9), st.booleans()),
        max_size=40,
    ),
    st.integers(1, 12),
    st.integers(0, 2**20),
)
@settings(max_examples=300)
def test_draws_and_propensities_are_those_of_one_draw_after_the_other(arms, k, seed):
    scores = np.array([score for score, _, _ in arms])
    makers = np.array([maker for _, maker, _ in arms])
    barred = np.array([barred and place % 3 == 0 for place, (_, _, barred) in enumerate(arms)], dtype=bool)
    told = []
    found = choose_within(
        scores,
        one_of_each(makers, told),
        k=k,
        temperature=1.0,
        rng=np.random.default_rng(seed),
        barred=barred,
    )
    noise = np.random.default_rng(seed).gumbel(size=len(scores))
    expected = one_by_one(scores, makers, barred, k, noise)
    assert found.places.tolist() == told == [place for place, _ in expected]
    smallest = log(np.finfo(np.float64).tiny)
    logs = [max(propensity, smallest) for _, propensity in expected]
    assert np.log(found.propensities) == pytest.approx(logs, abs=1e-11)


@pytest.mark.rest
@pytest.mark.parametrize("seed", range(20))
def test_without_anything_ruled_out_the_same_arms_are_drawn(seed):
    scores = np.random.default_rng(seed).normal(size=50)
    for k in (1, 7, 50):
        given = {"k": k, "temperature": TEMPERATURE}
        plain = choose(scores, **given, rng=np.random.default_rng(seed))
        found = choose_within(
            scores, lambda place: np.array([place]), **given, rng=np.random.default_rng(seed)
        )
        assert found.places.tolist() == plain.places.tolist()
        assert found.propensities == pytest.approx(plain.propensities, rel=1e-12)


@pytest.mark.rest
def test_no_arm_is_drawn_twice_and_no_more_than_k():
    for k in (1, 3, 5, 9):
        found = choose_within(
            SCORES,
            lambda place: np.array([place]),
            k=k,
            temperature=TEMPERATURE,
            rng=np.random.default_rng(k),
        )
        assert len(set(found.places.tolist())) == len(found.places) == min(k, 5)
    assert found.propensities[-1] == 1.0  # of the last arm that is left


@pytest.mark.rest
def test_nothing_is_drawn_where_nothing_is_allowed():
    found = choose_within(
        SCORES,
        one_of_each(MAKERS, []),
        k=2,
        temperature=1.0,
        rng=np.random.default_rng(0),
        barred=np.ones(5, dtype=bool),
    )
    assert len(found.places) == len(found.propensities) == 0
