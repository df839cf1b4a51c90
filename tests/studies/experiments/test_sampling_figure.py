"""What Figure 1 shares between races is what each race would have read; the benchmark's rows are complete."""

from __future__ import annotations

import pytest

from studies.bench import sampling as bench
from studies.experiments import sampling_plot, sampling_table, sampling_widths
from studies.experiments.sampling_figure import line, population, race_all

pytestmark = pytest.mark.rest


def test_figures_are_drawn_from_their_rows(tmp_path):
    pytest.importorskip("matplotlib", reason="the extra plots is not installed")
    noise = population("uniform", 3, 500)
    rows = [line("uniform", 3, 500, key, count) for key, count in race_all(noise, 3, "test").items()]
    entries = [sampling_table.row(0.1, share) for share in sampling_table.SHARES]
    drawn = [
        sampling_plot.draw(rows, 3, tmp_path / "1.png"),
        sampling_plot.draw(rows, 3, tmp_path / "5.png", variance="marginal"),
        sampling_widths.draw(list(sampling_widths.lines("uniform")), tmp_path / "1e.png"),
        sampling_table.draw(entries, tmp_path / "4.png"),
    ]
    assert all(path.stat().st_size > 5_000 for path in drawn)
    assert drawn[0].read_bytes() != drawn[1].read_bytes()


def test_the_benchmark_measures_every_method():
    rows = bench.measure(1e-3 * population("normal", 2, 500), most_s=0.01)
    assert len(rows) == 5 * len(bench.DELTAS)
    assert all(row["time_ratio"] > 0.0 and 0.0 < row["reads"] <= 1.0 for row in rows)
