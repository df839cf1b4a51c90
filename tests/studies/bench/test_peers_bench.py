"""`shortlist bench peers`: learning lowers regret, and what learns nothing has that of random items."""

from __future__ import annotations

import json
import math
import signal
import xml.etree.ElementTree as ET
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


def test_what_is_not_installed_is_named(capsys):
    gone = peers.Way("gone", "", "no_such_module_anywhere", Random)
    here = peers.Way("here", "", "shortlist", Random)
    assert list(peers.installed((gone, here))) == [here]
    assert "no_such_module_anywhere is not installed" in capsys.readouterr().out


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


def test_each_peer_says_what_it_cannot_do():
    assert {way.name for way in peers.PEERS} == peers.CANNOT.keys()


DOCS = Path(__file__).parents[3] / "docs"
RECORD = json.loads((DOCS / "figures/peers.json").read_text())


def test_the_table_and_the_picture_are_those_of_the_file():
    """`python -m studies.bench.peers_page` renews both."""
    assert (DOCS / "figures/peers.svg").read_text() == peers_page.picture(RECORD)
    assert peers_page.table(RECORD) in (DOCS / "measurements.md").read_text()
    assert {row["peer"] for row in RECORD["rows"]} <= peers_page.NAMES.keys()


def test_a_peer_that_was_too_slow_for_many_items_has_one_bar():
    rows = [{"K": arms, "peer": "library", "decide_ms": 0.2} for arms in (10, 20)]
    drawn = peers_page.picture({"rows": [*rows, {"K": 10, "peer": "vowpal", "decide_ms": 2_000.0}]})
    bars = [each for each in ET.fromstring(drawn) if each.tag.endswith("rect") and each.get("x")]
    assert len(bars) == 3
    assert drawn.count(">2 s</text>") == 1
