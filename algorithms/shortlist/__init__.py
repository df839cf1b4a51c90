"""Algorithms of five papers on bandits, inner-product search and sampling: arrays in, arrays and a cost out.

One problem is one folder, one algorithm is one file, named as in its paper.

    linear      linear bandits: Sub-TS, Sub-Elim, their exact counterparts, softmax, inverse-gap weighting
    mips        maximum inner-product search with a guarantee: BoundedME, racing, the adaptive ladder
    index       the same by structures made once: graph, inverted file, norm-pruned scan (extra ``index``)
    sampling    draws from a softmax of many terms: racing samplers, lil'UCB, Gumbel-max
    slates      the best slate from total rewards: SAQM, SA-FOA, ICB
    kcenter     k representative points from sampled or noisy distances: DS- and NS- algorithms
    evaluation  what another policy would have earned on a log: IPS, SNIPS, DR, confidence sequences

``LinearBandit`` of ``linear.bandit`` can be imported from here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shortlist.linear.bandit import LinearBandit

__all__ = ["LinearBandit"]

__version__ = "3.0.0"


def __getattr__(name: str) -> type[LinearBandit]:
    """Import it when it is asked for: who needs one algorithm does not load the others."""
    if name != "LinearBandit":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from shortlist.linear.bandit import LinearBandit  # noqa: PLC0415 - see above

    return LinearBandit


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
