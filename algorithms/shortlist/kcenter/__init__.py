"""k points of a set that are near to all others, from a part of the coordinates or from noisy distances.

>>> import numpy as np
>>> from shortlist.kcenter import coordinates, ds_ucb
>>> rng = np.random.default_rng(0)
>>> groups = np.repeat([[0.0], [1.0], [2.0]], 20, axis=0)
>>> points = groups + 0.1 * rng.standard_normal((60, 5_000))
>>> found = ds_ucb.ds_ucb(coordinates.blocked(points, rng=rng), k=3, delta=0.05, rng=rng)
>>> sorted(int(row) // 20 for row in found.centers)  # one of each group
[0, 1, 2]
>>> found.reads < 3 * points.size
True
"""
