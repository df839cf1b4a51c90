"""Draws in proportion to exp(score / temperature), where a drawn arm rules out others."""

import numpy as np
import pytest

from app.algorithms.linear.softmax import choose_within
from app.errors import Invalid

SCORES = np.array([0.3, -0.1, 0.7, 0.2, 0.5])
MAKERS = np.array([0, 1, 0, 1, 2])
TEMPERATURE = 0.4


def one_of_each_maker(told):
    """At most one arm of each maker; ``told`` collects the arms of which it was told."""

    def still_allowed(place):
        told.append(place)
        return ~np.isin(MAKERS, MAKERS[[each for each in told if each is not None]])

    return still_allowed


@pytest.mark.parametrize("seed", range(20))
def test_each_arm_is_drawn_among_those_still_allowed(seed):
    told = []
    found = choose_within(
        SCORES, one_of_each_maker(told), k=4, temperature=TEMPERATURE, rng=np.random.default_rng(seed)
    )
    assert sorted(MAKERS[found.places]) == [0, 1, 2]  # three makers: there is no fourth arm
    assert told == [None, *found.places.tolist()]
    allowed = np.ones(5, dtype=bool)
    for place, propensity in zip(found.places, found.propensities, strict=True):
        weights = np.exp(SCORES / TEMPERATURE) * allowed
        assert propensity == pytest.approx(weights[place] / weights.sum(), rel=1e-12)
        allowed &= MAKERS[place] != MAKERS


def test_no_arm_is_drawn_twice_and_no_more_than_k():
    every = np.ones(5, dtype=bool)
    for k in (1, 3, 5, 9):
        found = choose_within(
            SCORES, lambda _: every, k=k, temperature=TEMPERATURE, rng=np.random.default_rng(k)
        )
        assert len(set(found.places.tolist())) == len(found.places) == min(k, 5)
    assert found.propensities[-1] == 1.0  # of the last arm that is left


def test_nothing_is_drawn_where_nothing_is_allowed():
    found = choose_within(
        SCORES, lambda _: np.zeros(5, dtype=bool), k=2, temperature=1.0, rng=np.random.default_rng(0)
    )
    assert len(found.places) == len(found.propensities) == 0


@pytest.mark.parametrize(("name", "bad"), [("k", 0), ("temperature", 0.0), ("scores", np.array([np.nan]))])
def test_bad_arguments_are_named(name, bad):
    given = {"scores": SCORES, "k": 1, "temperature": 1.0, "rng": np.random.default_rng(0), name: bad}
    scores = given.pop("scores")
    with pytest.raises(Invalid) as raised:
        choose_within(scores, lambda _: np.zeros(len(scores), dtype=bool), **given)
    assert raised.value.errors[0][0] == (name,)
