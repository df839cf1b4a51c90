"""The benchmark of one-shot search, on a case small enough for a test."""

from __future__ import annotations

import numpy as np
import pytest

from shortlist.mips.read_costs import READS_ALONE
from studies.bench import bounded_me, bounded_me_figures
from studies.bench.screening_methods import Sweep
from studies.experiments import bounded_me_guarantee, coordinates, movielens
from studies.study_commands import REPRODUCTIONS

pytestmark = pytest.mark.rest

METHODS = {"bounded_me", "racing", "greedy_mips", "lsh_mips", "pca_mips", "hnswlib"}


FEW = bounded_me.Settings(
    shares=(0.01, 0.5),
    ef_search=(16,),
    screening=Sweep(budgets=(0.02, 1.0), hashes=((2, 2), (20, 2)), depths=(0, 4)),
    least_s=0.0,
)


def check(rows):
    assert {row["method"] for row in rows} >= METHODS
    assert {row["k"] for row in rows} == set(bounded_me.KS)
    for row in rows:
        assert 0 <= row["precision"] <= 1
        assert row["suboptimality"] <= (row["epsilon"] or np.inf)
        assert row["time"] > 0
        if row["guarantee"] == "exact":
            assert (row["precision"], row["reads"]) == (1, 1)
        if row["reads"] is not None:
            assert 0 < row["reads"] <= 1 or row["method"] == "lsh_mips"  # hashing may cost more than a scan
        if (row["method"], row["setting"]) in {("greedy_mips", 1.0), ("pca_mips", 0)}:
            assert (row["precision"], row["suboptimality"], row["reads"]) == (1, 0, 1)


def test_every_method_has_its_rows_and_the_exact_ones_are_exact():
    check(bounded_me.case("low_rank", 200, 1_000, 2, READS_ALONE, settings=FEW))


def test_films_are_searched_by_every_method(movielens_100k):
    rows = bounded_me.films(movielens_100k, 3, FEW)
    check(rows)
    assert {(row["data"], row["n"]) for row in rows} == {("movielens", 200)}


def test_real_films_are_found_from_few_products(real_movielens):
    """The largest single product says much of a film's score: more than the same share of films at random."""
    rows = bounded_me.films(real_movielens, 3, FEW)
    check(rows)
    found = {row["setting"]: row for row in rows if (row["method"], row["k"]) == ("greedy_mips", 5)}
    assert found[0.02]["precision"] > 0.2
    assert found[0.02]["reads"] < 0.04
    assert {row["N"] for row in rows} == {bounded_me.FACTORS}


def test_the_figures_have_a_panel_for_every_kind_of_data(tmp_path):
    pytest.importorskip("matplotlib", reason="the extra plots is not installed")
    rows = bounded_me.case("low_rank", 50, 200, 1, READS_ALONE, settings=FEW)
    for speed in bounded_me_figures.SPEEDS:
        path = bounded_me_figures.draw(rows, speed, tmp_path / f"{speed}.png")
        assert path.stat().st_size > 1_000


def test_factors_multiply_to_the_ratings(movielens_100k):
    """With all but one factor little is lost of the ratings; films and users are in their order."""
    ratings = movielens.read(movielens_100k)
    films, users = movielens.rating_factors(ratings, 1_000)
    matrix = np.zeros((48, 200))
    matrix[ratings.users, ratings.movies] = ratings.values
    assert films.shape == (200, 47)
    assert users.shape == (48, 47)
    lost = np.linalg.norm(matrix - users @ films.T)
    assert lost == pytest.approx(np.linalg.svd(matrix, compute_uv=False)[-1])


@pytest.mark.parametrize("data", bounded_me.DATA)
def test_data_is_as_described(data):
    vectors, asked = coordinates.make(data, 300, 400, 5, np.random.default_rng(0))
    assert vectors.shape == (300, 400)
    assert asked.shape == (5, 400)
    assert vectors.dtype == np.float32
    share = (np.linalg.svd(vectors - vectors.mean(axis=0), compute_uv=False) ** 2)[: coordinates.RANK].sum()
    assert (share > 0.9 * (vectors**2).sum()) == (data == "low_rank")
    assert (vectors.min() >= 0) == (data == "uniform")


def test_figure_1_is_below_the_diagonal():
    for order, plan in bounded_me_guarantee.CASES:
        row = bounded_me_guarantee.row(order, 0.3, 2, plan, n=500, dim=20_000)
        assert row["below_epsilon"]
        assert row["failures"] == 0
        assert 0 < row["reads"] < 1


def test_what_can_be_reproduced_exists():
    for name in ("figure1-bounded-me", "figures2to4-bounded-me"):
        module, text = REPRODUCTIONS[name]
        assert text
        assert module.startswith(("bench.", "experiments."))
