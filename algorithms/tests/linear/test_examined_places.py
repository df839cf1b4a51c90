"""How likely each place of a list is looked at, from lists that are drawn by what is believed of arms."""

from __future__ import annotations

import numpy as np
import pytest

from shortlist.linear.places import (
    FADE_LISTS,
    FADED,
    FIRST,
    HIGH,
    KNOWN_LISTS,
    LOW,
    STRENGTH,
    TRUSTED_LISTS,
    PlaceNumbers,
    faded,
    fit,
)

K, P = 120, np.array([1.0, 0.6, 0.4, 0.3, 0.2])


def numbers(y: np.ndarray, expected: np.ndarray, p: np.ndarray) -> PlaceNumbers:
    return PlaceNumbers(
        np.full(y.shape[1], float(len(y))),
        np.maximum(expected, 0.0).sum(0),
        y.sum(0),
        ((y - p * expected) ** 2).sum(0),
    )


def nothing(places: int) -> PlaceNumbers:
    return PlaceNumbers(*np.zeros((4, places)))


def played(rng, truth, *, rounds: int = 20, lists: int = 200, noise: float | None = None):
    """Lists by a noisy knowledge of what arms are worth, which is biased by the p in use; what is found."""
    worth, places = rng.beta(2, 6, K), len(truth)
    p, w, known = np.ones(places), np.ones(places), nothing(places)
    for _ in range(rounds):
        believed = worth * (p @ truth / (p @ p))
        top = np.argsort(-(believed + 0.1 * rng.normal(size=(lists, K))), 1)[:, :places]
        if noise is None:
            y = (rng.random((lists, places)) < truth * worth[top]).astype(float)
        else:
            y = truth * worth[top] + noise * rng.normal(size=(lists, places))
        known = faded(known, numbers(y, believed[top], p))
        p, w = fit(known)
    return p, w


@pytest.mark.parametrize("truth", [P, np.ones(5), np.array([1.0, 0.9, 0.85, 0.8, 0.75]), P[:2]])
def test_it_finds_the_truth_after_four_thousand_lists(truth: np.ndarray):
    """Within .09 in each of 5 draws: of a place with p = 1 the ratio of two counts of some 400 clicks, which
    are a tenth faded each, has a deviation of .02 to .04. False alarms: below 1 in 500.
    """
    for seed in range(5):
        p, _ = played(np.random.default_rng(seed), truth)
        assert np.abs(p - truth).max() < 0.09


def test_what_is_believed_of_places_alone_does_not_confirm_itself():
    """Arms are alike, and each stands where it is expected to, so that under any p what it earns there is as
    expected: from p that are off by up to .8, and from too small ones, p comes back.
    """
    for believed in (np.ones(5), P**2):
        p, known = believed, nothing(5)
        for _ in range(20):
            expected = np.tile(0.4 * P / p, (200, 1))
            known = faded(known, numbers(np.tile(0.4 * P, (200, 1)), expected, p))
            p, _ = fit(known)
        assert np.abs(p - P).max() < 0.12


@pytest.mark.rest
def test_clicks_at_low_places_are_surer_and_constant_noise_is_the_same_everywhere():
    p, w = played(np.random.default_rng(1), P)
    assert w[0] == 1.0
    assert (np.diff(w) > 0).all()
    assert (w <= 1.0 / p + 1e-12).all()
    _, w = played(np.random.default_rng(1), P, noise=0.3)
    # a ratio of two variances of some thousand each, from 1: false alarms below 1 in 1,000
    assert w.max() < 1.15


def test_it_is_the_shrunken_ratio_of_ratios():
    rng = np.random.default_rng(2)
    n, M, Y = np.full(3, 50.0), np.array([20.0, 18.0, 15.0]), np.array([12.0, 7.0, 4.0])
    V = rng.uniform(5, 9, 3)
    p, w = fit(PlaceNumbers(n, M, Y, V))
    trusted, more = 50.0 / (50.0 + TRUSTED_LISTS), STRENGTH * Y[0] / n[0]
    M = trusted * M + (1.0 - trusted) * M.mean()
    ratio = (Y + more) / (M + more * M.sum() / Y.sum())
    np.testing.assert_allclose(p, np.clip(ratio / ratio[0], LOW, HIGH), rtol=1e-12)
    wanted = np.clip((V / n)[0] / (V / n), 1.0, np.maximum(1.0, 1.0 / p))
    known = 1.0 - (1.0 - FIRST) * np.exp(-50.0 / KNOWN_LISTS)
    np.testing.assert_allclose(w, wanted * [1.0, known, known], rtol=1e-6)


def test_places_that_no_list_has_reached_are_as_the_last_and_nothing_known_is_one():
    four = np.array([[50.0, 50.0, 0, 0], [20.0, 20.0, 0, 0], [12.0, 6.0, 0, 0], [8.0, 4.0, 0, 0]])
    p, w = fit(PlaceNumbers(*four))
    assert p[1] == p[2] == p[3] < 0.8
    assert w[1] == w[2] == w[3] > FIRST
    for sums in (np.zeros((4, 3)), np.array([[5.0, 5], [-0.0, 0], [1, 1], [1, 1]]), -four):
        p, w = fit(PlaceNumbers(*sums))
        assert (p == 1.0).all()
        assert (w == 1.0).all()


def test_what_was_known_fades_by_how_many_lists_came():
    before, since = PlaceNumbers(*np.full((4, 2), 8.0)), PlaceNumbers(*np.full((4, 2), 2.0 * FADE_LISTS))
    for own in faded(before, since):
        np.testing.assert_allclose(own, FADED**2 * 8.0 + 2.0 * FADE_LISTS)
    same = faded(before, nothing(2))
    assert all((own == 8.0).all() for own in same)
