"""Frequency caps (the setting ``repeats``): how often a key, or a visitor of a global bandit, sees an arm.

The store keeps what each key was shown, the last ``MOST_KEPT`` arms or values of a field
(``exposure_history``). A process chooses by what it last read of a key; then one script writes what is shown,
unless some of it would exceed the cap. In that case the choice is made again, with what the script answered.
So the cap is never exceeded, and costs one round trip for a choice. A rule that counts rewards reads the
history before the choice instead.

If the store has no room for more, a choice goes on and is not remembered (``unlimited``): to refuse it would
let anybody lock visitors out by inventing keys.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import msgspec

from app.bandits.bandit import Bandit
from app.bandits.exposure_history import MOST_KEPT, left_of_values, value_of, values_of
from app.bandits.settings import BY_ARM, RepeatsRule
from app.indexes.snapshot import Snapshot
from app.platform.cache import BoundedCache
from app.platform.errors import Invalid
from app.policies.limits import AtMost, CappedValues
from app.policies.rules import Pin
from app.policies.selection import SelectionRequest
from app.storage.choices import Choices
from app.storage.types import Had, LearnerId

CACHE_BYTES = 16 << 20
HAD_BYTES = 120


class FrequencyCapKey(NamedTuple):
    """A cap, and the key or visitor that it applies to."""

    rule: RepeatsRule
    key: LearnerId


class Repeats:
    """For the event loop. ``unlimited``: called for each choice of which not all is remembered."""

    def __init__(self, store: Choices, *, unlimited: Callable[[], None]) -> None:
        self._store = store
        self._unlimited = unlimited
        # What was had, and until when it counts, in monotonic seconds.
        self._known: BoundedCache[LearnerId, Sequence[tuple[str, float]]] = BoundedCache(CACHE_BYTES)

    async def had(self, subject: FrequencyCapKey, *, dry_run: bool) -> Mapping[str, int]:
        """How often it was shown each arm or value, as far as this process knows. Raises Unavailable."""
        if dry_run or subject.rule.counts == "rewarded":
            self._hear(subject, await self._store.take_repeats(subject.key, [], **_terms(subject.rule)))
        moment = time.monotonic()
        return Counter(had for had, until in self._known.get(subject.key) or () if until > moment)

    async def take(self, subject: FrequencyCapKey, shown: Sequence[tuple[str, str]]) -> bool:
        """Record that this is shown; False: the cap does not allow some of it, which is known from now on.

        ``shown``: as ``kept_of`` makes it; the same counts once. Raises Unavailable: whether it counts is not
        known then.
        """
        if subject.rule.counts != "shown":
            return True
        taken = await self._store.take_repeats(subject.key, shown, **_terms(subject.rule))
        self._hear(subject, taken)
        if not taken.remembered:
            self._unlimited()
        return taken.allowed

    async def give_back(self, subject: FrequencyCapKey, shown: Sequence[tuple[str, str]]) -> None:
        """It is shown to nobody."""
        if subject.rule.counts == "shown" and shown:
            await self._store.drop_repeats(subject.key, shown)
            self._known.drop(subject.key)

    def forget(self, learner: LearnerId) -> None:
        """Forget what this learner was shown."""
        self._known.drop(learner)

    def forget_all(self) -> None:
        self._known.clear()

    def _hear(self, subject: FrequencyCapKey, had: Had) -> None:
        moment, within_ms = time.monotonic(), subject.rule.within_ms
        known = [(what, moment + (at_ms + within_ms - had.now_ms) / 1_000) for what, at_ms in had.arms]
        size = HAD_BYTES * (1 + len(known)) + sum(len(what) for what, _ in known)
        self._known.put(subject.key, known, size)


def subject_of(bandit: Bandit, learner: LearnerId, visitor: str | None) -> FrequencyCapKey | None:
    """The key or visitor that the cap applies to; None: none. Raises Invalid: no cap uses the visitor."""
    rule = bandit.record.repeats
    if visitor is not None and (rule is None or bandit.record.scope == "per_key"):
        raise Invalid("visitor needs a bandit of scope global that has repeats", path=("visitor",))
    if rule is None or (bandit.record.scope == "global" and visitor is None):
        return None
    return FrequencyCapKey(rule, learner if visitor is None else LearnerId(bandit.uid, visitor))


def over_cap(rule: RepeatsRule, counts: Mapping[str, int]) -> list[str]:
    """The arms, or values, that were shown so often that they are not eligible."""
    by = None if rule.by == BY_ARM else rule.by
    fields = {
        what: (value_of(what) or (None, None))[0] for what, count in counts.items() if count >= rule.most
    }
    return [what for what, field in fields.items() if field == by]


def without(
    request: SelectionRequest, rule: RepeatsRule, counts: Mapping[str, int], whole: Snapshot
) -> SelectionRequest:
    """The request without what was shown too often; pinned arms among it are left out."""
    if rule.by != BY_ARM:
        return _within_values(request, rule, counts, whole)
    gone = over_cap(rule, counts)
    request = pinned(request, [pin for pin in request.rules.pins if pin.arm not in set(gone)])
    return msgspec.structs.replace(request, exclude=[*request.exclude, *gone]) if gone else request


def _within_values(
    request: SelectionRequest, rule: RepeatsRule, counts: Mapping[str, int], whole: Snapshot
) -> SelectionRequest:
    """Arms of one list count together: it has no more arms of a value than the cap leaves."""
    pins, taken = list[Pin](), Counter(counts)
    rows = whole.table.row_of_each([pin.arm for pin in request.rules.pins])
    is_hard = rule.counts == "shown"
    for pin, values in zip(request.rules.pins, values_of(rule.by, whole.attributes, rows), strict=True):
        if all(taken[value] < rule.most for value in values):
            pins.append(pin)
            taken.update(values if is_hard else ())
    request, left = pinned(request, pins), left_of_values(rule, counts)
    if is_hard and rule.most < request.k + len(pins):
        at_most = [*request.rules.at_most, AtMost(rule.by, rule.most)]
        request = msgspec.structs.replace(request, rules=replace(request.rules, at_most=at_most))
    left = left if is_hard else [each for each in left if not each[1]]
    return msgspec.structs.replace(request, had=CappedValues(rule.by, left)) if left else request


def pinned(request: SelectionRequest, pins: Sequence[Pin]) -> SelectionRequest:
    """The request with some of its pins; others take the places of the rest."""
    left_out = len(request.rules.pins) - len(pins)
    if not left_out:
        return request
    return msgspec.structs.replace(request, k=request.k + left_out, rules=replace(request.rules, pins=pins))


def _terms(rule: RepeatsRule) -> dict[str, int]:
    most = rule.most if rule.counts == "shown" else 0
    return {"within_ms": rule.within_ms, "most": most, "kept": MOST_KEPT}
