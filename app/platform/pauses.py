"""How long a process waits."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Pauses:
    """Seconds.

    ``applied_s``  a caller who waits for a reward is told after so long that it is not applied yet
    ``rows_s``     rows of the decision log are written together after so long
    """

    applied_s: float = 10.0
    rows_s: float = 0.5


PAUSES = Pauses()
