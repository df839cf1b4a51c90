"""The checks that all algorithms share: what they let through, what they refuse, and what they say."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.sparse import csr_array

from shortlist import checks
from shortlist.embedding.randomised_svd import right_singular_vectors
from shortlist.errors import InvalidParameter, InvalidShape, NonFinite
from shortlist.guarantee import exactly
from shortlist.kcenter import ns_tands, ns_ts, ns_ucb
from shortlist.linear import epsilon_greedy, igw, linear_ts, ridge, ridge_sums, softmax, sub_ts
from shortlist.mips.adaptive import Scan
from shortlist.slates import exhaustive, icb, sa_foa, saqm
from shortlist.slates.matroids import PartitionMatroid


@pytest.mark.parametrize("expected", [(2, 3), (None, 3), (2, None), (None, None)])
def test_a_shape_that_fits_passes(expected):
    checks.shape("x", np.zeros((2, 3)), expected)


@pytest.mark.parametrize(
    ("expected", "wanted"),
    [
        ((2, 4), "2, 4"),
        ((3, 3), "3, 3"),
        ((None, 4), "any, 4"),
        ((None,), "any,"),
        ((2, 3, None), "2, 3, any"),
    ],
)
def test_a_shape_that_does_not_fit_is_named(expected, wanted):
    with pytest.raises(InvalidShape) as raised:
        checks.shape("x", np.zeros((2, 3)), expected)
    assert (raised.value.argument, str(raised.value)) == ("x", f"x must have shape ({wanted}), not (2, 3)")


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_is_named(bad):
    checks.finite("x", np.zeros(3))
    checks.finite("x", np.zeros(0))
    with pytest.raises(NonFinite) as raised:
        checks.finite("x", np.array([0.0, bad]))
    assert (raised.value.argument, str(raised.value)) == ("x", "x must be finite")


BOUNDS = {"above": 1.0, "below": 3.0, "least": 1.5, "most": 2.5}


@pytest.mark.parametrize(
    ("names", "good", "bad", "text"),
    [
        (["above"], (1.0001, 1e300), (1.0, -5.0), "> 1"),
        (["below"], (2.9999, -1e300), (3.0, 5.0), "< 3"),
        (["least"], (1.5, 1e300), (1.4999, -1e300), ">= 1.5"),
        (["most"], (2.5, -1e300), (2.5001, 1e300), "<= 2.5"),
        (["above", "below"], (2.0,), (1.0, 3.0), "> 1 and < 3"),
        (["least", "most"], (1.5, 2.5), (1.4, 2.6), ">= 1.5 and <= 2.5"),
        (["above", "most"], (1.1, 2.5), (1.0, 2.6), "> 1 and <= 2.5"),
        ([], (0.0, -1e300), (), "finite"),
    ],
)
def test_a_value_outside_of_its_range_is_named(names, good, bad, text):
    bounds = {name: BOUNDS[name] for name in names}
    for value in good:
        checks.in_range("x", value, **bounds)
    for value in (*bad, math.nan, math.inf, -math.inf):
        with pytest.raises(InvalidParameter) as raised:
            checks.in_range("x", value, **bounds)
        assert (raised.value.argument, str(raised.value)) == ("x", f"x must be {text}")


def test_an_exact_answer_is_off_by_nothing_and_never_fails():
    found = exactly("why")
    assert (found.kind, found.epsilon, found.delta, found.assumes) == ("exact", 0.0, 0.0, None)
    assert found.reason == "why"


@pytest.mark.parametrize("bad", [0.0, 5e-324, 0.999e-100, 1.0, -0.05, math.nan])
def test_the_probability_of_failure_is_not_too_small_to_be_shared(bad):
    for value in (1e-100, 0.05, 1.0 - 2.0**-53):
        checks.delta(value)
    with pytest.raises(InvalidParameter) as raised:
        checks.delta(bad)
    assert (raised.value.argument, str(raised.value)) == ("delta", "delta must be < 1 and >= 1e-100")


SLATES = {"n": 6, "k": 2, "epsilon": 0.5, "delta": 0.1, "noise_std": 1.0}
CENTERS = {"n": 6, "k": 2, "delta": 0.1}
STARTS = [
    *((method, SLATES) for method in (saqm, sa_foa, icb, exhaustive)),
    *((method, CENTERS) for method in (ns_ts, ns_ucb, ns_tands)),
]


@pytest.mark.parametrize(("method", "needed"), STARTS, ids=[method.__name__ for method, _ in STARTS])
def test_options_have_defaults_and_those_that_are_missing_or_unknown_are_named(method, needed):
    own = {} if needed is SLATES else {"rng": np.random.default_rng(0)}
    method.start(**own, **needed)
    for name in needed:
        with pytest.raises(InvalidParameter, match=f"{name} must be given") as caught:
            method.start(**own, **{key: value for key, value in needed.items() if key != name})
        assert caught.value.paths == [(name,)]
    for name in ("rounds", "method"):
        with pytest.raises(InvalidParameter, match=f"{name} is no option"):
            method.start(**own, **needed, **{name: 1})
    with pytest.raises(InvalidParameter, match="delta must be a number"):
        method.start(**own, **(needed | {"delta": "0.1"}))


@pytest.mark.parametrize(("method", "needed"), STARTS, ids=[method.__name__ for method, _ in STARTS])
def test_options_of_another_kind_are_named(method, needed):
    own = {} if needed is SLATES else {"rng": np.random.default_rng(0)}
    method.start(**own, **(needed | {"n": np.int64(6), "k": np.int32(2)}))
    bad = {"n": 6.5, "k": 2.0}
    bad |= {"seed": 1.5} if needed is SLATES else {"first": 0.5}
    for name, value in bad.items():
        with pytest.raises(InvalidParameter, match=f"^{name} must be an integer$") as caught:
            method.start(**own, **(needed | {name: value}))
        assert caught.value.paths == [(name,)]


@pytest.mark.parametrize("method", [saqm, icb, exhaustive], ids=lambda method: method.__name__)
def test_a_matroid_is_one_of_the_arms_of_the_campaign(method):
    groups, limits = (0, 0, 1, 1, 2, 2), (1, 1, 1)
    method.start(**SLATES, matroid=PartitionMatroid(groups, limits, 2))
    for bad in ("rules", [1], PartitionMatroid(groups, limits, 3), PartitionMatroid(groups[:4], limits, 2)):
        with pytest.raises(InvalidParameter, match="matroid must be a PartitionMatroid of 2 of 6 arms"):
            method.start(**SLATES, matroid=bad)
    with pytest.raises(InvalidParameter, match="limits must be an integer"):
        method.start(**SLATES, matroid=PartitionMatroid(groups, (1, 1, 1.5), 2))


@pytest.mark.rest
def test_lists_in_place_of_arrays_and_seeds_in_place_of_generators_are_named():
    rng, arms = np.random.default_rng(0), np.eye(3)
    sums = ridge_sums.add(ridge_sums.empty(3), arms, np.ones(3), np.ones(3, bool))
    known = ridge.posterior(sums, ridge=1.0)
    calls = {
        "features": lambda: ridge_sums.add(sums, arms.tolist(), np.ones(3), np.ones(3, bool)),
        "values": lambda: ridge_sums.add(sums, arms, [1.0] * 3, np.ones(3, bool)),
        "first": lambda: ridge_sums.add(sums, arms, np.ones(3), [True] * 3),
        "vectors": lambda: sub_ts.choose(known, Scan(arms.tolist()), k=1, exploration=1.0, rng=rng),
        "query": lambda: Scan(arms).search([1.0, 2.0, 3.0], k=1),
        "scores": lambda: softmax.choose([1.0, 2.0], k=1, temperature=1.0, rng=rng),
    }
    for name, call in calls.items():
        with pytest.raises(InvalidShape, match=f"^{name} must be an array of numpy, not of type list"):
            call()
    seeded = [
        lambda: sub_ts.choose(known, Scan(arms), k=1, exploration=1.0, rng=1),
        lambda: linear_ts.draws(known, 2, exploration=1.0, rng=1),
        lambda: softmax.choose(arms[0], k=1, temperature=1.0, rng=1),
        lambda: softmax.choose_within(arms[0], lambda place: np.array([place]), k=1, temperature=1.0, rng=1),
        lambda: igw.choose(arms[0], k=1, gamma=2.0, rng=1),
        lambda: epsilon_greedy.choose(arms[0], k=1, epsilon=0.5, rng=1),
        lambda: right_singular_vectors(csr_array(arms, dtype=np.float32), 1, 1),
    ]
    for call in seeded:
        with pytest.raises(InvalidParameter, match="rng must be a generator, not of type int"):
            call()
