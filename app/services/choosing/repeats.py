"""Repeats: which arms a key, or a visitor of a global bandit, has had so often that they are not eligible.

What was had is in the store, the last ``MOST_KEPT`` of each key. A process remembers what it last heard of a
key and chooses by that; then one script writes what is shown, if all of it may be: else the choice is made
again by what the script answered. So the limit is hard, and a choice takes one round trip more. Of rewards
what was had is read before the choice.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import msgspec

from app.services.bandits.settings import RepeatsRule
from app.services.bounded.cache import BoundedCache
from app.services.choosing.selection import SelectionRequest
from app.storage.protocol import Choices, Had, LearnerId

MOST_KEPT = 1_000
CACHE_BYTES = 16 << 20
HAD_BYTES = 120


class Subject(NamedTuple):
    """Whom a rule is for: a key, or a visitor."""

    rule: RepeatsRule
    key: LearnerId


class Repeats:
    """For the event loop."""

    def __init__(self, store: Choices) -> None:
        self._store = store
        # Ids of arms, and until when they count, in monotonic seconds.
        self._known: BoundedCache[LearnerId, Sequence[tuple[str, float]]] = BoundedCache(CACHE_BYTES)

    async def often(self, subject: Subject, *, dry_run: bool) -> list[str]:
        """The arms that are not eligible, as far as this process knows. Raises Unavailable."""
        if dry_run or subject.rule.counts == "rewarded":
            self._hear(subject, await self._store.take_repeats(subject.key, [], **_terms(subject.rule)))
        moment = time.monotonic()
        known = self._known.get(subject.key) or ()
        counts = Counter(arm for arm, until in known if until > moment)
        return [arm for arm, count in counts.items() if count >= subject.rule.most]

    async def take(self, subject: Subject, decision: str, arms: Sequence[str]) -> bool:
        """These arms are shown; False: some of them may not be, which is known from now on.

        The same decision counts once. Raises Unavailable: whether it counts is not known then.
        """
        if subject.rule.counts != "shown":
            return True
        taken = await self._store.take_repeats(
            subject.key, [(decision, arm) for arm in arms], **_terms(subject.rule)
        )
        self._hear(subject, taken)
        return taken.written

    async def give_back(self, subject: Subject, decision: str, arms: Sequence[str]) -> None:
        """A choice that is shown to nobody."""
        if subject.rule.counts == "shown":
            await self._store.drop_repeats(subject.key, [(decision, arm) for arm in arms])
            self._known.drop(subject.key)

    def _hear(self, subject: Subject, had: Had) -> None:
        moment, within_ms = time.monotonic(), subject.rule.within_ms
        known = [(arm, moment + (at_ms + within_ms - had.now_ms) / 1_000) for arm, at_ms in had.arms]
        self._known.put(subject.key, known, HAD_BYTES * (1 + len(known)))


def without(request: SelectionRequest, often: Sequence[str]) -> SelectionRequest:
    """The request without these arms; a pinned one is left out."""
    if not often:
        return request
    rules, gone = request.rules, set(often)
    pins = [pin for pin in rules.pins if pin.arm not in gone]
    left_out = len(rules.pins) - len(pins)
    if left_out:
        rules = replace(rules, pins=pins)
    exclude = [*request.exclude, *often]
    return msgspec.structs.replace(request, k=request.k + left_out, exclude=exclude, rules=rules)


def _terms(rule: RepeatsRule) -> dict[str, int]:
    most = rule.most if rule.counts == "shown" else 0
    return {"within_ms": rule.within_ms, "most": most, "kept": MOST_KEPT}
