"""The document that /openapi.json serves, made once: several test modules ask for it."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from app.platform.settings import Settings
from server.application import create_app


@cache
def openapi_document() -> dict[str, Any]:
    """The document of an application that is not started. Do not change it."""
    return create_app(Settings(redis_url="redis://127.0.0.1:1", data_dir=Path("/nowhere"))).openapi()
