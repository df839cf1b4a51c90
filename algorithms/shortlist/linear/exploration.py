"""Exploration of a learner by default: the drawn multiple of sigma V^-1/2 xi.

Notation
    d           dimension of what is learned
    V, sigma    precision and noise of the posterior; xi is standard normal (d,)
    u           ratio of the posterior: the larger, the less noise rewards have (``evidence``)

Each factor is at least 0, and multiplies ``exploration`` of ``linear_ts.draw``. The constants are measured:
``shortlist bench defaults``.
"""

from __future__ import annotations

import math

from shortlist import checks

MOST_BY_EVIDENCE = 0.5  # of Thompson sampling
LITTLE_NOISE = 64.0  # u where exploration is half way to ``MOST_BY_EVIDENCE``
WITH_PRIOR = (0.3, 0.6)  # multiple of the posterior that is drawn, with very many keys: of variation 0 and 1
WITH_HISTORY = (0.1, 0.4, 300.0)  # with no own rewards; how much more with very many; of a key for half of it


def exploration_of_dimension(dim: float) -> float:
    """Return 9 / (4 sqrt(d)), at most 9 / 16: the multiple of sigma V^-1/2 xi added by Thompson sampling.

    The regret bounds of Abeille and Lazaric ask for a multiple in proportion to sqrt(d). It explores too
    much, and the more so in many dimensions, where most of a draw is in directions without rewards.
    """
    return min(0.5625, 2.25 / math.sqrt(dim))


def exploration_by_evidence(dim: float) -> float:
    """Return ``exploration_of_dimension``, at most 1 / 2: ``least`` of a posterior of maximum evidence."""
    return min(MOST_BY_EVIDENCE, exploration_of_dimension(dim))


def exploration_at(least: float, ratio: float) -> float:
    """Return what grows from ``least`` to 1 / 2, if that is more, with ``ratio``, u of maximum evidence.

    Where rewards have little noise, one tells what an arm is worth: then it pays to explore many directions.
    """
    return least + max(MOST_BY_EVIDENCE - least, 0.0) * ratio / (ratio + LITTLE_NOISE)


def exploration_with_prior(alone: float, *, keys: int, variation: float) -> float:
    """Return the drawn multiple of the posterior for Thompson sampling, with a prior of so many keys.

    With the keys it goes from ``alone``, for a learner without a prior, to one of ``WITH_PRIOR``, whatever
    the dimension: the prior knows which directions matter. Where noise hides the differences of keys, a
    reward says little of its key, and exploration pays off late: there the multiple is half.

    Raises InvalidParameter (keys < 1, variation < 0).
    """
    checks.in_range("keys", keys, least=1)
    checks.in_range("variation", variation, least=0.0)
    share, (least, most) = 1.0 / keys, WITH_PRIOR
    # DEVIATION (Hong et al., Alg. 1): a draw is a part of the posterior's; see its page.
    informed = least + (most - least) * min(variation, 1.0)
    multiplier: float = alone**share * informed ** (1.0 - share)
    return multiplier


def exploration_with_history(own: float) -> float:
    """Return the multiple of the posterior that Thompson sampling draws, with a history's prior.

    ``own``: mean number of own rewards of a key. Raises InvalidParameter (own < 0).
    """
    checks.in_range("own", own, least=0.0)
    least, more, half = WITH_HISTORY
    return least + more * own / (own + half)
