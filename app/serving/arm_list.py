"""Lists of arms that were found before: a choice with ``baseline`` serves one in place of a draw."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from app.platform.errors import Invalid


class ArmList(ABC):
    """Finds the list that ``baseline`` of a choice names. A service has one at most, of a plug-in."""

    @abstractmethod
    async def arms_of(self, name: str) -> Sequence[str]:
        """Return the ids of the list's arms, the best first; the choice serves those that are eligible.

        Called for each choice that names a list, before its arms are searched. Raises NotFound, Conflict (the
        list is not finished), Unavailable.
        """


class NoArmList(ArmList):
    """That of a service without such a plug-in."""

    async def arms_of(self, name: str) -> Sequence[str]:  # noqa: ARG002
        none = "no plug-in with lists of arms is loaded"
        raise Invalid(f"{none}: slates are of the package shortlist-campaigns", path=("baseline",))
