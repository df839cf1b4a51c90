"""What every stopping test answers: by how much the best slate may exceed the one that looks best."""

from __future__ import annotations

import math
from dataclasses import dataclass

MOST_RATIO = 1e9
MOST_PULLS = 10**15


@dataclass(frozen=True, slots=True)
class Excess:
    """``value`` bounds max over M of theta(M) - theta(M^) with the confidence of the look; stop at epsilon.

    It is ``width - lead`` for the slate that attains it: what noise may hide, less what was seen.
    """

    value: float
    lead: float
    width: float

    def more_pulls(self, observed: int, epsilon: float) -> int:
        """About how many results are missing, if the estimates stay and widths shrink like 1/sqrt(t)."""
        if self.value <= epsilon:
            return 0
        needed = epsilon + max(self.lead, 0.0)
        more = observed * ((min(self.width / needed, MOST_RATIO) ** 2) - 1.0)
        return min(math.ceil(max(more, 1.0)), MOST_PULLS)
