"""Layouts of centre searches: one a version, within the bound on memory."""

from __future__ import annotations

import numpy as np
import pytest

from shortlist.kcenter.center_set import Points
from shortlist_campaigns.catalogue_centers import Layouts

pytestmark = pytest.mark.rest


class Catalogue:
    """Points of which a layout takes 1,024 n bytes. ``made`` counts how often they were asked for."""

    def __init__(self, n: int) -> None:
        self.made = 0
        self._points = np.random.default_rng(n).random((n, 128))

    def points(self) -> Points:
        self.made += 1
        return self._points


def test_memory_is_bounded_and_the_least_recent_go_first():
    layouts, four = Layouts(10 * 1_024), [Catalogue(4) for _ in range(4)]

    def ask(*places: int) -> list[int]:
        for place in places:
            layouts.of(str(place), 1, four[place].points)
        return [catalogue.made for catalogue in four]

    assert ask(0, 1, 2) == [1, 1, 1, 0]
    assert layouts.bytes == 8 * 1_024
    assert ask(1, 3, 1) == [1, 1, 1, 1]
    assert ask(2) == [1, 1, 2, 1]
    large = Catalogue(11)
    for _ in range(2):
        layouts.of("e", 1, large.points)
    assert large.made == 2
    assert ask(1) == [1, 1, 2, 1]


def test_a_layout_is_of_one_version():
    layouts, catalogue = Layouts(10 * 1_024), Catalogue(4)
    first = layouts.of("a", 1, catalogue.points)
    assert layouts.of("a", 1, catalogue.points) is first
    second = layouts.of("a", 2, catalogue.points)
    assert not np.array_equal(second.blocks, first.blocks)
    assert layouts.bytes == 4 * 1_024
    assert layouts.of("a", 1, catalogue.points) is not second
