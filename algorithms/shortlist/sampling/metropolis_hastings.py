"""A Metropolis-Hastings step that reads as few observations as it needs: the race of two arms, without noise.

Notation
    N           number of observations y_n
    x, x'       current and proposed state; arm 0 and arm 1
    u           uniform on (0, 1]
    q           density of the proposal
    f_0         u p(x) q(x' | x) for arm 0, p(x') q(x | x') for arm 1
    f_n         p(y_n | .)

The step accepts x' when arm 1 has the larger product: the uniform u takes the place of the Gumbel variables.

Source: Chen and Ghahramani, "Scalable Discrete Sampling as a Multi-Armed Bandit Problem", Equation 12.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shortlist import checks
from shortlist.errors import InvalidParameter
from shortlist.sampling.factors import Factors, RandomOrder
from shortlist.sampling.race import FactorSample, race
from shortlist.sampling.racing_normal import FIRST, normal_rules
from shortlist.types import Vector


@dataclass(frozen=True, slots=True)
class Transition:
    """``reads`` counts evaluations of log p(y_n | .), two for an observation; at most 2 N."""

    accepted: bool
    reads: int


def metropolis_hastings_step(
    likelihoods: Factors,
    *,
    log_prior: Vector,
    log_proposal: Vector,
    delta: float,
    rng: np.random.Generator,
    first: int = FIRST,
) -> Transition:
    """Decide on a proposal; for Gaussian means wrong with probability at most ``delta``.

    ``likelihoods`` are the log p(y_n | x) in row 0, log p(y_n | x') in row 1. Shapes: log_prior (2,): log
    p(x), log p(x'); log_proposal (2,): log q(x' | x), log q(x | x').
    Raises: InvalidShape, NonFinite, InvalidParameter (delta not in (0, 1), first < 2, not two arms).
    """
    if likelihoods.arms != 2 or likelihoods.size < 1:
        raise InvalidParameter("likelihoods must have two rows, and a column", argument="likelihoods")
    for name, array in (("log_prior", log_prior), ("log_proposal", log_proposal)):
        checks.shape(name, array, (2,))
        checks.finite(name, array)
    rules = normal_rules(2, likelihoods.size, delta=delta, variance="pairwise", first=first)
    # log u is minus an exponential variable: never -inf, as log of a uniform zero would be
    offsets = log_prior + log_proposal + np.array([-rng.standard_exponential(), 0.0])
    sample = FactorSample(likelihoods, RandomOrder(likelihoods.size, rng))
    return Transition(race(sample, offsets, rules) == 1, sample.reads)
