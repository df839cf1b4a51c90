"""Lists of arms found before: a choice with ``baseline`` serves one in place of a draw."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from app.platform.errors import Invalid


class ArmList(ABC):
    """Finds the list named by ``baseline`` of a choice. A service has one at most, of a plug-in."""

    @abstractmethod
    async def arms_of(self, name: str) -> Sequence[str]:
        """Return the ids of the list's arms, the best first; the choice serves the eligible ones.

        Called for each choice with a list, before its arms are searched. Raises NotFound, Conflict (the
        list is not finished), Unavailable.
        """


class NoArmList(ArmList):
    """The list of a service without such a plug-in: none."""

    async def arms_of(self, name: str) -> Sequence[str]:  # noqa: ARG002
        none = "no plug-in with lists of arms is loaded"
        raise Invalid(f"{none}: slates are of the package shortlist-campaigns", path=("baseline",))
