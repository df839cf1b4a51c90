"""Linear bandits: Thompson sampling and elimination, exact or by an index, on sums of ridge regression.

An arm is drawn, its reward is added to the sums, and the posterior is computed again:

    >>> import numpy as np
    >>> from shortlist.linear import linear_ts, ridge, ridge_sums
    >>> rng = np.random.default_rng(0)
    >>> arms = np.array([[1.0, 0.0], [0.6, 0.8], [0.0, 1.0]])
    >>> sums = ridge_sums.empty(2)
    >>> for _ in range(50):
    ...     theta = linear_ts.draw(ridge.posterior(sums, ridge=1.0), exploration=0.2, rng=rng)
    ...     row = (arms @ theta).argmax()
    ...     reward = arms[row] @ [0.2, 0.9] + 0.1 * rng.standard_normal()
    ...     sums = ridge_sums.add(sums, arms[[row]], np.array([reward]), np.ones(1, dtype=bool))
    >>> int(row)
    2
"""
