"""Posterior and exploration of a key without a prior, as the service has them without a setting."""

from __future__ import annotations

from shortlist.linear import evidence, scales
from shortlist.linear.exploration import exploration_at, exploration_by_evidence
from shortlist.linear.ridge import Posterior
from shortlist.linear.ridge_sums import RidgeSums
from shortlist.linear.scales import Scales


def posterior(
    sums: RidgeSums,
    *,
    ridge: float | None = None,
    learns_noise: bool = True,
    spread: float | None = None,
    mean_square: float = 1.0,
    numbers: float | None = None,
) -> Posterior:
    """``ridge``: None, what follows from the sums; ``mean_square``: of the lengths of all arms.
    ``numbers``: of a decision with a context, None without one. Cost: O(D^3).
    """
    least = 0.0 if numbers is None else 1.0 / scales.ridge_share(numbers)
    otherwise = mean_square / max(evidence.START, least)
    return Scales(ridge, otherwise, learns_noise, spread, least, (spread,)).posterior(sums)


def exploration(dim: float, ratio: float = 0.0) -> float:
    """What multiplies a draw; ``ratio``: of its posterior, 0 with a context or a learned prior."""
    return exploration_at(exploration_by_evidence(dim), ratio)
