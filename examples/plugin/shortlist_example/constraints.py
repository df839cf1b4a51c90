"""A constraint: only arms of some makers, as the owner of a bandit says."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from shortlist_service.constraints import (
    ChooseRequest,
    Document,
    PluginConstraint,
    SelectionRequest,
    View,
    parse_filter,
)


class Options(Document, frozen=True):
    """``makers``: the values of the field ``maker`` that are let in."""

    makers: Annotated[list[str], Field(min_length=1, max_length=100)]


class Only(PluginConstraint):
    """Lets in arms whose maker is listed: ``"constraints": {"only": {"makers": ["acme"]}}``."""

    own_options = Options

    async def view(self, choice: ChooseRequest, request: SelectionRequest) -> View:
        return View(arm_filter=parse_filter({"maker": {"$in": self.options_of(request).makers}}))
