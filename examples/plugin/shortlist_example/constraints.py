"""A constraint by the age of arms."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from shortlist_service.constraints import Document, PluginConstraint, SelectionRequest, View, parse_filter


class Options(Document, frozen=True):
    """``days``: how old an arm may be, by its field ``added_s``, seconds since 1970."""

    days: Annotated[float, Field(gt=0, le=36_500)]


class Fresh(PluginConstraint):
    """Lets in arms that were added lately: ``"constraints": {"fresh": {"days": 30}}``."""

    own_options = Options

    async def view(self, choice: object, request: SelectionRequest) -> View:
        end_of_hour_s = -(-request.time_ms // 3_600_000) * 3_600  # choices of an hour have one filter
        oldest_s = end_of_hour_s - 86_400 * self.options_of(request).days
        return View(arm_filter=parse_filter({"added_s": {"$gte": oldest_s}}))
