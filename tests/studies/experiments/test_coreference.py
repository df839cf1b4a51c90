"""The coreference experiment: its clusters stay a partition, its score is B^3, and races read less."""

from __future__ import annotations

import pytest

from studies.experiments import sampling_coreference
from studies.experiments.sampling_coreference import Scale

pytestmark = pytest.mark.rest


def test_the_command_compares_all_ways(monkeypatch, capsys):
    monkeypatch.setattr(sampling_coreference, "can_draw", lambda: False)
    rows = sampling_coreference.run("figure3-sampling", True, None, Scale(((40, 2), (10, 2)), 2, 2))["rows"]
    ends, looks = rows[:4], rows[4:]
    assert [row["way"] for row in ends] == list(sampling_coreference.WAYS)
    assert ends[0]["read"] == 1.0
    assert all(0.0 < row["read"] <= 1.0 for row in ends)
    assert len(looks) == 4 * (2 * sampling_coreference.LOOKS + 1)
    assert "F-1" in capsys.readouterr().out
