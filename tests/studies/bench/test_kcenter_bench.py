"""The k-center benchmark on few points: its figures are those of its own runs."""

from __future__ import annotations

import pytest

from studies.bench import kcenter

pytestmark = pytest.mark.rest


@pytest.mark.slow
def test_every_method_is_compared_with_exact_greedy(capsys: pytest.CaptureFixture[str]) -> None:
    record = kcenter.run(quick=True, sizes=kcenter.Sizes(points=(20, 60), scattered=60, runs=1))
    rows = record["rows"]
    assert len(rows) == 3 * len(kcenter.COUNTS) * len(kcenter.METHODS)
    for row in rows:
        assert row["kept"] == pytest.approx(row["speed"] / row["saving"])
        assert row["speed"] == pytest.approx(row["exact_ms"] / row["ms"])
        assert row["ns_per_read"] == pytest.approx(row["ms"] * 1e6 / row["reads"])
        assert row["saving"] == pytest.approx(row["n"] * row["k"] * kcenter.DIM / row["reads"])
        assert row["guarantee"] == ("none" if "experiment" in row["method"] else "pac")
    assert "kept" in capsys.readouterr().out
