"""The learned priors that this process serves, and what the API shows of a version (``report_of``)."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial

import numpy as np

from app.bandits.bandit import Bandit
from app.bandits.history_prior import takes_history
from app.bandits.prior_version import PriorVersion, bytes_to_prior
from app.learners.newest_versions import NewestVersions
from app.platform.pools import LEARNERS
from app.storage.priors import PriorStore
from shortlist.linear import ridge_sums
from shortlist.linear.learned_prior import LearnedPrior
from shortlist.types import Matrix, Vector

LARGE_RECORD = 1 << 16  # bytes, about d = 125: what is read of it takes some milliseconds


class LearnedPriors(NewestVersions[PriorVersion]):
    """The priors of all bandits of this process."""

    _store: PriorStore

    def has_versions(self, bandit: Bandit) -> bool:
        return bandit.record.prior == "learned"

    def _may_be_unheard_of(self, bandit: Bandit) -> bool:
        return bandit.history is not None and takes_history(bandit.record) and bandit.is_settled

    def served_with(self, bandit: Bandit, version: PriorVersion | None) -> Bandit:
        return bandit.with_prior(version)

    async def kept(self, bandit: Bandit) -> Sequence[int]:
        """The numbers of the versions that rows may name, in order. Raises Unavailable."""
        return await self._store.kept_versions(bandit.uid)

    def oldest_s(self) -> float:
        """The age of the oldest version among the newest ones of this process, s; 0 without any."""
        newest_versions = (self._newest.peek(uid) for uid in self._newest)
        times_ms = [newest.version.record.since_ms for newest in newest_versions if newest is not None]
        return max(0.0, time.time() - min(times_ms) / 1_000.0) if times_ms else 0.0

    async def _read(self, uid: str, number: int) -> PriorVersion | None:
        data = await self._store.read(uid, number)
        if data is None:
            return None
        read = partial(bytes_to_prior, data)
        return read() if len(data) < LARGE_RECORD else await LEARNERS.run(read)


def report_of(bandit: Bandit, version: PriorVersion | None) -> dict[str, object]:
    """The public values of a version, by name, without the covariance. Cost: O(D^3)."""
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
    if learned.history:
        answer["history"] = learned.history
    if not version.shows:
        return answer
    spread = np.sqrt(np.einsum("dd->d", learned.covariance))
    if (mean := served.prior_mean) is not None:
        answer |= _numbers(bandit, mean, noise * spread)
    if bandit.record.signals is not None:
        noises = np.sqrt(learned.residuals.diagonal()).tolist()
        by_signal = zip(bandit.record.signals, noises, learned.mean, strict=False)  # others came later
        answer["signals"] = {
            name: {"noise": signal_noise, **_numbers(bandit, mean, signal_noise * spread)}
            for name, signal_noise, mean in by_signal
        }
    return answer


def _noise(served: Bandit, learned: LearnedPrior) -> float:
    """The noise of the reward, or of the weighted sum of the signals."""
    if served.weighing is None:
        return float(np.sqrt(learned.residuals[0, 0]))
    return served.posterior(ridge_sums.empty(learned.dim)).sigma


def covariance_of(bandit: Bandit, version: PriorVersion) -> Matrix:
    """The covariance of keys around the mean. Shape: (D, D). Cost: O(D^3)."""
    if version.learned is None:
        raise ValueError("a version without a prior has no covariance")
    return _noise(bandit.with_prior(version), version.learned) ** 2 * version.learned.covariance


def _numbers(bandit: Bandit, theta: Vector, spread: Vector) -> dict[str, object]:
    """A mean and the spread of keys around the mean, by the names of the numbers. Shapes: (D,), (D,)."""
    shown = dict[str, object]()
    if bandit.context is not None:
        theta, weights = bandit.context.weights(theta)
        spread, _ = bandit.context.weights(spread)
        shown["weights"] = weights.tolist()
    mean, offset = bandit.numbers_and_offset(theta)
    if len(mean) < len(theta):
        shown["offset"] = offset
    return {"mean": mean.tolist(), "sd": spread[: len(mean)].tolist(), **shown}
