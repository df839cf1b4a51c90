"""The worth of an answer: the one type for all searches, draws and sets of centres."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

GuaranteeKind = Literal["exact", "pac", "none"]
Assumption = Literal["normal_means"]


@dataclass(frozen=True, slots=True)
class Guarantee:
    """``exact``: what was asked for, always. ``pac``: up to ``epsilon``, but for a probability of ``delta``.
    ``none``: no promise.

    What epsilon measures is said by the algorithm: an error of the k-th best mean (``mips``), of the distance
    of a centre (``kcenter``); a draw has none. ``assumes`` names a condition of the promise. ``reason`` says
    why the kind is not the one that was asked for.
    """

    kind: GuaranteeKind
    epsilon: float | None = None
    delta: float | None = None
    assumes: Assumption | None = None
    reason: str | None = None


def exactly(reason: str | None = None) -> Guarantee:
    """The guarantee of an answer for which everything was compared."""
    return Guarantee("exact", 0.0, 0.0, reason=reason)
