"""The calls by which lower folders reach higher ones: these, and no others.

A folder imports only folders below it. Where something above it has to happen, it calls a field of ``Hooks``,
or a function given to one object; ``server/composition.py`` gives their values. Counting is no such call:
``metrics`` are below all others. Before you add a field, see whether the caller could return the event, or be
given an object from below.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass


async def _no(_: object = None) -> bool:
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Hooks:
    """The calls to higher folders, made by catalogues and bandits; by default without effect.

    ``poll_for_news()``   asks for changes of other processes before this call, unknown to this one: read from
                          the store, once a call. False if the store does not answer in time
    ``poll_now()``        the same for changes during the call
    ``has_taught(name)``  catalogues ask whether a bandit has learned from the arms of one
    """

    poll_for_news: Callable[[], Awaitable[bool]] = _no
    poll_now: Callable[[], Awaitable[bool]] = _no
    has_taught: Callable[[str], Awaitable[bool]] = _no
