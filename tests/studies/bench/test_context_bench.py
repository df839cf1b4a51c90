"""The benchmark of contexts on worlds small enough for a test: the ways meet the same users; none peeks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from studies.bench import (
    context,
    context_decisions,
    context_films,
    context_learning,
    context_peers,
    context_regret,
)

pytestmark = pytest.mark.rest


ROUNDS = 5
SMALL = context.Sizes(
    films=context_films.Sizes(tuning=3, splits=2, served=6, rounds=ROUNDS),
    regret=context_regret.Sizes(arms=300, steps=150, seeds=2),
    learning=context_learning.Sizes(batch=20, batches=2, shapes=((4, 0, 0), (4, 3, 2))),
    decisions=context_decisions.Sizes(arms=2_000, decisions=30, turn=10, shapes=((2, 3), (4, 32))),
)


@pytest.fixture
def no_peers(monkeypatch):
    monkeypatch.setattr(context_peers, "find_spec", lambda name: None)


@pytest.mark.slow
def test_every_part_has_its_rows(no_peers, movielens_100k: Path, capsys):
    result = json.loads(json.dumps(context.run(quick=True, data=movielens_100k, sizes=SMALL)))
    assert result["benchmark"] == "context"
    rows = {part: [row for row in result["rows"] if row["part"] == part] for part in ("films", "regret")}
    assert [row["way"] for row in rows["films"]] == [way.name for way in context_films.WAYS]
    assert [row["policy"] for row in rows["regret"]] == ["exact", "sub_ts", "blind"]
    for row in rows["films"]:
        assert 0.0 < row["reward"] < 1.0
        assert row["users"] == 12
    assert {row["part"] for row in result["rows"]} == {"films", "regret", "decisions", "learning"}
    printed = capsys.readouterr().out
    assert "vowpal is not installed" in printed
    assert "bayesianbandits is not installed" in printed
