"""Where a choice is computed: at once what is short, in a thread what would keep others waiting."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from app.services.bounded.long_work import REQUESTS, SEARCHES, LongWork
from app.services.bounded.yielding import yield_to_others
from app.services.catalogues.learner_snapshot import LearnerSnapshot
from app.services.choosing.selection import SelectionRequest

T = TypeVar("T")

INLINE_US = 2_000.0
_LIMITED_US = 0.05  # for an arm, and for each value of a limited field
_PLACE_US = 15.0  # for each arm that is drawn, or taken within limits


async def computed(
    work: Callable[[], T],
    request: SelectionRequest,
    arms: LearnerSnapshot,
    *,
    us: float,
    threads: LongWork = REQUESTS,
) -> T:
    """Return ``work()``, which answers ``request`` from the arms of ``arms``.

    ``us``: about how many microseconds it takes without limits. Raises Unavailable (too much waits already).
    """
    if request.has_limits and not arms.plain.waits:
        us += limits_us(request, arms)
    if request.rules.diverse is not None:
        us += drawn_us(request.k, candidates=request.searched)
    if arms.plain.waits:
        return await SEARCHES.run(work)
    if us > INLINE_US:
        return await threads.run(work)
    await yield_to_others()  # one reply of the store may have brought what many choices waited for
    return work()


def drawn_us(k: int, *, candidates: int = 0) -> float:
    """About how long k arms take that are drawn one after the other, each among so many."""
    return k * (_PLACE_US + 0.02 * candidates)


def limits_us(request: SelectionRequest, arms: LearnerSnapshot) -> float:
    """About how many microseconds limits take at most: when all arms have to be looked at."""
    attributes = arms.plain.attributes
    fields = [rule.field for rule in request.rules.at_most]
    if request.had is not None:
        fields.append(request.had.field)
    values = sum(map(attributes.values_in, fields))
    return _LIMITED_US * (arms.size + values) + request.k * _PLACE_US
