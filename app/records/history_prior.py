"""A history's knowledge of keys, as stored with a catalogue: ``shortlist.linear.history_prior``."""

from __future__ import annotations

import msgspec
import numpy as np

from shortlist.linear.history_prior import HistoryPrior
from shortlist.types import Matrix, Vector

MAX_PRIOR_DIM = 256  # it is stored with the catalogue, which each process reads whenever one is made


class HistoryPriorRecord(msgspec.Struct, frozen=True):
    """Never changed. All fields are of ``HistoryPrior``; ``mean`` and the lower triangle of ``covariance``
    are float64, for whatever features the catalogue has.
    """

    mean: bytes
    covariance: bytes
    noise: float
    liking: float
    keys: int
    directions: int

    @property
    def dim(self) -> int:
        return len(self.mean) // 8

    def prior(self) -> HistoryPrior:
        """Decode the prior. Raises ValueError for a wrong one. Cost: O(d^3)."""
        mean, lower = (np.frombuffer(data, dtype="<f8") for data in (self.mean, self.covariance))
        if len(lower) != len(mean) * (len(mean) + 1) // 2:
            raise ValueError("the covariance must be a lower triangle, row by row")
        covariance = whole_of(lower, len(mean))
        prior = HistoryPrior(mean, covariance, self.noise, self.liking, self.keys, self.directions)
        prior.check()
        return prior


def history_record(prior: HistoryPrior) -> HistoryPriorRecord:
    lower = prior.covariance[np.tril_indices(len(prior.mean))]
    mean, covariance = (numbers.astype("<f8").tobytes() for numbers in (prior.mean, lower))
    return HistoryPriorRecord(mean, covariance, prior.noise, prior.liking, prior.keys, prior.directions)


def whole_of(lower: Vector, dim: int) -> Matrix:
    """A symmetric matrix from its lower triangle."""
    covariance = np.zeros((dim, dim))
    covariance[np.tril_indices(dim)] = lower
    covariance += np.tril(covariance, -1).T
    return covariance
