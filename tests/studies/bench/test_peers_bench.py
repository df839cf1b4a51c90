"""`shortlist bench peers`: learning lowers regret, and what learns nothing has that of random items."""

from __future__ import annotations

import math

import numpy as np
import pytest

from shortlist.types import Matrix
from studies.bench import peers

WORLD = peers.World(300, 16)


class Random:
    """Learns nothing."""

    def __init__(self, items: Matrix, _setting: str) -> None:
        self._rng, self._count = np.random.default_rng(1), len(items)

    def choose(self) -> int:
        return int(self._rng.integers(self._count))

    def learn(self, row: int, click: float) -> None:
        assert 0 <= row < self._count
        assert click in (0.0, 1.0)


def test_every_item_is_clicked_at_most_every_other_time():
    assert WORLD.chances.min() >= 0.0
    assert WORLD.chances.max() <= 0.5
    assert WORLD.best > WORLD.random


@pytest.mark.parametrize(
    ("made", "low", "high"), [(peers.Library, 0.0, 0.6), (Random, 0.9, 1.1)], ids=["library", "random"]
)
def test_regret_is_that_of_what_was_shown(made, low, high):
    # Of random items the mean over 1,000 rounds has a standard error of .02: beyond .1 once in 10^6 seeds.
    way = peers.Way("one", "", "shortlist", made)
    row = peers.played(WORLD, way, math.inf, 1_000)
    assert row["rounds"] == 1_000
    assert low < row["regret_1000"] < high


def test_a_peer_without_time_for_a_hundred_rounds_has_no_figure_of_them():
    row = peers.played(WORLD, peers.Way("one", "", "shortlist", Random), math.inf, 99)
    assert row["regret_100"] is None


def test_what_is_not_installed_is_named(monkeypatch, capsys):
    gone = peers.Way("gone", "", "no_such_module_anywhere", Random)
    here = peers.Way("here", "", "shortlist", Random)
    monkeypatch.setattr(peers, "PEERS", (gone, here))
    assert list(peers.installed()) == [here]
    assert "no_such_module_anywhere is not installed" in capsys.readouterr().out


def test_each_peer_says_what_it_cannot_do():
    assert {way.name for way in peers.PEERS} == peers.CANNOT.keys()
