"""The page of campaigns in the console."""

from __future__ import annotations

from pathlib import Path

from shortlist_service.console import ConsolePage

page = ConsolePage("Campaigns", Path(__file__).with_name("page-campaigns.js"))
