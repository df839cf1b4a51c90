"""The answer of every stopping test: a bound on the excess of the best slate over the one of highest
estimate.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

# A forecast of the results that are missing stays a number: it is cut off at these.
MOST_RATIO = 1e9
MOST_PULLS = 10**15


@dataclass(frozen=True, slots=True)
class Excess:
    """``value`` bounds max over M of theta(M) - theta(M^) with the confidence of the look; stop at epsilon.

    It is ``width - lead`` for the slate at the maximum. ``width`` is the possible error of the slate's
    estimated gap, ``lead`` the excess of the estimate of M^ over the slate's.
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
