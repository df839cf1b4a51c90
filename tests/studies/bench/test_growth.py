"""The growth benchmark on catalogues small enough for a test: its exponents are slopes of its own figures."""

from __future__ import annotations

import numpy as np
import pytest

from studies.bench import growth

pytestmark = pytest.mark.rest


def test_a_row_for_each_policy_and_size_and_the_slopes(monkeypatch, capsys):
    times = {"linear_ts": 1.0, "sub_ts": 0.25, "linear_elim": 1.0, "sub_elim": 0.0}
    monkeypatch.setattr(
        growth, "decisions", lambda arms, timed: {name: 2.0 * arms**power for name, power in times.items()}
    )
    monkeypatch.setattr(growth, "imported", lambda sizes: [{"arms": sizes.arms}])
    *rows, imported = growth.run(quick=True)["rows"]
    assert imported == {"arms": growth.QUICK.arms}
    assert [(row["policy"], row["K"]) for row in rows] == [
        (name, arms) for name in growth.POLICIES for arms in growth.SIZES
    ]
    for row in rows:
        assert row["exponent"] == pytest.approx(times[row["policy"]])
        kind = row["policy"].replace("sub", "linear")
        assert row["times_scan"] == pytest.approx(row["K"] ** (times[kind] - times[row["policy"]]))
    assert "exponent" in capsys.readouterr().out


@pytest.mark.rest
def test_searches_go_on_while_arms_are_imported():
    few = growth.Import(arms=2_000, dim=4, batch=100, check_every=1, rest_s=0.5, quiet_s=0.05)
    *parts, rest = growth.imported(few)
    assert [row["K"] for row in parts] == list(range(200, 2_001, 200))
    assert rest["times_rest"] == 1.0
    for row in parts:
        assert row["recall_at_1"] == 1.0  # so few are scanned
        assert row["times_rest"] == pytest.approx(row["us_per_decision"] / rest["us_per_decision"])


def test_every_decision_is_timed():
    found = growth.decisions(300, 20)
    assert set(found) == set(growth.POLICIES)
    assert all(0 < us < 1e6 for us in found.values())
    assert np.isfinite(list(found.values())).all()
