"""Uniform draws by rejection: distinct, accepted, uniform, and cheap. Chi-squares at their 1e-7 quantile."""

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from shortlist.errors import InvalidParameter
from shortlist.sampling.uniform import draw_distinct

ALARM = 1e-7


def drawn(mask, k, rng):
    return draw_distinct(lambda p: mask[p], pool=len(mask), accepted=int(mask.sum()), k=k, rng=rng)


class Repeating:
    """Draws every place of the range that it is asked for in turn, each twice. It remembers the ranges."""

    def __init__(self):
        self.ranges, self.place = [], 0

    def integers(self, low, high, size):
        self.ranges.append((low, high))
        places = low + (self.place + np.arange(size)) // 2 % (high - low)
        self.place += size
        return places


def test_draws_are_of_the_whole_pool_and_what_was_drawn_before_is_passed_over():
    rng = Repeating()
    places = draw_distinct(lambda p: p != 3, pool=7, accepted=6, k=5, rng=rng)
    assert places.tolist() == [0, 1, 2, 4, 5]
    assert set(rng.ranges) == {(0, 7)}


@settings(max_examples=200)
@given(st.lists(st.booleans(), min_size=1, max_size=40), st.integers(1, 50), st.integers(0, 99))
def test_what_is_drawn_is_accepted_and_distinct(mask, k, seed):
    mask = np.array(mask)
    places = drawn(mask, k, np.random.default_rng(seed))
    assert len(places) == min(k, mask.sum()) == len(set(places.tolist()))
    assert mask[places].all()


def chi_square(draw):
    mask = np.array([True, False, True, True, False, True, False])
    rng = np.random.default_rng(5)
    lists = list(permutations([0, 2, 3, 5], 2))
    counts = dict.fromkeys(lists, 0)
    for _ in range(12_000):
        counts[tuple(draw(mask, 2, rng).tolist())] += 1
    return stats.chisquare(list(counts.values())).pvalue


def test_ordered_lists_are_uniform():
    assert chi_square(drawn) > ALARM


@pytest.mark.rest
def test_the_chi_square_sees_a_draw_that_is_not_uniform():
    """The next accepted place instead of another draw: a place after a gap is drawn more often."""

    def broken(mask, k, rng):
        accepted = np.flatnonzero(mask)
        first = accepted[np.searchsorted(accepted, rng.integers(0, 7)) % 4]
        rest = accepted[accepted != first]
        return np.array([first, rng.choice(rest)])

    assert chi_square(broken) < ALARM


@pytest.mark.rest
def test_only_about_as_many_places_are_looked_at_as_are_drawn():
    looked = []

    def accepts(places):
        looked.append(len(places))
        return places % 2 == 0

    draw_distinct(accepts, pool=10**9, accepted=10**9 // 2, k=10, rng=np.random.default_rng(1))
    assert sum(looked) <= 100


@pytest.mark.rest
def test_what_cannot_be_drawn_is_refused():
    rng = np.random.default_rng(1)
    for options in ({"k": 0, "accepted": 1}, {"k": 1, "accepted": 3}):
        with pytest.raises(InvalidParameter):
            draw_distinct(lambda p: p >= 0, pool=2, rng=rng, **options)
    assert len(draw_distinct(lambda p: p >= 0, pool=0, accepted=0, k=3, rng=rng)) == 0
