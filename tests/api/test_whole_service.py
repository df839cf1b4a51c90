"""The whole service does as a model in plain Python, through whatever Hypothesis thinks of.

Broken services, one mistake each, show that the model notices.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis.errors import Flaky
from service_machine import play

from app.indexes.live import LiveIndex
from app.services.bandits.bandit import Bandit
from app.services.bandits.bandits import Bandits
from app.services.catalogues.catalogues import Catalogues
from app.services.choosing.limits import AllowedRows
from app.services.choosing.selection import SelectionRequest
from app.services.learning import fold, rewards
from app.services.learning.reward_entries import RewardEntries
from app.services.quotas import quota_filters
from app.services.quotas.membership import Membership
from app.services.quotas.shares import Shares
from app.storage.redis_choices import RedisChoices
from shortlist.types import NO_ROWS


def test_the_service_does_as_the_model(store_url: str, tmp_path: Path) -> None:
    play(store_url, tmp_path, runs=20, steps=40)


@pytest.mark.slow
@pytest.mark.timeout(3_600)
def test_the_service_does_as_the_model_for_long(store_url: str, tmp_path: Path) -> None:
    play(store_url, tmp_path, runs=100, steps=60)


def changed(function: Any, change: Callable[..., Any]) -> Any:
    """The function, whose results are changed: ``change`` gets the result and the arguments."""
    return lambda *args, **kwargs: change(function(*args, **kwargs), *args, **kwargs)


def awaited(function: Any, change: Callable[..., Any]) -> Any:
    """As ``changed``, of a coroutine function."""

    async def wrapped(*args: Any, **kwargs: Any) -> Any:
        return change(await function(*args, **kwargs), *args, **kwargs)

    return wrapped


def unlike_any_other(made: Any, *_: Any) -> Any:
    write, decision = made
    return replace(write, dedupe_key=f"{write.dedupe_key}/{time.perf_counter_ns()}"), decision


def all_first(rows: Any, *_: Any) -> Any:
    features, values, first, places = rows
    return features, values, np.ones_like(first), places


def room_for_all(pairs: Any, *_: Any) -> Any:
    room, places, codes = pairs
    return room + 1_000, places, codes


def defaults_that_stay(items: Any) -> Any:
    return fold_rows([(replace(entry, replaces=False), payload) for entry, payload in items])


def revised_that_stay(items: Any) -> Any:
    return fold_rows([(replace(entry, came=()), payload) for entry, payload in items])


def looked_up_alone(found: Any, *_: Any) -> Any:
    values, _is_all = found
    return values, True


def as_they_were(self: Membership, rows: Any, pairs: Any) -> Any:
    self.waiting[rows] = False
    yield


async def as_it_is_now(self: Catalogues, catalogue: Any, arm: str, revision: int) -> Any:
    found = (await self.features(catalogue, [arm])).get(arm)
    return None if found is None else found[0]


async def by_the_terms_of_now(self: Bandits, uid: str, version: int) -> Any:
    return self._by_uid.get(uid)


async def events_of_all(self: RedisChoices, learner: Any, event: str) -> Any:
    SHARED.setdefault((learner.bandit_uid, event), learner)
    return await get_event(self, SHARED[learner.bandit_uid, event], event)


async def nothing_is_hidden(store: Any, deferred: Any) -> set[int]:
    return set()


SHARED: dict[tuple[str, str], Any] = {}
fold_rows, joint = fold._rows, Bandit.joint_features
get_event = RedisChoices.get_event
# One mistake each: where it is, and what stands there instead.
BROKEN: dict[str, tuple[Any, str, Any]] = {
    "a duplicate counts": (RewardEntries, "of_reward", awaited(RewardEntries.of_reward, unlike_any_other)),
    "rewards that add up count the arm each time": (fold, "_rows", changed(fold_rows, all_first)),
    "a late reward leaves the default": (fold, "_rows", defaults_that_stay),
    "a revised reward leaves the one before": (fold, "_rows", revised_that_stay),
    "a learner that is forgotten keeps its sums": (fold, "_forget", lambda now, items, leave_out: iter(())),
    "an arm that is deleted can be chosen": (LiveIndex, "remove", lambda self, ids: None),
    "an arm is learned as it is now": (Catalogues, "features_at", as_it_is_now),
    "rewards count by the terms of now": (Bandits, "find", by_the_terms_of_now),
    "a reward teaches without its context": (
        Bandit,
        "joint_features",
        lambda self, features, context: joint(self, features, None),
    ),
    "keys share their events": (RedisChoices, "get_event", events_of_all),
    "limits do not hold": (AllowedRows, "_pairs", staticmethod(changed(AllowedRows._pairs, room_for_all))),
    "nothing is excluded": (SelectionRequest, "excluded", lambda self, view: NO_ROWS),
    "nothing needs to be activated": (rewards, "hidden_of", nothing_is_hidden),
    "a quota asks for a part of its filter": (
        quota_filters,
        "_looked_up",
        changed(quota_filters._looked_up, looked_up_alone),
    ),
    "an arm that is described anew counts as before": (Membership, "describe", as_they_were),
    "a list may take more than is left of a quota": (Shares, "few", lambda *_, **__: None),
    "a bandit's own filter is forgotten": (Bandit, "filter_with", lambda self, wanted: wanted),
}


# Noticed within a few runs; the others are tried by `make test-slow`.
QUICK = {
    "a duplicate counts",
    "a late reward leaves the default",
    "limits do not hold",
}


@pytest.mark.timeout(3_600)
@pytest.mark.parametrize(
    "mistake",
    [mistake if mistake in QUICK else pytest.param(mistake, marks=pytest.mark.slow) for mistake in BROKEN],
)
def test_a_mistake_is_noticed(
    mistake: str, store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(*BROKEN[mistake])
    with pytest.raises((AssertionError, Flaky)):  # noticed, though not with other draws of the service
        play(store_url, tmp_path, runs=200, steps=40)
