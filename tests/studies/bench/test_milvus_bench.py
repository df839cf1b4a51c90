"""The benchmark of catalogues in Milvus, on a few arms: a row for each number of callers."""

import pytest

from studies.bench import milvus

pytestmark = pytest.mark.slow


def test_choices_and_bare_searches_take_turns_on_a_service_that_is_filled(capsys):
    few = milvus.Sizes(arms=2 * milvus.TOGETHER, blocks=1, block=16, follow_s=1.0)
    rows = milvus.run(quick=True, sizes=few)["rows"]
    assert [row["callers"] for row in rows] == list(milvus.CALLERS)
    for row in rows:
        assert row["times_bare"] == pytest.approx(row["choose_ms"] / row["bare_ms"])
        assert row["K"] == 2 * milvus.TOGETHER
        assert 0.9 < row["recall_at_1"] <= 1.0
        assert row["engine_mb"] > 0.0
        assert row["changes_written"] > 0.0
    assert "held_mb" in capsys.readouterr().out
