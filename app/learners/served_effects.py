"""The arm effects that this process serves, and the answers of the API for a version (``items_of``)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Literal

import numpy as np

from app.bandits.bandit import Bandit
from app.bandits.effect_version import EffectVersion, bytes_to_record, version_of
from app.bandits.settings import AUTO, PositionRule
from app.learners.newest_versions import NewestVersions
from app.platform.pools import LEARNERS
from shortlist.linear import ages
from shortlist.types import Rows, Vector

LARGE_RECORD = 1 << 16  # bytes: about 1,000 arms, whose numbers take some milliseconds to read

Order = Literal["largest", "smallest", "newest", "surest"]


class ServedEffects(NewestVersions[EffectVersion]):
    """The effects of all bandits of this process."""

    def has_versions(self, bandit: Bandit) -> bool:
        return bandit.record.arm_effects != "off"

    def served_with(self, bandit: Bandit, version: EffectVersion | None) -> Bandit:
        return bandit.with_effects(version)

    async def _read(self, uid: str, number: int) -> EffectVersion | None:
        """A whole one, or what differs from the version before, which is mostly in memory."""
        data = await self._store.read(uid, number)
        if data is None:
            return None
        record = bytes_to_record(data)
        before = await self.version(uid, record.base)
        if before is None and record.base:
            return None
        size = len(data) + (0 if before is None else before.n.nbytes)
        read = partial(version_of, record, before)
        return read() if size < LARGE_RECORD else await LEARNERS.run(read)


def weights_of(bandit: Bandit, version: EffectVersion) -> Vector:
    """The weights of a version's signals. Shape: (J,)."""
    if bandit.weighing is None:
        return np.ones(1)
    return np.array(bandit.weighing.weights)[: len(version.R)]


def ordered(bandit: Bandit, version: EffectVersion, order: Order) -> Rows:
    """The arms of a version in an order, equal ones by id. Shape: (K,). Cost: O(K log K)."""
    weights = weights_of(bandit, version)
    if order in {"largest", "smallest"}:
        effects = weights @ version.effects
        return np.argsort(-effects if order == "largest" else effects, kind="stable")
    if order == "newest":
        return np.argsort(-version.revisions, kind="stable")
    return np.argsort(weights**2 @ version.deviations**2, kind="stable")


def summary_of(bandit: Bandit, version: EffectVersion | None) -> dict[str, object]:
    """The public values of a version, by name, without its arms. ``bandit``: as served with its prior."""
    of_places = {**_places_of(bandit, version), "ages": _ages_of(bandit, version)}
    if version is None or version.record.space != bandit.record.space:
        return {"version": 0, "spread": 0.0, "noise": None, "rewards": 0, "arms": 0, **of_places}
    record, squares = version.record, weights_of(bandit, version) ** 2
    answer: dict[str, object] = {
        **of_places,
        "version": version.shown_number,
        "spread": float(np.sqrt(squares @ record.variances)),
        "noise": _known_noise(float(squares @ record.noises)),
        "rewards": record.decisions,
        "arms": len(version.names),
    }
    if bandit.record.signals is not None:
        names = list(bandit.record.signals)
        answer["signals"] = {
            name: {"spread": float(np.sqrt(variance)), "noise": _known_noise(noise)}
            for name, variance, noise in zip(names, record.variances, record.noises, strict=False)
        }
    return answer


def _known_noise(variance: float) -> float | None:
    """The noise of this variance; None: no arm has two rewards, which alone tell."""
    return float(np.sqrt(variance)) or None


def _places_of(bandit: Bandit, version: EffectVersion | None) -> dict[str, object]:
    """The probability of a look at each place of a list, as far as lists of the bandit have gone; or a note
    why not. Stated ones, with a note.
    """
    fit = None if version is None else version.record.places
    rule = bandit.record.position
    if isinstance(rule, PositionRule):
        return {"places": rule.examination, "places_note": "as the position of the bandit states"}
    if rule != AUTO:
        return {"places": None, "places_note": 'the position of the bandit is not "auto"'}
    if bandit.record.reward.allows_negative or (fit is not None and fit.is_below):
        return {"places": None, "places_note": "rewards may be less than 0"}
    if fit is None:
        return {"places": None, "places_note": "no reward of a list of two arms or more has counted yet"}
    shown = (
        max(position for position, count in enumerate(fit.all_sums[0]) if count) + 1
        if any(fit.all_sums[0])
        else 0
    )
    return {"places": fit.p[:shown], "places_note": None}


def _ages_of(bandit: Bandit, version: EffectVersion | None) -> Sequence[dict[str, float]]:
    """What the age of an arm adds, from each age on up to the oldest that was rewarded.

    None where it is not served: after a move until the next fit, and while there is no learned prior.
    """
    is_served = version is not None and bandit.learns_effects and version.record.space == bandit.record.space
    if version is None or version.record.ages is None or not is_served:
        return []
    fit = version.record.ages
    oldest = max((age for age, count in enumerate(fit.n) if count), default=-1)
    columns = zip(ages.FROM_S, fit.effects, fit.deviations, strict=True)
    shown = [{"from_s": from_s, "effect": effect, "sd": wide} for from_s, effect, wide in columns]
    return shown[: oldest + 1]


def item_of(bandit: Bandit, version: EffectVersion, arm: str, row: int) -> dict[str, object]:
    """The public values of an arm; ``row``: in the version, -1: no rewards yet."""
    weights, record = weights_of(bandit, version), version.record
    if row < 0:
        effects, variances, count = np.zeros(len(weights)), np.array(record.variances), 0.0
    else:
        both = version.at(np.array([row]))
        effects, variances = both[0][:, 0], both[1][:, 0] ** 2
        count = float(version.n[:, row].max())
    item: dict[str, object] = {
        "arm": arm,
        "effect": float(weights @ effects),
        "sd": float(np.sqrt(weights**2 @ variances)),
        "weight": count,
    }
    if bandit.record.signals is not None:
        columns = zip(bandit.record.signals, effects.tolist(), np.sqrt(variances).tolist(), strict=False)
        item["signals"] = {name: {"effect": effect, "sd": sd} for name, effect, sd in columns}
    return item


def items_of(bandit: Bandit, version: EffectVersion, rows: Sequence[int]) -> Sequence[dict[str, object]]:
    """The public values of some arms of a version."""
    return [item_of(bandit, version, version.names[row], row) for row in rows]
