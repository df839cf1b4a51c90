"""The triangle inequality narrows intervals, never wrongly: against brute force, and with mistakes put in."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest

import center_brute_force as brute_force
from shortlist.kcenter import race
from shortlist.kcenter.center_set import CenterSet
from shortlist.kcenter.coordinates import blocked
from shortlist.kcenter.ds_ts import ds_ts
from shortlist.kcenter.ds_ucb import ds_ucb
from shortlist.kcenter.triangle import implied

pytestmark = pytest.mark.rest

METHODS = [ds_ucb, ds_ts]


def bounds_of(found: np.ndarray, centers: int, rng: np.random.Generator) -> list[np.ndarray]:
    """Bounds that hold, some of them exact, of squared distances: of pairs, and of two centres."""
    width = rng.choice([0.0, 0.05, 0.5], size=found.shape)
    width = np.minimum(width, width.T)
    lower, upper = np.maximum(found * (1 - width), 0.0), found * (1 + width)
    both = [side[:centers] for side in (lower, upper)]
    return [*both, *(side[:, :centers] for side in both)]


@pytest.mark.parametrize("seed", range(20))
def test_what_is_implied_is_the_best_that_any_third_point_says_and_holds(seed: int) -> None:
    rng = np.random.default_rng(seed)
    points, count = rng.normal(size=(12, 1 + seed % 3)), 1 + seed % 5
    found = brute_force.squared(points)
    lower, upper, near, far = bounds_of(found, count, rng)
    low, high = implied(lower, upper, near, far)
    for center, point in product(range(count), range(len(points))):
        others = [other for other in range(count) if other != center]
        least = [0.0]
        for other in others:
            least.append(near[center, other] ** 0.5 - upper[other, point] ** 0.5)
            least.append(lower[other, point] ** 0.5 - far[center, other] ** 0.5)
        most = [far[center, other] ** 0.5 + upper[other, point] ** 0.5 for other in others]
        assert low[center, point] == pytest.approx(max(least) ** 2, abs=1e-12)
        assert high[center, point] == pytest.approx(min(most, default=np.inf) ** 2)
        assert low[center, point] <= found[center, point] + 1e-12
        assert high[center, point] >= found[center, point] - 1e-12


def along(seed: int, *, n: int = 60, dim: int = 4_096) -> np.ndarray:
    """Points along a diagonal, a little off it: what the triangle inequality says is nearly tight."""
    rng = np.random.default_rng(seed)
    found: np.ndarray = rng.random((n, 1)) + 0.02 * rng.random((n, dim))
    return found


def played(
    method: Callable[..., CenterSet], points: np.ndarray, k: int, *, triangle: bool, delta: float = 0.01
) -> CenterSet:
    layout = blocked(points, rng=np.random.default_rng(1), width=16)
    return method(layout, k=k, delta=delta, first=0, rng=np.random.default_rng(2), triangle=triangle)


@pytest.mark.parametrize("method", METHODS)
def test_the_centres_are_greedys_for_fewer_queries(method: Callable[..., CenterSet]) -> None:
    """Queries are counted: they are the same on every machine."""
    saved = []
    for seed in range(4):
        points = along(seed)
        wanted = brute_force.greedy(brute_force.squared(points), 10, 0)
        plain, narrowed = (played(method, points, 10, triangle=triangle) for triangle in (False, True))
        assert plain.centers.tolist() == narrowed.centers.tolist() == wanted
        saved.append(1 - narrowed.reads / plain.reads)
    assert np.mean(saved) > 0.1


@pytest.fixture
def checked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many bounds did not hold, after each pull of a race over points that are set as ``Race.true``."""
    wrong: list[int] = []
    pull = race.Race.pull

    def pulled(self: race.Race, *arguments: Any) -> None:
        pull(self, *arguments)
        true = self.true[self.centers]  # type: ignore[attr-defined]
        found = len(self.centers)
        outside = (self.lower[:found] > true + 1e-9) | (self.upper[:found] < true - 1e-9)
        outside[np.arange(found), self.centers] = False
        wrong.append(int(outside.sum()))

    monkeypatch.setattr(race.Race, "pull", pulled)
    return wrong


def watched(points: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    scale = float(np.square(np.ptp(points, axis=0)).max())
    true = brute_force.squared(points) / (points.shape[1] * scale)
    monkeypatch.setattr(race.Race, "true", true, raising=False)


@pytest.mark.parametrize("method", METHODS)
def test_every_bound_holds_after_every_pull(
    method: Callable[..., CenterSet], checked: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With delta so small that no interval fails."""
    points = along(9)
    watched(points, monkeypatch)
    played(method, points, 8, triangle=True, delta=1e-9)
    assert len(checked) > 8
    assert not any(checked)


def squares_for_a_metric(*bounds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The mistake: squared distances are no metric."""
    low, high = implied(*(np.square(side) for side in bounds))
    return np.sqrt(low), np.sqrt(high)


def means_for_bounds(lower: np.ndarray, upper: np.ndarray, *between: np.ndarray) -> Any:
    """The mistake: the middle of an interval in place of its ends."""
    middle, of_centers = (lower + upper) / 2, (between[0] + between[1]) / 2
    return implied(middle, middle, of_centers, of_centers)


def one_side_for_both(lower: np.ndarray, upper: np.ndarray, *between: np.ndarray) -> Any:
    """The mistake: the same end of all intervals."""
    return implied(lower, lower, between[0], between[0])


@pytest.mark.parametrize("mistake", [squares_for_a_metric, means_for_bounds, one_side_for_both])
def test_bounds_that_follow_wrongly_are_noticed(
    mistake: Any, checked: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    points = along(9)
    watched(points, monkeypatch)
    monkeypatch.setattr(race, "implied", mistake)
    played(ds_ucb, points, 8, triangle=True, delta=1e-9)
    assert any(checked)


@pytest.mark.parametrize("mistake", [squares_for_a_metric, one_side_for_both])
def test_with_bounds_that_follow_wrongly_the_centres_are_wrong(
    mistake: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(race, "implied", mistake)
    wrong = 0
    for seed in range(4):
        points = along(seed)
        wanted = brute_force.greedy(brute_force.squared(points), 10, 0)
        wrong += played(ds_ucb, points, 10, triangle=True).centers.tolist() != wanted
    assert wrong
