"""What is shown of a learned prior: what keys have in common, and in which coordinates they differ."""

from __future__ import annotations

import numpy as np

from app.services.bandits.bandit import Bandit
from app.services.bandits.prior_version import PriorVersion
from shortlist.linear import ridge_sums
from shortlist.linear.learned_prior import LearnedPrior
from shortlist.types import Matrix, Vector


def report_of(bandit: Bandit, version: PriorVersion | None) -> dict[str, object]:
    """What may be shown of a version, by name, without the covariance. Cost: O(D^3)."""
    names = ("version", "keys", "observations", "noise", "offset", "mean", "sd", "since_ms")
    answer: dict[str, object] = {**dict.fromkeys(names), "version": 0, "keys": 0, "observations": 0.0}
    if version is None or version.learned is None:
        return answer
    learned = version.learned
    served = bandit.with_prior(version)
    noise = _noise(served, learned)
    answer |= {
        "version": version.number,
        "keys": learned.keys,
        "observations": learned.observations,
        "noise": noise,
        "since_ms": version.record.since_ms,
    }
    if not version.shows:
        return answer
    spread = np.sqrt(np.einsum("dd->d", learned.covariance))
    if (mean := served.prior_mean) is not None:
        answer |= _numbers(bandit, mean, noise * spread)
    if bandit.record.signals is not None:
        noises = np.sqrt(learned.residuals.diagonal()).tolist()
        known = zip(bandit.record.signals, noises, learned.mean, strict=False)  # others came later
        answer["signals"] = {
            name: {"noise": own, **_numbers(bandit, mean, own * spread)} for name, own, mean in known
        }
    return answer


def _noise(served: Bandit, learned: LearnedPrior) -> float:
    """That of the reward, or of the weighted sum of the signals."""
    if served.weighing is None:
        return float(np.sqrt(learned.residuals[0, 0]))
    return served.posterior(ridge_sums.empty(learned.dim)).sigma


def covariance_of(bandit: Bandit, version: PriorVersion) -> Matrix:
    """By how much keys differ from the mean. Shape: (D, D). Cost: O(D^3)."""
    if version.learned is None:
        raise ValueError("a version without a prior has no covariance")
    return _noise(bandit.with_prior(version), version.learned) ** 2 * version.learned.covariance


def _numbers(bandit: Bandit, theta: Vector, spread: Vector) -> dict[str, object]:
    """A mean and how much keys differ from it, by what they are numbers of. Shapes: (D,), (D,)."""
    shown = dict[str, object]()
    if bandit.context is not None:
        theta, weights = bandit.context.weights(theta)
        shown["weights"] = weights.tolist()
    mean, offset = bandit.observed_theta(theta)
    if len(mean) < len(theta):
        shown["offset"] = offset
    return {"mean": mean.tolist(), "sd": spread[: len(mean)].tolist(), **shown}
