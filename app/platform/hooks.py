"""The calls by which lower folders reach higher ones: these, and no others.

A folder imports only folders below it. Where something above it has to happen, it calls a field of ``Hooks``;
``server/composition.py`` gives their values. Counting is no such call: ``metrics`` are below all others.
Before you add a field, see whether the caller could return what happened, or be given an object from below.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any


async def _nothing(argument: object = None) -> Any:  # noqa: ARG001 - as the fields are called
    return None


def _ignore(*arguments: object) -> Any:  # noqa: ARG001 - as the fields are called
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Hooks:
    """What a process does when it is called from below; by default nothing, as in `shortlist worker`.

    The types of arguments that are ``Any`` here are named in the sentence: they stand above this folder.

    ``poll_for_news()``   catalogues and bandits ask for what other processes made before this call, and this
                          one does not know: read it from the store, once a call. False if the store does
                          not answer in time
    ``poll_now()``        the same for what they may have made during the call
    ``has_taught(name)``  catalogues ask whether a bandit has learned from the arms of one
    ``learners_changed(partition, changes)``  replication has read what was written to the learners of a
                          partition (``storage.types.LearnerChanges``): workers and caches are to know of it
    ``resync(partition)`` a worker has found a watermark that it did not set: read the learners again
    ``folded(step)``      a worker has folded rewards into learners (``workers.reward_ingestion.Step``)
    ``forgotten(learners)``  learners (``storage.types.LearnerId``) are forgotten: drop what this process made
                          of their states. None: it is not known which, so drop all
    ``event_decision(record)``  the decision (``learning.tokens.Decision``) of the choice that is stored for
                          an event, None: unsaid. The record is written by serving, and erased by learning
    """

    poll_for_news: Callable[[], Awaitable[bool]] = _nothing
    poll_now: Callable[[], Awaitable[bool]] = _nothing
    has_taught: Callable[[str], Awaitable[bool]] = _nothing
    learners_changed: Callable[[int, Any], None] = _ignore
    resync: Callable[[int], Awaitable[object]] = _nothing
    folded: Callable[[Any], None] = _ignore
    forgotten: Callable[[Sequence[Any] | None], None] = _ignore
    event_decision: Callable[[bytes], Any] = _ignore
