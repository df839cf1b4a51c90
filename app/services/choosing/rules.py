"""Rules of one choice: arms that stand at given places, how many may share a value, how different all are.

The arms are taken in the order of the policy. One is passed over when as many as are allowed have one of its
values already (``limits``). Pinned arms count first. An arm that lacks the field is never passed over.
Among the arms that are left ``diverse`` puts those first that are unlike the ones above them (``diverse``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from app.services.choosing.diverse import Diverse
from app.services.choosing.limits import AtMost


@dataclass(frozen=True, slots=True)
class Pin:
    """``arm`` stands at ``place``, counted from 1."""

    arm: str
    place: int


@dataclass(frozen=True, slots=True)
class Rules:
    """All rules of one choice."""

    pins: Sequence[Pin] = ()
    at_most: Sequence[AtMost] = ()
    diverse: Diverse | None = None

    @property
    def pinned(self) -> Sequence[str]:
        return [pin.arm for pin in self.pins]


NO_RULES = Rules()
