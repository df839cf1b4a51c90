"""The settings of Personalizer's API."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StringConstraints

from shortlist_service.routes import IDENTIFIER
from shortlist_service.settings import PluginSettings


class PersonalizerSettings(PluginSettings):
    personalizer_bandit: Annotated[str, StringConstraints(pattern=f"^{IDENTIFIER}$")] = Field(
        default="personalizer",
        description="The bandit that Personalizer's API ranks with, but for API keys of one bandit.",
        json_schema_extra={"when": "`shortlist personalizer init` made a bandit of another name."},
    )
