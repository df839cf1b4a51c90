"""What a bandit has to know of its policy. The table of policies is ``choosing.policies``."""

from __future__ import annotations

from typing import Protocol

from app.services.bandits.settings import BanditRecord
from app.services.catalogues.catalogues import Catalogue
from shortlist.linear.scales import Scales


class PolicyTerms(Protocol):
    """``max_signals``: how many signals it takes; None: any, and any weights of a request."""

    @property
    def max_signals(self) -> int | None: ...

    def completed(self, record: BanditRecord) -> BanditRecord:
        """The record with the policy's defaults. Raises Invalid, naming every field that it refuses."""
        ...

    def check_arms(self, record: BanditRecord, catalogue: Catalogue) -> None:
        """Raise Invalid when the policy cannot serve the arms: their dimensions, or where they are."""

    def exploration(self, record: BanditRecord, dim: int) -> float:
        """The number that ``exploration`` stands for; ``dim`` is the dimension of what learners learn."""
        ...

    def eta(self, record: BanditRecord) -> float:
        """The number that ``eta`` stands for."""
        ...

    def scales(self, record: BanditRecord, dim: int) -> Scales:
        """How posteriors of its learners are made; ``dim`` is the dimension of what they learn."""
        ...
