"""Arm effects against sums over all pairs of rewards, and against what they are to find."""

from __future__ import annotations

import math

import numpy as np
import pytest

from shortlist.errors import InvalidShape, NonFinite
from shortlist.linear import arm_effects
from shortlist.linear.arm_effects import EffectFit, EffectSums


def summed(arms, surprises, weights, places, count) -> EffectSums:
    """The sums of rewards of these arms. ``places``: p of each."""
    n, R, Q, F = np.zeros((4, count))
    for arm, rho, w, p in zip(arms, surprises, weights, places, strict=True):
        n[arm] += w * p**2
        R[arm] += w * p * rho
        Q[arm] += (w * p * rho) ** 2
        F[arm] += w**2 * p**4
    return EffectSums(n, R, Q, F)


def by_pairs(arms, surprises, places) -> EffectFit:
    """The fit, reward by reward: every pair of one arm is a product of its own."""
    own = {arm: [k for k, each in enumerate(arms) if each == arm] for arm in dict.fromkeys(arms.tolist())}
    own = {arm: rows for arm, rows in own.items() if len(rows) > 1}
    n = {arm: sum(places[k] ** 2 for k in rows) for arm, rows in own.items()}
    R = {arm: sum(places[k] * surprises[k] for k in rows) for arm, rows in own.items()}
    products, pairs = {}, {}
    for arm, rows in own.items():
        both = [(s, t) for s in rows for t in rows if s != t]
        products[arm] = math.fsum(places[s] * surprises[s] * places[t] * surprises[t] for s, t in both)
        pairs[arm] = math.fsum(places[s] ** 2 * places[t] ** 2 for s, t in both)
    within = sum(sum((places[k] * surprises[k]) ** 2 for k in own[a]) - R[a] ** 2 / n[a] for a in own)
    noise, variance = within / sum(pairs[a] / n[a] for a in own), 0.0
    for _ in range(arm_effects.ROUNDS):
        g = {a: (1.0 + n[a] * variance / noise) ** -2 for a in own}
        total = sum(g[a] * pairs[a] for a in own)
        found = sum(g[a] * products[a] for a in own) / total
        error = math.sqrt(sum((g[a] * (products[a] - pairs[a] * max(found, 0.0))) ** 2 for a in own)) / total
        variance = max(found - error, 0.0)
    return EffectFit(variance, noise)


@pytest.mark.parametrize("is_placed", [False, True])
@pytest.mark.parametrize("tau", [0.0, 0.3, 1.0])
def test_the_fit_is_that_of_all_pairs(tau: float, is_placed: bool):
    rng = np.random.default_rng(3)
    arms = rng.integers(0, 60, 500)
    places = rng.choice([1.0, 0.6, 0.3], 500) if is_placed else np.ones(500)
    surprises = places * tau * rng.normal(size=60)[arms] + rng.normal(size=500)
    found = arm_effects.fit(summed(arms, surprises, np.ones(500), places, 70))
    wanted = by_pairs(arms, surprises, places)
    assert found.variance == pytest.approx(wanted.variance, rel=1e-12, abs=1e-12)
    assert found.noise == pytest.approx(wanted.noise, rel=1e-12)


@pytest.mark.parametrize("half_life", [None, 10.0])
@pytest.mark.parametrize("tau", [0.0, 0.3, 1.0])
def test_the_variance_is_found_whatever_is_discounted(tau: float, half_life: float | None):
    """2,000 arms, 40 rewards each: the standard error of tau is below .02, so five of them are no chance."""
    rng = np.random.default_rng(5)
    effects, ages = tau * rng.normal(size=2_000), np.arange(40)[:, None]
    weights = np.ones((40, 1)) if half_life is None else 0.5 ** (ages / half_life)
    rho = effects + rng.normal(size=(40, 2_000))
    ones = np.ones((40, 2_000))
    sums = EffectSums(
        (weights * ones).sum(0),
        (weights * rho).sum(0),
        (weights**2 * rho**2).sum(0),
        (weights**2 * ones).sum(0),
    )
    found = arm_effects.fit(sums, discounted=half_life is not None)
    assert math.sqrt(found.variance) == pytest.approx(tau, abs=0.1)
    assert math.sqrt(found.noise) == pytest.approx(1.0, abs=0.02)
    if not tau:
        assert found.variance == 0.0
        assert not np.any(arm_effects.estimates(sums.n, sums.R, found))
    # discounted squares that fade as the sums do find less than half of a small variance
    if half_life is not None and tau == 0.3:
        wrong = EffectSums(sums.n, sums.R, (weights * rho**2).sum(0), sums.F)
        assert arm_effects.fit(wrong, discounted=True).variance < 0.6 * found.variance


@pytest.mark.parametrize(
    ("groups", "shown", "size", "counts"),
    [
        ([4], range(16), 30.0, False),  # the others say otherwise
        ([4], range(16), 1e8, False),
        ([4], [4], 30.0, False),  # nobody else was shown the arm
        ([4], range(16), 3.0, True),  # no more than what others give of some arm
        ([4, 9], [4, 9], 30.0, True),  # a large effect, which two groups have met
        (range(16), range(16), 1e8, True),
    ],
)
def test_what_one_group_alone_says_does_not_count(groups, shown, size: float, counts: bool):
    """16 groups, 20 arms, 5 rewards each; of arm 7 some are larger."""
    rng = np.random.default_rng(6)
    rewards, n = rng.normal(size=(16, 20, 5)), np.full((16, 20), 5.0)
    rewards[list(groups), 7] += size
    n[:, 7], n[list(shown), 7] = 0.0, 5.0
    rewards *= n[:, :, None] > 0.0
    for unit in (1.0, 1e-6):
        sums = np.array([n, unit * rewards.sum(axis=2), unit**2 * (rewards**2).sum(axis=2), n])
        parts = [EffectSums(*sums[:, group]) for group in range(16)]
        limit = arm_effects.most_usual(np.array([arm_effects.sizes(own).max() for own in parts]))
        for group, own in enumerate(parts):
            others = EffectSums(*np.delete(sums, group, axis=1).sum(axis=1))
            count = (arm_effects.sizes(own) <= limit) | arm_effects.confirmed(own, others)
            assert count[7] == (counts or group not in groups)
            assert np.delete(count, 7).all()


@pytest.mark.rest
@pytest.mark.parametrize("discounted", [False, True])
def test_rare_rewards_and_single_groups_are_usual(discounted: bool):
    clicks = [np.zeros(4), np.array([0.0, 1.0, 0.0, 0.0]), np.ones(4)]
    n = np.array([1.0, 50.0, 0.0, 9.0])
    sums = [EffectSums(n, own, own * (n > 0.0), n) for own in clicks]
    sizes = [arm_effects.sizes(own, discounted=discounted).max() for own in sums]
    assert sizes == pytest.approx([0.0, 1.0 / 60.0, 1.0 / 11.0])
    assert arm_effects.most_usual(np.array([7.0])) == math.inf
    assert arm_effects.most_usual(np.array(sizes[:1] * 3)) == math.inf
    assert arm_effects.most_usual(np.arange(1.0, 17.0)) == arm_effects.FAR * 14.0


@pytest.mark.rest
def test_estimates_are_shrunk_by_the_ratio_of_noise_and_variance():
    fitted = EffectFit(0.25, 2.0)
    found, deviations = arm_effects.estimates(np.array([0.0, 8.0, 92.0]), np.array([0.0, 4.0, -50.0]), fitted)
    assert found == pytest.approx([0.0, 0.25, -0.5])
    assert deviations == pytest.approx([0.5, math.sqrt(2.0 / 16.0), math.sqrt(2.0 / 100.0)])
    assert fitted.shrinkage == 8.0
    assert math.isinf(arm_effects.NOTHING.shrinkage)


def test_nothing_is_found_where_no_arm_has_two_rewards():
    alone = EffectSums(np.ones(3), np.ones(3), np.ones(3), np.ones(3))
    assert arm_effects.fit(alone) == arm_effects.NOTHING
    assert arm_effects.fit(EffectSums(*np.zeros((4, 0)))) == arm_effects.NOTHING


@pytest.mark.rest
def test_bad_sums_are_named():
    with pytest.raises(InvalidShape, match="R"):
        arm_effects.fit(EffectSums(np.ones(2), np.ones(3), np.ones(2), np.ones(2)))
    with pytest.raises(NonFinite, match="Q"):
        arm_effects.fit(EffectSums(np.ones(1), np.ones(1), np.array([np.inf]), np.ones(1)))


@pytest.mark.rest
def test_rewards_of_1e9_and_of_one_value_give_finite_numbers():
    sums = EffectSums(*(np.full(3, each) for each in (4.0, 4e9, 4e18, 4.0)))
    found = arm_effects.fit(sums)
    assert math.isfinite(found.variance)
    assert found.noise > 0.0
    assert np.isfinite(arm_effects.estimates(sums.n, sums.R, found)).all()


def test_surprises_of_rewards_that_come_together_are_those_of_learners_of_all_others():
    rng, n, d, signals = np.random.default_rng(5), 7, 3, 2
    features, values = rng.normal(size=(n, d)), rng.normal(size=(n, signals))
    precision = np.diag([1.0, 2.0, 0.5])
    mean = rng.normal(size=(signals, d))
    root = np.linalg.inv(np.linalg.cholesky(precision)).T
    found = arm_effects.surprises_together(features, values - features @ mean.T, root)
    for left_out in range(n):
        others = np.arange(n) != left_out
        x, y = features[others], values[others]
        theta = np.linalg.solve(precision + x.T @ x, precision @ mean.T + x.T @ y)
        expected = features[left_out] @ theta
        np.testing.assert_allclose(found[left_out], values[left_out] - expected, rtol=1e-12, atol=1e-12)


def test_changed_features_add_what_keys_would_make_of_the_change():
    """Against draws of 400,000 keys, whose mean squares miss by .3 % or less: five times that is 1.5 %."""
    rng = np.random.default_rng(5)
    root, mean = rng.normal(size=(3, 3)), rng.normal(size=(2, 3))
    changes, noises = rng.normal(size=(4, 3)), np.array([0.5, 2.0])
    found = arm_effects.drift(changes, mean, root @ root.T, noises)
    assert found.shape == (2, 4)
    for signal in range(2):
        thetas = mean[signal] + math.sqrt(noises[signal]) * rng.normal(size=(400_000, 3)) @ root.T
        wanted = ((changes @ thetas.T) ** 2).mean(axis=1)
        np.testing.assert_allclose(found[signal], wanted, rtol=0.015)
    assert (arm_effects.drift(np.zeros((1, 3)), mean, root @ root.T, noises) == 0.0).all()


def test_sums_fade_until_the_variance_is_what_it_was_and_more():
    n, added = np.array([3.0, 3.0, 3.0, 0.0, 3.0, 1e6]), np.array([0.0, 0.01, 9.0, 0.1, np.inf, 1e-9])
    fitted = EffectFit(0.5, 0.3)
    f = arm_effects.fades(n, added, fitted)
    variances = fitted.noise / (f * n + fitted.shrinkage)
    wanted = np.minimum(fitted.noise / (n + fitted.shrinkage) + added, fitted.variance)
    np.testing.assert_allclose(variances, wanted, rtol=1e-9)
    assert f[0] == 1.0
    assert f[2] == f[4] == 0.0
    assert arm_effects.fades(n, added, arm_effects.NOTHING).tolist() == [1.0] * 6


def test_a_chain_is_that_of_each_arm_by_itself_and_finds_its_fit_again():
    rng = np.random.default_rng(6)
    count, effects = 40, rng.normal(size=40)
    arms = np.sort(np.concatenate((np.arange(count), rng.integers(0, count, 50))))
    n = rng.integers(0, 8, len(arms)).astype(float)
    R = n * effects[arms] + 0.4 * np.sqrt(n) * rng.normal(size=len(arms))
    Q, F = n * (effects[arms] ** 2 + 0.16), n.copy()
    added = np.where(np.diff(arms, prepend=-1) > 0, 0.0, rng.exponential(size=len(arms)) * 0.1)
    sums = EffectSums(n, R, Q, F)
    fitted, whole, factors = arm_effects.fit_chain(sums, arms, added)
    for arm in range(count):
        own = np.zeros(4)
        for place in np.flatnonzero(arms == arm):
            if own[0] and added[place]:
                variance = fitted.noise / (own[0] + fitted.shrinkage) + added[place]
                left = fitted.noise / min(variance, fitted.variance) - fitted.shrinkage
                own *= np.array([1.0, 1.0, left / own[0], left / own[0]]) * left / own[0]
            own += [n[place], R[place], Q[place], F[place]]
        np.testing.assert_allclose([whole.n[arm], whole.R[arm], whole.Q[arm], whole.F[arm]], own, atol=1e-9)
    again = arm_effects.fit(whole, discounted=True)
    assert again.variance == pytest.approx(fitted.variance, rel=1e-9)
    assert again.noise == pytest.approx(fitted.noise, rel=1e-9)
    # What was added up to the second revisions and put in the place of both says the same.
    parts = [n, R, Q, F]
    first = np.flatnonzero((np.diff(arms, prepend=-1) > 0) & (np.diff(arms, append=99) == 0))
    for part, power in zip(parts, (1, 1, 2, 2), strict=True):
        part[first + 1] += factors[first + 1] ** power * part[first]
    left = np.setdiff1d(np.arange(len(arms)), first)
    added[first + 1] = 0.0
    shorter = EffectSums(*(part[left] for part in parts[:3]), parts[3][left])
    merged, _, _ = arm_effects.fit_chain(shorter, arms[left], added[left], start=fitted)
    assert merged.variance == pytest.approx(fitted.variance, rel=1e-9)
    # Without changes it is the fit of all sums of an arm together, to the bit.
    plain, together, _ = arm_effects.fit_chain(shorter, arms[left], np.zeros(len(left)))
    assert plain == arm_effects.fit(together)


@pytest.mark.parametrize("seed", range(40))
def test_a_fit_of_the_same_sums_says_the_same_again(seed: int):
    """Where effects fade all that tells of them, there is none; and without effects nothing fades."""
    rng = np.random.default_rng(seed)
    count, revisions, faded = int(rng.integers(3, 40)), int(rng.integers(2, 5)), 10.0 ** -rng.uniform(0, 9)
    effects, rows, added = rng.normal(size=count) * rng.uniform(), [], []
    for effect in effects:
        for revision in range(revisions):
            w = faded * 10.0 ** -rng.uniform(0, 2)
            rho = effect * rng.uniform(0.3, 1.5) + 0.3 * rng.normal(size=rng.integers(1, 9))
            rows.append((w * len(rho), w * rho.sum(), w**2 * (rho**2).sum(), w**2 * len(rho)))
            added.append(rng.choice([0.0, 0.001, 0.05, 0.5, np.inf]) if revision else 0.0)
    sums, arms = EffectSums(*np.array(rows).T), np.repeat(np.arange(count), revisions)
    first, *_ = arm_effects.fit_chain(sums, arms, np.array(added), discounted=True)
    again, *_ = arm_effects.fit_chain(sums, arms, np.array(added), start=first, discounted=True)
    assert again.variance == pytest.approx(first.variance, rel=1e-3)


@pytest.mark.parametrize("place", [1.0, 0.5])
def test_centred_sums_are_those_of_surprises_less_what_they_have_in_common(place: float):
    """Weights and places are those of each arm, as the sums can tell no more."""
    rng = np.random.default_rng(0)
    arms, surprises = rng.integers(0, 9, 200), rng.normal(size=200) + 0.7
    by_arm = 0.2 + 0.8 * rng.random(10)
    weights, places = by_arm[arms], place * by_arm[::-1][arms]
    sums = summed(arms, surprises, weights, places, 10)
    common = sums.R.sum() / sums.n.sum()
    expected = summed(arms, surprises - common * places, weights, places, 10)
    found = arm_effects.centred(sums)
    for name in ("n", "R", "Q", "F"):
        np.testing.assert_allclose(getattr(found, name), getattr(expected, name), rtol=1e-9, atol=1e-9)
    assert abs(found.R.sum()) < 1e-9
    nothing = EffectSums(*np.zeros((4, 3)))
    assert arm_effects.centred(nothing) is nothing
