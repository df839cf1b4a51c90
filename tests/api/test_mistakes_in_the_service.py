"""Broken services, one mistake each: the model of the whole service notices every one of them."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from service_machine import play
from service_model import Arm, Json
from service_play import Focus

from app.bandits.bandit import Bandit
from app.bandits.served_bandits import Bandits
from app.catalogues.catalogues import Catalogues
from app.exposure_limits.bandit_quotas import BanditQuotas
from app.exposure_limits.caps import FrequencyCapKey, FrequencyCaps
from app.exposure_limits.closed_arms import ClosedArms
from app.exposure_limits.known_quotas import KnownQuotas
from app.fold import fold
from app.indexes.live import LiveIndex
from app.measuring import explain
from app.platform.errors import NoArms
from app.records.log_entries import ForgetEntry
from app.rewards import rewards
from app.rewards.decisions import Decisions
from app.rewards.reward_entries import RewardEntries
from app.selection.list_limits import AllowedRows
from app.selection.selection import SelectionRequest
from app.serving.choosing import Choosing
from app.serving.constraints.base import View
from app.serving.pipeline import Pipeline
from app.storage.choices import Choices
from app.storage.types import LearnerId
from shortlist.types import NO_ROWS

pytestmark = pytest.mark.rest


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
    return replace(rows, first=np.ones_like(rows.first))


def room_for_all(pairs: Any, *_: Any) -> Any:
    room, places, codes = pairs
    return room + 1_000, places, codes


def defaults_that_stay(items: Any) -> Any:
    return fold_rows([(replace(entry, replaces=False), payload) for entry, payload in items])


def revised_that_stay(items: Any) -> Any:
    return fold_rows([(replace(entry, came=()), payload) for entry, payload in items])


def stored_again(now: Any, items: Any, *_: Any) -> Any:
    return iter([entry.learner for entry, _ in items])


async def as_it_is_now(self: Catalogues, catalogue: Any, arm: str, revision: int) -> Any:
    found = (await self.features(catalogue, [arm])).get(arm)
    return None if found is None else found[0]


async def by_the_terms_of_now(self: Bandits, uid: str, version: int) -> Any:
    return self._by_uid.get(uid)


async def events_of_all(self: Choices, learner: Any, event: str) -> Any:
    SHARED.setdefault((learner.bandit_uid, event), learner)
    return await get_event(self, SHARED[learner.bandit_uid, event], event)


async def nothing_is_hidden(store: Any, deferred: Any) -> set[int]:
    return set()


async def refunded_by_nobody(self: BanditQuotas, charge: Any) -> None:
    pass


async def remembered_though_not_shown(self: FrequencyCaps, subject: Any, shown: Any) -> None:
    pass


async def taken_by_a_dry_run(self: Pipeline, choice: Any, request: Any, group: Any) -> Any:
    allowed = await self.select(choice, request, group, "0" * 16, own_rng=None, deferred=False)
    return allowed.request, allowed.selection


async def taken_again(self: Choosing, bandit: Any, request: Any) -> Any:
    made = await choice_of_a_request(self, bandit, request)
    if request.event_id is not None and not made.charges:
        learner, context = bandit.learner_for(request.key), bandit.encoded(request.context)
        with suppress(NoArms):
            await self._new_choice(bandit, learner, request, context)
    return made


def all_pins(self: ClosedArms, pins: Any, whole: Any, few: Any) -> Any:
    return [pin for pin, _ in pins]


def of_any_key(subject: Any, bandit: Any, *_: Any) -> Any:
    return subject and subject._replace(key=LearnerId(bandit.uid, "anybody"))


SHARED: dict[tuple[str, str], Any] = {}
fold_rows, joint = fold.rows_of, Bandit.joint_features
get_event = Choices.get_event
choice_of_a_request = Choosing._choice  # private: the mistake is made in there
REWARDED = ("choose", "reward_some")
LATE = (*REWARDED, "time_passes")


def rule_of(body: Json) -> Json:
    return {"aggregate": None, "wait_s": None, "default": None, **body.get("reward", {})}


def adds_up(body: Json) -> bool:
    return bool(rule_of(body)["aggregate"] == "sum")


def has_a_default(body: Json) -> bool:
    return rule_of(body)["wait_s"] is not None and bool(rule_of(body)["default"])


def the_last_counts(body: Json) -> bool:
    return bool(rule_of(body)["aggregate"] == "last")


def is_per_key(body: Json) -> bool:
    return bool(body["scope"] == "per_key")


def repeats(body: Json) -> bool:
    return "repeats" in body and body["repeats"]["counts"] == "shown"


def repeats_per_key(body: Json) -> bool:
    return repeats(body) and is_per_key(body)


def repeats_no_arm(body: Json) -> bool:
    """And is logged: a choice that is made again with what it could not have shows the arm of before."""
    return "log" in body and repeats(body) and body["repeats"]["by"] == "arm"


def is_single(request: Any) -> bool:
    """One arm: of lists it is often not known what they could not have."""
    return request[0]["k"] == 1 and is_shown(request)


def is_for_nobody(told: Any) -> bool:
    """Of decisions with one arm: so learners stay as they are."""
    return bool(told[1] == 2)


def filters(body: Json) -> bool:
    return bool(body.get("filter"))


def has_context(body: Json) -> bool:
    return "context" in body


def asks(name: str) -> Callable[[Any], bool]:
    """Requests with this field, or this one of the rules."""
    return lambda request: name in request[0] or name in request[0].get("rules", {})


def is_deferred(request: Any) -> bool:
    return request[0].get("activate") is False


def is_shown(request: Any) -> bool:
    return request[0].get("activate", True)


def is_long(request: Any) -> bool:
    return request[0]["k"] > 1


def is_made(arm: Arm) -> bool:
    """By somebody, whom ``at_most`` limits."""
    return "maker" in arm.metadata


def is_of_few(arm: Arm) -> bool:
    return arm.id in {"a0", "a1", "a2"}


def is_small(quota: Any) -> bool:
    return bool(quota[2] == 4)


# One mistake each: where it is, what stands there instead, and what is played to meet it.
BROKEN: dict[str, tuple[Any, str, Any, Focus]] = {
    "a duplicate counts": (
        RewardEntries,
        "of_reward",
        awaited(RewardEntries.of_reward, unlike_any_other),
        Focus(REWARDED, {"requests": is_shown}),
    ),
    "rewards that add up count the arm each time": (
        fold,
        "rows_of",
        changed(fold_rows, all_first),
        Focus(REWARDED, {"bandits": adds_up, "requests": is_shown}),
    ),
    "a late reward leaves the default": (
        fold,
        "rows_of",
        defaults_that_stay,
        Focus(LATE, {"bandits": has_a_default, "requests": is_shown}),
    ),
    "a revised reward leaves the one before": (
        fold,
        "rows_of",
        revised_that_stay,
        Focus(REWARDED, {"bandits": the_last_counts, "requests": is_shown}),
    ),
    "a learner that is forgotten keeps its sums": (
        fold,
        "_ACTS",
        {**fold._ACTS, ForgetEntry: stored_again},
        Focus((*REWARDED, "observe", "forget")),
    ),
    "an arm that is deleted can be chosen": (
        LiveIndex,
        "remove",
        lambda self, ids: None,
        Focus(("choose", "delete_arms")),
    ),
    "an arm is learned as it is now": (
        Catalogues,
        "features_at",
        as_it_is_now,
        Focus(
            (*REWARDED, "upsert_or_refuse"),
            {"bandits": adds_up, "requests": is_shown, "arms": is_of_few},
        ),
    ),
    "rewards count by the terms of now": (
        Bandits,
        "find",
        by_the_terms_of_now,
        Focus(
            (*REWARDED, "change_bandit"),
            {"requests": is_shown, "patches": lambda patch: patch.keys() == {"reward"}},
        ),
    ),
    "a reward teaches without its context": (
        Bandit,
        "joint_features",
        lambda self, features, context: joint(self, features, None),
        Focus(REWARDED, {"bandits": has_context, "requests": is_shown}),
    ),
    "keys share their events": (
        Choices,
        "get_event",
        events_of_all,
        Focus(("choose",), {"bandits": is_per_key, "events": lambda event: event is not None}),
    ),
    "limits do not hold": (
        AllowedRows,
        "_pairs",
        staticmethod(changed(AllowedRows._pairs, room_for_all)),  # private: the mistake is made in there
        Focus(
            ("choose",),
            {"requests": lambda request: asks("at_most")(request) and is_long(request), "arms": is_made},
        ),
    ),
    "nothing is excluded": (
        SelectionRequest,
        "excluded",
        lambda self, view: NO_ROWS,
        Focus(("choose",), {"requests": asks("exclude")}),
    ),
    "nothing needs to be activated": (
        rewards,
        "hidden_of",
        nothing_is_hidden,
        Focus(REWARDED, {"requests": is_deferred}),
    ),
    "what is activated counts for no quota": (
        Decisions,
        "_activate",
        Decisions._say_shown,  # private: the mistake is to do this alone
        Focus(("choose", "put_quotas", "activate"), {"requests": is_deferred}),
    ),
    "a list may take more than is left of a quota": (
        KnownQuotas,
        "few",
        lambda *_, **__: {},
        Focus(("choose", "choose", "put_quotas"), {"quotas": is_small, "requests": is_long}),
    ),
    "a bandit's own filter is forgotten": (
        Bandit,
        "filter_with",
        lambda self, wanted: wanted,
        Focus(("choose",), {"bandits": filters}),
    ),
    "what is refunded still counts": (
        BanditQuotas,
        "refund",
        refunded_by_nobody,
        Focus(("choose_batch", "choose_batch", "put_quotas"), {"quotas": is_small, "requests": is_shown}),
    ),
    "a dry run takes of a quota": (
        Pipeline,
        "preview",
        taken_by_a_dry_run,
        Focus(("choose", "put_quotas")),
    ),
    "an event that is repeated takes of a quota again": (
        Choosing,
        "_choice",
        taken_again,
        Focus(("choose", "choose", "put_quotas"), {"events": bool, "requests": is_shown}),
    ),
    "repeats count what was not shown": (
        FrequencyCaps,
        "take_back",
        remembered_though_not_shown,
        Focus(("choose_batch",), {"bandits": repeats}),
    ),
    "keys share what they had": (
        FrequencyCapKey,
        "of",
        changed(FrequencyCapKey.of, of_any_key),
        Focus(("choose",), {"bandits": repeats_per_key}),
    ),
    "a pin ignores a quota": (
        ClosedArms,
        "eligible_pins",
        all_pins,
        Focus(("choose", "choose", "put_quotas"), {"quotas": is_small, "requests": asks("pin")}),
    ),
    "a choice is made again with what it could not have": (
        explain,
        "View",
        lambda **_: View(),
        Focus(
            ("choose", "explain"),
            {"bandits": repeats_no_arm, "requests": is_single, "told": is_for_nobody},
        ),
    ),
}
NOTICED_WITHIN = 12  # runs: each mistake in about the half of them or more


@pytest.mark.parametrize("mistake", BROKEN)
def test_a_mistake_is_noticed(
    mistake: str, store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where, name, instead, focus = BROKEN[mistake]
    monkeypatch.setattr(where, name, instead)
    with pytest.raises(AssertionError):
        play(store_url, tmp_path, seeds=range(NOTICED_WITHIN), steps=25, focus=focus)
