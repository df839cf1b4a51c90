"""The pooled prior: a new key starts from what all other keys have taught, as if it were a few observations.

Notation
    G_k, M_k, n_k   gram, moment and observations of key k
    G, M, n         the same, summed over all keys but k
    m               strength: how many observations the others count as
    a               min(1, m / n)

The posterior of key k has precision ridge I + a G + G_k and moment a M + M_k: the likelihood of the others
to the power a. With m = infinity it would be that of one learner for all keys, with m = 0 the plain one.

Source: Ibrahim and Chen, "Power Prior Distributions for Regression Models" (2000), Equation 1.
"""

from __future__ import annotations

from dataclasses import replace

from app.algorithms import checks
from app.algorithms.linear.ridge import RidgeSums
from app.algorithms.linear.sum_algebra import plus, scaled


def with_pooled_prior(own: RidgeSums, others: RidgeSums, *, strength: float) -> RidgeSums:
    """Return the sums that imply the posterior of a key; ``observations`` are the key's own.

    ``others`` may be short of the newest rewards, and hold the negative of as many of ``own``: as a <= 1, the
    gram that is returned has no negative eigenvalue all the same.

    Cost: O(d^2). Raises: InvalidShape, InvalidParameter (strength <= 0).
    """
    checks.in_range("strength", strength, above=0.0)
    if others.observations <= 0:
        return own
    prior = scaled(others, min(1.0, strength / others.observations))
    return replace(plus(prior, own), observations=own.observations)
