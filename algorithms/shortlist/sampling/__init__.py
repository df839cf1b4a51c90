"""Draws from p(i) proportional to exp(sum of many log factors of i), from a part of the factors.

>>> import numpy as np
>>> from shortlist.sampling import racing_normal
>>> from shortlist.sampling.factors import Factors
>>> rng = np.random.default_rng(0)
>>> log_factors = rng.normal(size=(5, 20_000)) / 100
>>> log_factors[3] += 0.001  # and so e^20 times as likely
>>> drawn = racing_normal.racing_normal(Factors.of(log_factors), delta=0.05, rng=rng, draws=3)
>>> drawn.rows.tolist(), drawn.reads < drawn.exhaustive_reads
([3, 3, 3], True)
"""
