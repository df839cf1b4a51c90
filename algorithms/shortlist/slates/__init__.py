"""Top-k identification from total rewards (full-bandit feedback).

A campaign asks for slates, is told their totals, and says when it knows the best one:

    >>> import numpy as np
    >>> from shortlist.slates import icb
    >>> from shortlist.slates.ask_tell import ask, tell
    >>> rng, worth = np.random.default_rng(0), np.array([0.1, 0.9, 0.3, 0.8])
    >>> state = icb.start(n=4, k=2, epsilon=0.5, delta=0.05, noise_std=0.1, seed=7)
    >>> while not state.done:
    ...     state, pulls = ask(state, 10)
    ...     totals = [worth[list(pull.slate)].sum() + 0.1 * rng.standard_normal() for pull in pulls]
    ...     state = tell(state, [(pull.number, total) for pull, total in zip(pulls, totals)])
    >>> [int(arm) for arm in state.report.best]
    [1, 3]
"""
