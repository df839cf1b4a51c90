"""`shortlist bench peers`: learning lowers regret, and what learns nothing has that of random items."""

from __future__ import annotations

import json
import math
import signal
from pathlib import Path

import numpy as np
import pytest

from shortlist.types import Matrix
from studies.bench import peers, peers_page

pytestmark = pytest.mark.rest

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


@pytest.mark.parametrize(
    ("made", "low", "high"), [(peers.Library, 0.0, 0.6), (Random, 0.9, 1.1)], ids=["library", "random"]
)
def test_regret_is_that_of_what_was_shown(made, low, high):
    # Of random items the mean over 1,000 rounds has a standard error of .02: beyond .1 once in 10^6 seeds.
    way = peers.Way("one", "", "shortlist", made)
    row = peers.played(WORLD, way, math.inf, 1_000)
    assert row["rounds"] == 1_000
    assert low < row["regret_1000"] < high


class Endless(Random):
    """Takes as long as it may to learn."""

    def learn(self, row: int, click: float) -> None:
        signal.pause()


def test_a_peer_without_an_end_is_stopped():
    with pytest.raises(peers.Overdue), peers.at_most(0.05):
        peers.played(WORLD, peers.Way("one", "", "shortlist", Endless), math.inf)


DOCS = Path(__file__).parents[3] / "docs"
RECORD = json.loads((DOCS / "figures/peers.json").read_text())


def test_the_table_and_the_picture_are_those_of_the_file():
    """`python -m studies.bench.peers_page` renews both."""
    assert (DOCS / "figures/peers.svg").read_text() == peers_page.picture(RECORD)
    assert peers_page.table(RECORD) in (DOCS / "measurements.md").read_text()
    assert {row["peer"] for row in RECORD["rows"]} <= peers_page.NAMES.keys()
