"""`shortlist reproduce table1` to `table5`: rows, paired seeds, and going on from what was kept."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from studies.experiments import sublinear_tables
from studies.experiments.printed_tables import TABLES

pytestmark = pytest.mark.rest

KEYS = [
    "table", "algorithm", "K", "shortlist", "change", "regret_mean", "regret_sd", "seconds", "seconds_online",
    "speedup", "speedup_online", "paper_regret", "paper_speedup", "paper_speedup_online",
]  # fmt: skip


PLAN = replace(sublinear_tables.QUICK, steps=200)


@pytest.fixture(autouse=True)
def figures_in_a_folder(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)  # figures are written where one is


def run(name, data=None, keep=None, plan=PLAN):
    """With a twentieth of the arms."""
    columns = [replace(column, K=column.K // 20) for column in TABLES[name]]
    return sublinear_tables.run(name, True, data, keep, plan=plan, columns=columns)


SLOW_TABLES = [pytest.param(name, marks=pytest.mark.slow) for name in ("table2", "table4", "table5")]


@pytest.mark.parametrize("name", ["table1", *SLOW_TABLES])
def test_a_table_has_the_promised_rows(name, capsys):
    record = json.loads(json.dumps(run(name)))
    assert [row["algorithm"] for row in record["rows"]] == [column.algorithm for column in TABLES[name]]
    for row, curve in zip(record["rows"], record["curves"], strict=True):
        assert set(KEYS) <= set(row)
        assert row["seeds"] == PLAN.seeds
        assert row["seconds"] >= row["seconds_online"] > 0
        assert row["speedup_online_printed_scan"] > 0
        assert curve["mean"][-1] == pytest.approx(row["regret_mean"], abs=0.1)
        if row["shortlist"] is None:
            assert row["speedup"] == row["speedup_online"] == row["regret_ratio"] == 1.0
    assert "paper_regret" in capsys.readouterr().out
