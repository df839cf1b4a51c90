"""`shortlist reproduce table1` to `table5`: rows, paired seeds, and going on from what was kept."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from server import cli
from studies.experiments import sublinear_figures, sublinear_tables
from studies.experiments.play import Run
from studies.experiments.printed_tables import TABLES, Printed

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


@pytest.mark.parametrize("name", sorted(TABLES))
def test_every_column_has_its_baseline_and_the_speedups_of_the_print(name):
    columns = TABLES[name]
    for column in columns:
        wanted = (column.baseline, column.K, column.change)
        base = [other for other in columns if (other.algorithm, other.K, other.change) == wanted]
        assert len(base) == 1
        assert (column.shortlist is None) == (column is base[0])
        assert (column.speedup == 1.0) == (column is base[0])


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


@pytest.mark.slow
def test_table3_reads_either_format(movielens_100k, movielens_1m):
    regrets = []
    for folder in (movielens_100k, movielens_1m):
        rows = run("table3", folder, plan=replace(PLAN, users=2, held=10))["rows"]
        assert {row["K"] for row in rows} == {200}
        regrets.append([row["regret_mean"] for row in rows if row["algorithm"].startswith("linear")])
    assert regrets[0] == regrets[1]


def test_table3_says_what_it_needs(capsys, tmp_path):
    assert cli.main(["reproduce", "table3", "--quick"]) == 2
    assert "--data" in capsys.readouterr().err
    assert cli.main(["reproduce", "table3", "--quick", "--data", str(tmp_path)]) == 2
    assert "neither u.data nor ratings.dat" in capsys.readouterr().err


def test_finished_runs_are_not_played_again(tmp_path, monkeypatch):
    played = []

    def fake(environment, policy, *, seed):
        played.append(seed)
        return Run(float(seed), 1.0, 2.0, 3.0, {"used": 0.5, "best": 0.25, "printed": 4.0}, [float(seed)])

    monkeypatch.setattr(sublinear_tables, "play", fake)
    first = run("table2", keep=tmp_path)
    assert len(played) == 2 * len(TABLES["table2"])
    (damaged, *_) = sorted(tmp_path.glob("*-sub_ts-10-*.json"))
    damaged.write_text("{")
    again = run("table2", keep=tmp_path)
    assert len(played) == 2 * len(TABLES["table2"]) + 1
    assert again["rows"] == first["rows"]
    # Tables 1 and 2 share the baselines at K = 100,000.
    del played[:]
    run("table1", keep=tmp_path)
    assert len(played) == 2 * (len(TABLES["table1"]) - 3)
    # A run of other rules is not taken over.
    del played[:]
    run("table2", keep=tmp_path, plan=replace(PLAN, radius=1.0))
    assert len(played) == 2 * len(TABLES["table2"])


def test_ratios_are_of_sums_over_the_same_seeds():
    columns = (
        Printed("linear_ts", 5, None, 2, 1.0, 0.0),
        Printed("sub_ts", 5, 10, 2, 1.0, 0.0, 2.0, 2.0),
    )
    scans = {"used": 6.0, "best": 4.0, "printed": 30.0}
    runs = {
        columns[0]: [Run(10.0, 0.0, 8.0, 0.0, scans, []), Run(30.0, 0.0, 12.0, 0.0, scans, [])],
        columns[1]: [Run(11.0, 5.0, 1.0, 0.0, {}, []), Run(31.0, 5.0, 3.0, 4.0, {}, [])],
    }
    row = sublinear_tables._row("table4", columns[1], runs, 5)  # private: one row of the table
    assert row["regret_ratio"] == pytest.approx(42 / 40)
    assert row["regret_sd"] == pytest.approx(np.std([11, 31], ddof=1))
    assert (row["seconds"], row["seconds_online"]) == (9.0, 2.0)
    assert row["speedup"] == pytest.approx(10 / 9)
    assert row["speedup_online"] == 5.0
    assert row["speedup_online_best_scan"] == 4.0
    assert row["speedup_online_printed_scan"] == 15.0


def test_there_is_a_figure_where_there_is_matplotlib(tmp_path, monkeypatch, capsys):
    record = {
        "benchmark": "table9",
        "steps": 100,
        "curves": [
            {"title": "K = 5", "label": "linear_ts", "mean": [1.0, 2.0]},
            {"title": "K = 5", "label": "sub_ts, shortlist 10", "mean": [1.0, 3.0]},
            {"title": "K = 5", "label": "sub_elim, shortlist 10", "mean": [1.0, 3.0]},
        ],
    }
    with monkeypatch.context() as without:
        without.setattr(sublinear_figures, "find_spec", lambda name: None)
        assert sublinear_figures.write(record, tmp_path) == []
        assert ".[plots]" in capsys.readouterr().out
    pytest.importorskip("matplotlib", reason="the extra plots is not installed")
    written = sublinear_figures.write(record, tmp_path)
    assert [path.name for path in written] == ["table9.png", "table9.svg"]
    assert all(0 < path.stat().st_size < 200_000 for path in written)
