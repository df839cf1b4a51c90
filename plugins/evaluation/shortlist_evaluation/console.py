"""The page "What if" of the console."""

from __future__ import annotations

from pathlib import Path

from shortlist_service.console import ConsolePage

page = ConsolePage("What if", Path(__file__).with_name("page-what-if.js"))
