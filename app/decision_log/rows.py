"""A row of the decision log: one decision, and the rewards that came for it.

In JSON every field is written, those that are None as null; all times are ms since 1970.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from app.bandits.bandit import Bandit
from app.records.left_out import NOTHING_BARRED, Barred


class LoggedArm(msgspec.Struct, frozen=True, gc=False):
    """``place``: from 1. ``propensity``: given the arms before it; None where the policy knows none."""

    id: str
    place: int
    score: float
    propensity: float | None
    pinned: bool


class LoggedReward(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """``default``: nobody sent it, it stands for a reward that did not come in time, of all signals if there
    are some. ``signal``: left out of a bandit without. ``revised``: how many earlier ones it has taken the
    place of; left out where it has of none.
    """

    arm: str
    value: float
    time: int
    default: bool
    signal: str | None = None
    revised: int = 0


class Row(msgspec.Struct, frozen=True, omit_defaults=True):
    """``decision``: the token that choose has answered. ``context``: as it was encoded.

    ``key``, ``group``, ``context``, ``filter``, ``eligible``: None where there was none.
    ``weights``: of the signals; left out of a bandit without. ``barred``: arms that quotas and
    frequency caps blocked; left out where there are none, None where that is not known any more.
    ``rewards``: in the order in which they came; a late one follows the default that it replaces.
    ``prior_version``: as of a choice; left out of a bandit with another prior.
    """

    decision: str
    time: int
    key: str | None
    bandit_version: int
    learner_version: int
    catalogue_version: int
    policy: str
    group: str | None
    context: list[float] | None
    filter: Mapping[str, Any] | None
    eligible: int | None
    arms: list[LoggedArm]
    rewards: list[LoggedReward]
    weights: dict[str, float] | None = None
    barred: Barred | None = NOTHING_BARRED
    prior_version: int | None = None


class LogPages(Protocol):
    """What reads the log. The pages are in the order of time, and each is a bounded number of rows."""

    def pages(
        self, bandit: Bandit, *, from_ms: int | None, to_ms: int | None
    ) -> AsyncIterator[Sequence[Row]]:
        """Rows of decisions made at ``from_ms`` or later and before ``to_ms``; None: without a bound."""
        ...


class CompleteLog(LogPages, Protocol):
    """A log that knows from when on it is complete."""

    async def complete_from(self, bandit: Bandit, from_ms: int | None) -> int | None:
        """From when on no row was dropped, in ms, where that is after ``from_ms``; else None."""
        ...
