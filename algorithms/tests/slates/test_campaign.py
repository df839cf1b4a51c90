"""Whole campaigns: states, batches, looks, ends, bad input."""

import numpy as np
import pytest

from frozen_states import frozen, thawed
from shortlist.slates import ask_tell
from slate_instances import METHODS, lost, means, play, start

SEEDS = range(3)


def told(state, totals, order=None):
    state, pulls = ask_tell.ask(state, len(totals))
    pairs = [(p.number, float(t)) for p, t in zip(pulls, totals, strict=True)]
    return ask_tell.tell(state, [pairs[i] for i in order] if order is not None else pairs)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("n", "k"), [(2, 1), (3, 2), (6, 1), (8, 3), (9, 7)])
@pytest.mark.parametrize("allocation", ["uniform", "g"])
def test_a_campaign_ends_with_the_best_slate(method, n, k, allocation):
    for seed in SEEDS:
        theta = means(n, k, 0.6, seed)
        state = start(method, n=n, k=k, noise_std=0.3, allocation=allocation, seed=seed)
        state = play(state, theta, seed, noise=0.3)
        assert lost(state, theta) == pytest.approx(0.0)
        report = state.report
        assert report.lower <= theta[report.best].sum() <= report.upper
        assert report.excess <= state.settings.epsilon
        assert report.more_pulls == 0
        assert state.issued >= report.observed


@pytest.mark.parametrize("method", METHODS)
def test_batches_and_repetitions_do_not_matter(method):
    theta = means(8, 3, 0.5, 4)
    alone, together = (start(method, noise_std=0.5) for _ in range(2))
    rng = np.random.default_rng(2)
    noise = 0.5 * rng.standard_normal(400)
    alone, pulls = ask_tell.ask(alone, 400)
    results = [(p.number, float(theta[list(p.slate)].sum() + noise[p.number])) for p in pulls]
    results = [results[i] for i in rng.permutation(400)]
    together, _ = ask_tell.ask(together, 400)
    together = ask_tell.tell(together, results)
    for place in range(0, 400, 7):
        alone = ask_tell.tell(alone, results[place : place + 7] + results[max(place - 3, 0) : place + 2])
    assert frozen(alone) == frozen(together)
    assert together.done


def test_a_state_is_never_changed_and_comes_back_from_its_bytes():
    state = start("sa_foa", allocation="g", epsilon=1e-3)
    before = frozen(state)
    after = told(state, np.sin(np.arange(100.0)))
    assert frozen(state) == before
    back = thawed(after)
    assert frozen(back) == frozen(after)
    assert frozen(told(back, np.ones(70))) == frozen(told(after, np.ones(70)))


def test_nothing_new_is_the_very_state():
    state = told(start("icb"), [1.0, 2.0])
    assert ask_tell.tell(state, [(0, 5.0), (1, 6.0), (0, 7.0)]) is state
