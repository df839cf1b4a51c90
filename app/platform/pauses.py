"""Waiting times of a process."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Pauses:
    """Seconds.

    ``applied_s``       a caller who waits for a reward is answered "not applied yet" after so long
    ``rows_s``          rows of the decision log are written together after so long
    ``memory_s``        the memory of the store is read every so often
    ``housekeeping_s``  due work is looked for every so often; while there is none, half as often
    ``index_poll_s``    work on an index is looked for every so often after there was some,
    ``index_idle_s``    while there is none,
    ``index_rest_s``    and at an index whose work failed
    """

    applied_s: float = 10.0
    rows_s: float = 0.5
    memory_s: float = 1.0
    housekeeping_s: float = 1.0
    index_poll_s: float = 0.2
    index_idle_s: float = 0.8
    index_rest_s: float = 60.0
