"""The settings of campaigns. SHORTLIST_MAX_STORE_MB of the service bounds the store."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from shortlist_service.settings import PluginSettings


class CampaignSettings(PluginSettings):
    campaign_cache_mb: Annotated[int, Field(ge=1)] = Field(
        default=64,
        description="Memory for recently used campaigns, of each kind.",
        json_schema_extra={"when": "More campaigns are asked for at once than it holds."},
    )
