"""What every stopping test answers: by how much the best slate may exceed the one of the highest estimate."""

from __future__ import annotations

import math
from dataclasses import dataclass

# A forecast of the results that are missing stays a number: it is cut off at these.
MOST_RATIO = 1e9
MOST_PULLS = 10**15


@dataclass(frozen=True, slots=True)
class Excess:
    """``value`` bounds max over M of theta(M) - theta(M^) with the confidence of the look; stop at epsilon.

    It is ``width - lead`` for the slate that attains the maximum. ``width`` is how far the estimated gap of
    that slate can be off, ``lead`` is by how much the estimate of M^ is above that of the slate.
    """

    value: float
    lead: float
    width: float

    def more_pulls(self, observed: int, epsilon: float) -> int:
        """Return about how many results are missing, if estimates stay and widths shrink like 1/sqrt(t).

        ``observed`` is t, the number of results so far.
        """
        if self.value <= epsilon:
            return 0
        needed = epsilon + max(self.lead, 0.0)
        more = observed * ((min(self.width / needed, MOST_RATIO) ** 2) - 1.0)
        return min(math.ceil(max(more, 1.0)), MOST_PULLS)
