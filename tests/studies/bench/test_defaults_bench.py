"""The benchmark of defaults on worlds small enough for a test."""

from __future__ import annotations

import dataclasses
import json
from functools import partial
from pathlib import Path

import pytest

from studies.bench import defaults, few_keys, many_keys
from studies.bench.defaults import OURS
from studies.bench.few_keys import Setting, gauss, play

pytestmark = pytest.mark.rest


FEW = few_keys.Sizes(arms=60, keys=3, rounds=25, click_rounds=3, users=4, film_rounds=5)
SMALL = dataclasses.replace(defaults.QUICK, early=12, few=FEW, genre_users=8, click_users=8)


@pytest.fixture
def two_crowds(monkeypatch):
    crowd = partial(many_keys.gauss, keys=8, rounds=6)
    monkeypatch.setattr(
        many_keys, "worlds", lambda: [partial(crowd, "people16"), partial(crowd, "drift", drift=3)]
    )


@pytest.mark.slow
def test_every_world_has_its_rows(two_crowds, movielens_100k: Path, capsys):
    found = json.loads(json.dumps(defaults.run(quick=True, data=movielens_100k, sizes=SMALL)))
    rows, crowds, levels = found["rows"][:17], found["rows"][17:25], found["rows"][25:]
    fresh, best = gauss("gauss4", 4, 1, sizes=FEW), Setting(rows[1]["exploration"], rows[1]["ridge"])
    assert rows[1]["ratio"] == pytest.approx(play(fresh, OURS).mean() / play(fresh, best).mean())
    for row in crowds:
        assert row["gain"] == pytest.approx(row["ours"] / row["plain"] - 1.0)
        assert (row["simulated"] is None) == (row["world"] == "genres, 150 others")
    assert levels
    assert "ratio" in capsys.readouterr().out
