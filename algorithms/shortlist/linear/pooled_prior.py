"""The pooled prior: a new key starts from the observations of all other keys, weighed as if they were few.

Notation
    G_k, M_k, n_k   gram, moment and number of observations of key k; discounted, each counts by its weight
    G, M, n         the same, summed over all keys but k
    m               strength: how many observations the others count as
    a               min(1, m / n)

The posterior of key k has precision ridge I + a G + G_k and moment a M + M_k: the likelihood of the other
keys' observations enters with power a. m = infinity would give the posterior of one learner for all keys,
m = 0 that of a key by itself.

Source: Ibrahim and Chen, "Power Prior Distributions for Regression Models" (2000), Equation 1.
"""

from __future__ import annotations

from dataclasses import replace

from shortlist import checks
from shortlist.linear.ridge_sums import RidgeSums
from shortlist.linear.sum_algebra import plus, scaled


def with_pooled_prior(own: RidgeSums, others: RidgeSums, *, strength: float) -> RidgeSums:
    """Return the sums that imply the posterior of a key; their ``observations`` count the key's own.

    ``own`` are the sums of key k, ``others`` those of all other keys, ``strength`` is m. ``others`` is
    computed as all keys less k, at a time when the sum of all keys may lack the newest rewards of k; then it
    holds their negative. The gram returned still has no negative eigenvalue, because a <= 1.

    Cost: O(d^2). Raises: InvalidShape, InvalidParameter (strength <= 0).
    """
    checks.in_range("strength", strength, above=0.0)
    if min(others.observations, others.weight) <= 0:
        return own
    prior = scaled(others, min(1.0, strength / others.weight))
    return replace(plus(prior, own), observations=own.observations)
