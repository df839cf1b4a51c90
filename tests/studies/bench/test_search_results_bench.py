"""The simulated search: candidates with numbers of each request, and a world that the bandit has to find out.

Requests, clicks and draws are seeded. When the service fits its prior by itself is not: bounds are far below
what ten runs gave.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from service_process import serving
from shortlist_client import Client
from studies.bench import search_results
from studies.bench.search_results import SearchWorld, play, row_of

pytestmark = pytest.mark.rest


def test_a_bandit_that_is_told_text_score_and_distance_beats_the_order_by_text(tmp_path: Path):
    """In 700 requests it finds the way to what the caller earns; who knows all would earn 1.3 of that."""
    settings = search_results.SETTINGS[1]
    with serving(tmp_path) as service, Client(service.url) as client:
        played = play(client, SearchWorld(11), 700, settings)
        learner = client.get_learner("search", "new")
    row = row_of(settings, played[None])
    assert row["requests"] == 700
    assert row["last"] > 0.8
    assert row["earned"] > 0.6
    assert row["best"] == pytest.approx(1.3, abs=0.05)
    worth = dict(zip(learner.columns or (), learner.theta, strict=True))
    assert worth["match.text"] == pytest.approx(0.15 * 0.71, abs=0.05)
    assert worth["match.distance"] == pytest.approx(-0.15 * 0.5, abs=0.05)
