"""The k-center tables: their data, their print, and a run that is small enough for a test."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import center_brute_force as brute_force
from studies.experiments import kcenter_campaigns as campaigns
from studies.experiments import kcenter_data as data
from studies.experiments import kcenter_printed as printed
from studies.experiments import kcenter_tables as tables
from studies.experiments.kcenter_campaigns import Setting, play
from studies.study_commands import REPRODUCTIONS

pytestmark = pytest.mark.rest


def test_clusters_lead_clearly_and_distances_are_those_of_the_definition() -> None:
    points = data.clusters(30, 5, seed=1, dim=400)
    found = data.distances(points)
    np.testing.assert_allclose(found, brute_force.squared(points) / 400, atol=1e-12)
    assert data.greedy(found, 5, 0) == brute_force.greedy(found, 5, 0)
    assert float(found.max()) <= 1.0


def test_judged_distances_are_the_share_of_third_points_that_are_nearer() -> None:
    found = data.distances(data.clusters(8, 3, seed=2, dim=50))
    wanted = np.zeros((8, 8))
    for i in range(8):
        for j in range(8):
            others = [x for x in range(8) if x not in {i, j}]
            if i != j:
                one = np.mean([found[i, j] < found[i, x] for x in others])
                other = np.mean([found[i, j] < found[j, x] for x in others])
                wanted[i, j] = 1.0 - one * other
    np.testing.assert_allclose(data.judged(found), wanted)


def test_the_printed_naive_queries_are_n_m_k() -> None:
    """The print rounds to 1e5, and its line n = 5,000 is n m k of its own m."""
    for table in (printed.TABLE_2, printed.TABLE_4):
        for (n, k), numbers in table.items():
            assert numbers[0] == pytest.approx(n * k * data.DIM, abs=0.5e5 if n < 10_000 else 1e5)


@pytest.mark.parametrize("method", ["ns_ts", "ns_tands", "random"])
@pytest.mark.parametrize("std", [0.05, None])
def test_campaigns_end_with_the_centres_of_greedy(method: str, std: float | None) -> None:
    found = np.array([[0, 0.9, 0.4, 0.1], [0.9, 0, 0.5, 0.8], [0.4, 0.5, 0, 0.3], [0.1, 0.8, 0.3, 0]])
    played = play(Setting(found, 3, std, 0.01, 100_000, 4), method, mix=0.5)
    assert played.done
    assert list(played.centers) == [0, 1, 2]
    cut = play(Setting(found, 3, std, 0.01, 10, 4), method)
    assert not cut.done
    assert cut.queries == 10


@pytest.mark.parametrize("method", ["ns_ts", "ns_tands", "random"])
@pytest.mark.parametrize("std", [0.05, None])
def test_sums_of_answers_are_of_the_mean_and_variance_of_single_answers(
    method: str, std: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Five standard errors: a false alarm in less than one of a million."""
    found = np.array([[0, 0.7, 0.69], [0.7, 0, 0.5], [0.69, 0.5, 0]])
    states = []
    told = campaigns._told  # private: where the run is interrupted

    def keep(*arguments: Any) -> Any:
        states.append(told(*arguments))
        return states[-1]

    monkeypatch.setattr(campaigns, "_told", keep)
    play(Setting(found, 2, std, 1e-9, 4_000, 8), method)
    counts, sums = states[-1].counts[0], states[-1].sums[0]
    assert counts.sum() == states[-1].observed
    variance = found[0] * (1 - found[0]) if std is None else std**2
    assert (np.abs(sums - counts * found[0]) <= 5 * np.sqrt(counts * variance)).all()


def test_movies_are_their_ratings_and_their_features(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    triples = {(int(u), int(f)): int(r) for u, f, r in rng.integers((1, 1, 1), (61, 41, 6), (900, 3))}
    lines = [f"{user}\t{film}\t{rating}\t0" for (user, film), rating in triples.items()]
    (tmp_path / "u.data").write_text("\n".join(lines))
    found = data.movies(tmp_path, seed=1)
    films, users = len({film for _, film in triples}), len({user for user, _ in triples})
    assert found["movielens ratings"].shape == (films, users)
    assert found["movielens features"].shape == (films, 16)
    assert sorted(found["movielens ratings"][found["movielens ratings"] > 0]) == pytest.approx(
        sorted(rating / 5 for rating in triples.values())
    )


@pytest.mark.slow
def test_every_table_has_its_rows(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tables, "patches", lambda n, seed: None)
    few = tables.Effort(1_000_000, 100, 0, 55, 3, deltas=(0.1,))
    tables._points.cache_clear()  # private: a cache of the process
    tables._layout.cache_clear()  # private: a cache of the process
    rows = tables.run("kcenter-tables", True, None, few)["rows"]
    assert {row["table"] for row in rows} == {"I", "II", "III", "IV", "VI", "VII"}
    for row in rows:
        assert row["greedy's"]
        assert row["done"] or row["method"].startswith("ns_tands")
        if row["table"] in {"I", "II", "III", "IV"}:
            assert row["share"] == row["queries"] / (row["n"] * row["k"] * data.DIM)
            assert row["share"] < 0.2
    shown = capsys.readouterr().out
    assert "printed_share" in shown
    assert "more than 1,000,000" in shown
    assert tables.__name__ == "studies." + REPRODUCTIONS["kcenter-tables"][0]
