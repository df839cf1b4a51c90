"""A stand-in for a policy without a loaded plug-in: its bandits are kept, and choose nothing."""

from __future__ import annotations

from typing import NoReturn

from app.bandits.completion import PolicyNeeds
from app.bandits.settings import BanditRecord
from app.catalogues.catalogue import Catalogue
from app.platform.errors import Unavailable
from app.policies.base import Chooser, PolicyDependencies
from app.selection.selection import SelectionRequest


class MissingPolicy(Chooser):
    """The policy of bandits of the policy ``name`` while its plug-in is away.

    Rewards are learned, independently of the policy. The missing policy checked its settings before, so
    nothing is checked here.
    """

    summary = "not installed here"
    needs = PolicyNeeds(arms_in_memory=False)
    not_evaluated = "its plug-in is not installed here"

    def __init__(self, name: str) -> None:
        self.name = name  # type: ignore[misc] # of each object its own

    @property
    def reason(self) -> str:
        return f"no loaded plug-in provides the policy {self.name} of the bandit"

    def completed(self, record: BanditRecord, stored: BanditRecord | None = None) -> BanditRecord:
        return record

    def check_arms(self, record: BanditRecord, catalogue: Catalogue) -> None:
        return

    async def choose(self, dependencies: PolicyDependencies, request: SelectionRequest) -> NoReturn:
        raise Unavailable(self.reason)
