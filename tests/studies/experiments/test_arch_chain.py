"""The ARCH experiment: derivatives, control variates, and that races decide as exact sums do."""

from __future__ import annotations

import pytest

from studies.experiments import sampling_arch
from studies.experiments.arch_model import ORDERS
from studies.experiments.sampling_arch import Scale

pytestmark = pytest.mark.rest


def test_the_command_compares_both_chains(monkeypatch, capsys):
    monkeypatch.setattr(sampling_arch, "can_draw", lambda: False)
    rows = sampling_arch.run("figure2-sampling", True, None, Scale(600, 20, 30, 2, 5))["rows"]
    exact, races = rows[-2:]
    assert (exact["chain"], races["chain"]) == ("exact", "races")
    assert exact["evaluations"] == 8 * 600
    assert races["evaluations"] < exact["evaluations"]
    orders = [row for row in rows if "order" in row]
    assert [row["order"] for row in orders] == list(ORDERS)
    for way in ("exact", "races"):
        assert sum(row[f"adjusted, {way}"] for row in orders) == pytest.approx(1.0)
    assert "ess per million" in capsys.readouterr().out
