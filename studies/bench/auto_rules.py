"""Posterior and exploration of a key without a prior, as the service has them without a setting."""

from __future__ import annotations

from shortlist.linear import evidence, scales
from shortlist.linear.ridge import Posterior
from shortlist.linear.ridge_sums import RidgeSums
from shortlist.linear.scales import Scales


def posterior(
    sums: RidgeSums,
    auto: int,
    *,
    ridge: float | None = None,
    learns_noise: bool = True,
    spread: float | None = None,
    mean_square: float = 1.0,
    numbers: float | None = None,
) -> Posterior:
    """``ridge``: None, by the rule ``auto``; ``mean_square``: of the lengths of all arms; ``numbers``: of a
    decision with a context, None without one. Cost: O(D^3).
    """
    if auto == 1:
        return Scales(ridge, learns_noise=learns_noise, spread=spread).posterior(sums)
    # In a context a weight that is new is not taken for smaller than by the rule before.
    least = 0.0 if numbers is None else 1.0 / scales.ridge_share(numbers)
    otherwise = mean_square / max(evidence.START, least)
    return Scales(ridge, otherwise, learns_noise, spread, least, (spread,)).posterior(sums)


def exploration(dim: float, auto: int, ratio: float = 0.0) -> float:
    """What multiplies a draw; ``ratio``: of its posterior, 0 with a context or a learned prior."""
    if auto == 1:
        return scales.exploration(dim)
    return scales.exploration_at(scales.exploration_by_evidence(dim), ratio)
