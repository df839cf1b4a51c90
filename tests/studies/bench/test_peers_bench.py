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


@pytest.mark.parametrize("made", [peers.ByLikes, peers.Ease])
def test_who_knows_what_others_like_shows_what_is_popular_until_something_is_liked(made):
    """What is liked first is then shown with what others liked beside it: an item with weights to it."""
    peer, likes = made(WORLD.items, ""), peers.likes_of_others(WORLD.items)
    popular = peer.choose()
    assert likes.sum(axis=0)[popular] == likes.sum(axis=0).max()
    peer.learn(popular, 0.0)
    assert peer.choose() == popular
    peer.learn(0, 1.0)
    together = (likes[:, [0]].T @ likes).toarray()[0]
    assert together[peer.choose()] > 0


DOCS = Path(__file__).parents[3] / "docs"
RECORD = json.loads((DOCS / "figures/peers.json").read_text())


def test_the_table_and_the_picture_are_those_of_the_file():
    """`python -m studies.bench.peers_page` renews both."""
    assert (DOCS / "figures/peers.svg").read_text() == peers_page.picture(RECORD)
    assert peers_page.table(RECORD) in (DOCS / "measurements.md").read_text()
    assert {row["peer"] for row in RECORD["rows"]} <= peers_page.NAMES.keys()
