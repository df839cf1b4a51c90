"""Figure 1 and the bounds of Theorems 1 to 4: beside the print written out in plain loops, and small runs."""

from __future__ import annotations

import math

import numpy as np
import pytest

from shortlist.kcenter.intervals import lil
from studies.experiments import kcenter_figure as figure
from studies.experiments import kcenter_theorems as theorems
from studies.experiments.kcenter_data import distances, greedy
from studies.study_commands import REPRODUCTIONS

pytestmark = pytest.mark.rest


def divergence(x: float, y: float) -> float:
    return sum(p * math.log(p / q) for p, q in ((x, y), (1 - x, 1 - y)) if p)


@pytest.fixture(scope="module")
def corner_distances() -> np.ndarray:
    return distances(theorems.corners(9, 4, 400, seed=3))


@pytest.mark.parametrize("delta", [0.1, 1e-6])
@pytest.mark.parametrize("k", [2, 3, 4])
def test_theorem_1_is_as_printed(corner_distances: np.ndarray, k: int, delta: float) -> None:
    s, n, level = greedy(corner_distances, k, 0), len(corner_distances), math.log(1 / (2.4 * delta))
    total = 0.0
    for v in set(range(n)) - set(s):
        total += max(
            level / max(divergence(corner_distances[v, s[i]], corner_distances[s[p], s[i]]) for i in range(p))
            for p in range(1, k)
        )
    for p in range(1, k):
        total += max(
            level / max(divergence(corner_distances[s[p], s[i]], corner_distances[v, s[i]]) for i in range(p))
            for v in set(range(n)) - set(s[: p + 1])
        )
    assert theorems.least_queries(corner_distances, s, delta) == pytest.approx(total / 2)


@pytest.mark.parametrize("dim", [400, 10**9])
def test_theorem_2_counts_as_its_proof(corner_distances: np.ndarray, dim: int) -> None:
    k, n, delta = 3, len(corner_distances), 0.1
    s = greedy(corner_distances, k, 0)
    total = 0
    for v in range(n):
        for i in range(k - 1):
            last = s.index(v) if v in s else k - 1  # stages in which v is not yet a centre
            gaps = []
            for p in range(i + 1, last + 1):
                nearest = min(corner_distances[v, s[j]] for j in range(p))
                widest = min(corner_distances[s[p], s[j]] for j in range(p))
                gaps.append(max(corner_distances[v, s[i]] - nearest, widest - corner_distances[v, s[i]]))
            if gaps:
                t = 3
                while lil(np.array([t]), delta / n**2)[0] > min(gaps) / 2 and t < 2 * dim:
                    t = (
                        t * 2
                        if lil(np.array([2 * t]), delta / n**2)[0] > min(gaps) / 2
                        else t + max(t // 10**5, 1)
                    )
                total += min(t, 2 * dim)
    assert theorems.most_queries(corner_distances, s, delta, dim) == pytest.approx(total, rel=1e-4)


def test_theorem_4_sums_the_stages(corner_distances: np.ndarray) -> None:
    """With two pairs both are asked alike: T* = 8 / gap^2."""
    three = corner_distances[np.ix_([0, 1, 2], [0, 1, 2])]
    s = greedy(three, 2, 0)
    gap = three[0, s[1]] - three[0, 3 - s[1]]
    assert theorems.stage_times(three, s).tolist() == pytest.approx([8 / gap**2], rel=1e-3)
    times = theorems.stage_times(corner_distances, greedy(corner_distances, 4, 0))
    assert times[:2] == pytest.approx(theorems.stage_times(corner_distances, greedy(corner_distances, 3, 0)))
    assert len(times) == 3


def test_small_runs_lie_between_the_bounds(capsys: pytest.CaptureFixture[str]) -> None:
    rows = theorems.run("kcenter-theorems", True, None, deltas=(0.1,))["rows"]
    for row in rows[:1]:
        assert row["greedy's"]
        for method in ("ds_ucb", "ds_ts", "ds_ucb lil"):
            assert row["theorem 1, at least"] < row[method] < row["theorem 2, at most"] <= row["n m k"] * 2
    for row in rows[1:]:
        assert row["gamma 1"] < row["heuristic"] <= row["ns_tands"]
    assert "Theorems 3 and 4" in capsys.readouterr().out
    assert theorems.__name__ == "studies." + REPRODUCTIONS["kcenter-theorems"][0]


def test_the_sweep_of_c_alpha_trades_queries_for_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figure, "patches", lambda n, seed: None)
    rows = figure.run("kcenter-figure1", True, None, c_alphas=(0.001, 0.1))["rows"]
    few, many, *proven = rows
    assert (few["C_alpha"], many["C_alpha"]) == (0.001, 0.1)
    assert few["queries"] < many["queries"]
    assert few["errors"] > 0.0 == many["errors"]
    assert {row["errors"] for row in proven} == {0.0}
    assert [(row["method"], row["C_alpha"]) for row in proven] == [
        (method, ci) for ci in ("kl", "kl, triangle") for method in ("ds_ucb", "ds_ts")
    ]
    assert figure.__name__ == "studies." + REPRODUCTIONS["kcenter-figure1"][0]
