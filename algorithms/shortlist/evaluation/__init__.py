"""Evaluation: the earnings of another policy on a log, and whether one group is really better than another

The log of a policy with one of two arms at random, and the value of a policy with always the second:

    >>> import numpy as np
    >>> from shortlist.evaluation import off_policy
    >>> from shortlist.evaluation.logged import Logged
    >>> rng = np.random.default_rng(0)
    >>> shown = rng.integers(2, size=(2_000, 1))
    >>> clicks = (rng.random(shown.shape) < np.where(shown == 1, 0.6, 0.2)).astype(float)
    >>> log = Logged(propensities=np.full(shown.shape, 0.5), targets=(shown == 1) * 1.0, rewards=clicks)
    >>> state = off_policy.add(off_policy.start(["snips"], places=1, rewards=(0.0, 1.0)), log)
    >>> (place,) = state.estimates("snips").places
    >>> low, high = place.interval
    >>> f"{place.value:.2f}", bool(low < 0.6 < high)
    ('0.62', True)
"""
