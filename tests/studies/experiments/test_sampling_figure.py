"""What Figure 1 shares between races is what each race would have read; the benchmark's rows are complete."""

from __future__ import annotations

import numpy as np
import pytest

from shortlist.sampling.factors import Factors, RandomOrder
from shortlist.sampling.race import FactorSample, race
from shortlist.sampling.racing_normal import normal_rules
from studies.bench import sampling as bench
from studies.experiments import sampling_plot, sampling_table, sampling_widths
from studies.experiments.sampling_figure import (
    Prefixes,
    PrefixSample,
    line,
    population,
    probabilities,
    race_all,
)

pytestmark = pytest.mark.rest


class Given(RandomOrder):
    """An order that is known beforehand."""

    def __init__(self, order):
        self._order = order

    def take(self, start, stop):
        return self._order[start:stop]


@pytest.mark.parametrize("variance", ["pairwise", "marginal"])
@pytest.mark.parametrize("sigma", [0.1, 1e-2, 1e-3])
def test_a_race_over_sums_is_the_race_over_factors(variance, sigma):
    noise = population("lognormal", 6, 2_000)
    rules = normal_rules(6, 2_000, delta=0.1, variance=variance, first=50)
    for seed in range(10):
        offsets = np.log(probabilities(6)) + np.random.default_rng(seed).gumbel(size=6)
        order = np.random.default_rng(100 + seed).permutation(2_000)
        summed = PrefixSample(Prefixes(noise, list(rules.schedule), np.random.default_rng(100 + seed)), sigma)
        read = FactorSample(Factors.of(sigma * noise.T), Given(order))
        assert race(summed, offsets, rules) == race(read, offsets, rules)
        assert summed.reads == read.reads


@pytest.mark.parametrize("rewards", ["normal", "uniform", "lognormal"])
def test_the_noise_is_standardised_and_the_counts_add_up(rewards):
    noise = population(rewards, 3, 1_000)
    assert np.allclose(noise.mean(axis=0), 0.0)
    assert np.allclose(noise.std(axis=0), 1.0)
    for key, count in race_all(noise, 5, "test").items():
        row = line(rewards, 3, 1_000, key, count)
        assert row["runs"] == 5
        assert row["low"] <= row["error"] <= row["high"]
        assert 0.0 < row["reads"] <= 1.0


@pytest.mark.parametrize("rewards", ["normal", "uniform", "lognormal"])
def test_the_widths_of_racing_normal_are_the_narrowest_and_know_no_distribution(rewards):
    """As in Figure 1(e). All fall; those of lil'UCB do not know that the population ends."""
    rows = list(sampling_widths.lines(rewards))
    assert [row["T"] for row in rows] == [50 * 2**look for look in range(11)]
    methods = list(sampling_widths.COLOURS)
    for row in rows:
        assert row["racing_normal"] < min(row[method] for method in methods[1:])
    for method in methods:
        widths = [row[method] for row in rows]
        assert widths == sorted(widths, reverse=True)
    first, last = rows[0], rows[-1]
    assert first["racing_normal"] == pytest.approx(0.3129, abs=1e-4)
    infinite = np.sqrt(first["T"] / last["T"])
    assert last["racing_normal"] / first["racing_normal"] < 0.75 * infinite
    assert last["lil_ucb safe"] / first["lil_ucb safe"] > infinite


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
