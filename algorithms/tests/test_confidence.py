"""The confidence radius against the determinants of the theorem that it comes from, and variants that fail.

Theorem 2 of Abbasi-Yadkori, Pal and Szepesvari 2011 has sqrt(ridge) S + sigma sqrt(2 log(1 / delta) +
log(det V / det(ridge I))). Of all T features of norm at most L, those that share the directions of an
orthonormal basis equally make the largest determinant. So for T a multiple of d the radius is the theorem's
value for such features, with determinants of a matrix that is built from them, reward by reward.
"""

from __future__ import annotations

import itertools
import math
from functools import cache

import numpy as np
import pytest

from shortlist.confidence import beta
from shortlist.errors import InvalidParameter

VALUES = {
    "delta": (1e-6, 0.05, 0.9),
    "rounds": (1, 40),
    "dim": (1, 3, 16),
    "ridge": (0.01, 1.0, 30.0),
    "arm_norm": (0.5, 2.0),
    "parameter_norm": (0.0, 1.0, 3.0),
    "noise": (0.1, 1.0, 4.0),
}
GRID = [dict(zip(VALUES, values, strict=True)) for values in itertools.product(*VALUES.values())]
for case in GRID:
    case["horizon"] = case.pop("rounds") * case["dim"]


def of_features(features, *, delta, ridge, parameter_norm, noise):
    """The theorem's radius for these features, by log-determinants."""
    dim = features.shape[1]
    precision = ridge * np.eye(dim)
    for row in features:
        precision += np.outer(row, row)
    _, log_det = np.linalg.slogdet(precision)
    _, log_det_prior = np.linalg.slogdet(ridge * np.eye(dim))
    deviation = noise * np.sqrt(np.log(1 / delta**2) + log_det - log_det_prior)
    return parameter_norm * ridge**0.5 + float(deviation)


def independent(*, horizon, dim, arm_norm, **rest):
    basis, _ = np.linalg.qr(np.random.default_rng(dim).standard_normal((dim, dim)))
    return of_features(arm_norm * np.tile(basis, (horizon // dim, 1)), **rest)


@cache
def expected_radii():
    return [independent(**case) for case in GRID]


def agrees(radius):
    return all(
        math.isclose(radius(**case), expected, rel_tol=1e-9)
        for case, expected in zip(GRID, expected_radii(), strict=True)
    )


def written_out(
    *, delta, horizon, dim, ridge, arm_norm, parameter_norm, noise, two=2.0, factor=None, share=None
):  # fmt: skip
    """The formula once more, in a form whose parts can be changed."""
    volume = (dim if factor is None else factor) * math.log(
        1 + horizon * arm_norm**2 / ((dim if share is None else share) * ridge)
    )
    return math.sqrt(ridge) * parameter_norm + noise * math.sqrt(two * math.log(1 / delta) + volume)


def changed(**replaced):
    """The formula as if some of the arguments had these values."""
    return lambda **case: written_out(**(case | replaced))


BROKEN = {
    "without d before the logarithm": changed(factor=1),
    "without d in the logarithm": changed(share=1),
    "without the 2 before log(1 / delta)": changed(two=1.0),
    "without the noise": changed(noise=1.0),
    "without the norm of the features": changed(arm_norm=1.0),
    "the norm of the features not squared": lambda **c: written_out(
        **(c | {"arm_norm": c["arm_norm"] ** 0.5})
    ),
    "without the norm of theta*": changed(parameter_norm=1.0),
    "without the ridge": changed(ridge=1.0),
    "without sqrt(ridge)": lambda **c: written_out(**c) + (1 - math.sqrt(c["ridge"])) * c["parameter_norm"],
    "ridge for sqrt(ridge)": lambda **c: (
        written_out(**c) + (c["ridge"] - math.sqrt(c["ridge"])) * c["parameter_norm"]
    ),
    "the ridge only before theta*": lambda **c: (
        written_out(**(c | {"ridge": 1.0})) + (math.sqrt(c["ridge"]) - 1) * c["parameter_norm"]
    ),
    "half of delta": lambda **c: written_out(**(c | {"delta": c["delta"] / 2})),
    "one reward more": lambda **c: written_out(**(c | {"horizon": c["horizon"] + 1})),
}


def test_the_radius_is_that_of_the_theorem_for_the_features_of_largest_determinant():
    assert agrees(beta)


def test_the_form_that_is_broken_below_agrees():
    assert agrees(written_out)


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_radius_does_not_agree(name):
    assert not agrees(BROKEN[name])


@pytest.mark.rest
@pytest.mark.parametrize("seed", range(20))
def test_no_features_of_that_norm_need_a_larger_radius(seed):
    rng = np.random.default_rng(seed)
    dim, horizon, arm_norm = int(rng.integers(1, 9)), int(rng.integers(1, 60)), float(rng.uniform(0.1, 5))
    features = rng.standard_normal((horizon, dim)) * rng.lognormal(0, 1, dim)
    features *= arm_norm / np.linalg.norm(features, axis=1, keepdims=True)
    rest = {"delta": 0.1, "ridge": float(rng.uniform(0.01, 9)), "parameter_norm": 0.7, "noise": 0.3}
    most = beta(horizon=horizon, dim=dim, arm_norm=arm_norm, **rest)
    assert of_features(features, **rest) <= most * (1 + 1e-12)


@pytest.mark.rest
def test_the_defaults_are_the_papers():
    assert beta(0.025, horizon=20_000, dim=16) == pytest.approx(
        1 + math.sqrt(2 * math.log(40) + 16 * math.log(1251))
    )
    ones = {"ridge": 1.0, "arm_norm": 1.0, "parameter_norm": 1.0, "noise": 1.0}
    assert beta(0.3, horizon=7, dim=2) == beta(0.3, horizon=7, dim=2, **ones)


@pytest.mark.rest
@pytest.mark.parametrize(
    "change",
    [
        {"delta": 0.0}, {"delta": 1.0}, {"horizon": 0}, {"dim": 0}, {"ridge": 0.0}, {"arm_norm": -1.0},
        {"parameter_norm": -1.0}, {"noise": -1.0}, {"noise": float("nan")},
    ],
)  # fmt: skip
def test_bad_parameters_are_named(change):
    name = next(iter(change))
    with pytest.raises(InvalidParameter, match=name):
        beta(**({"delta": 0.1, "horizon": 9, "dim": 2} | change))
