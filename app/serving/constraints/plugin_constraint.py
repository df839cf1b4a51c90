"""The base of constraints of plug-ins.

Apart from what loads plug-ins: theirs import this class while they are loaded.
"""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec

from app.platform.documents import Document
from app.selection.selection import SelectionRequest
from app.serving.constraints.base import Constraint


class PluginConstraint(Constraint):
    """Base of the constraints of plug-ins. The name of the entry point is the one that bandits use.

    ``own_options``: a ``Document`` of the options, each field with its type, bounds and default.
    """

    own_options: ClassVar[type[Document]] = Document
    name: str

    @property
    def leaves_none(self) -> str:
        return f"the constraint {self.name} leaves none"

    def options_of(self, request: SelectionRequest) -> Any:
        """Its options for the bandit of a choice. Cost: some microseconds."""
        options = (request.bandit.record.constraints or {})[self.name]
        return msgspec.convert(options, self.own_options)
