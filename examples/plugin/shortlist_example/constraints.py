"""Two constraints: by the age of arms, and by what a key was shown in its last choices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from shortlist_service.constraints import (
    ChooseRequest,
    Document,
    Note,
    PluginConstraint,
    RememberingConstraint,
    SelectionRequest,
    Shown,
    View,
    parse_filter,
)


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


class LastChoices(Document, frozen=True):
    """``choices``: of how many choices a key must not see the arms again."""

    choices: Annotated[int, Field(ge=1, le=100)] = 5


class Rested(RememberingConstraint):
    """No arm of the first place of the last choices: ``"constraints": {"rested": {"choices": 5}}``."""

    own_options = LastChoices
    remembers_s = 7 * 86_400

    def allow(self, notes: Sequence[Note], choice: ChooseRequest, request: SelectionRequest) -> View:
        return View(exclude=[note.text for note in notes[-self.options_of(request).choices :]])

    def note(self, shown: Shown) -> str:
        return shown.whole.id_of(shown.rows[0])
