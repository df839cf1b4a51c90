"""The benchmark of moves, on a few generated users: a row for each pair, and what each figure must be."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from studies.bench import moving

pytestmark = pytest.mark.rest


@pytest.mark.slow
def test_every_pair_is_measured(
    movielens_100k: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    few = replace(moving.QUICK, visitors=6, rated=20, shown=3, shown_after=2)
    rng = np.random.default_rng(1)
    monkeypatch.setattr(moving, "title_features", lambda titles: rng.normal(size=(len(titles), 8)))
    found = moving.run(quick=True, data=movielens_100k, sizes=few)
    again, wider, titles = found["rows"]
    assert [row["pair"] for row in found["rows"]] == ["trained again", "32 to 64", "titles"]
    assert [(row["d"], row["d'"]) for row in found["rows"]] == [(16, 16), (32, 64), (8, 16)]
    for row in found["rows"]:
        assert row["none"] == 0.0
        assert row["log"] == pytest.approx(
            row["new"], abs=1e-6
        )  # learners made anew are those of the ratings
        assert row["map/new"] == pytest.approx(row["map"] / row["new"])
        assert 0.0 < row["start"] < 1.0
    assert again["unmoved"] is not None
    assert wider["unmoved"] is None
    assert titles["kept"] == "hardly, refused"
    assert titles["r2"] < 0.1 < again["r2"]
    assert isinstance(found["failed"], bool)
    assert "map/new" in capsys.readouterr().out
