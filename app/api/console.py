"""``/console``: a page that shows and tries what the service does, by the API that everybody else has.

It is static files, which come in the wheel and are held in memory. The page may load them alone, call this
service alone, and runs no script but its own: names and metadata of arms are only ever text in it.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from fastapi import Request, Response
from fastapi.responses import RedirectResponse

from app.api.static_files import StaticFile
from app.api.strict_json import Provided, json_router
from app.platform.errors import NotFound
from app.platform.settings import Settings

router = json_router(tags=["operations"])

PAGE = "index.html"
KINDS = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' https:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_FOLDER = Path(__file__).parents[1] / "console"


@cache
def files() -> dict[str, StaticFile]:
    """All files by name; read when the first one is asked for."""
    return {
        path.name: StaticFile.of(path.read_bytes(), KINDS[path.suffix])
        for path in sorted(_FOLDER.iterdir())
        if path.suffix in KINDS
    }


@router.get("/console", include_in_schema=False)
async def console(request: Request, settings: Provided[Settings]) -> Response:
    """The page."""
    return _file(PAGE, request, settings)


@router.get("/console/", include_in_schema=False)
async def console_folder(settings: Provided[Settings]) -> Response:
    """The address of the page is without the slash: links in it begin there."""
    _check_on(settings)
    return RedirectResponse("../console")


@router.get("/console/{name}", include_in_schema=False)
async def console_file(name: str, request: Request, settings: Provided[Settings]) -> Response:
    """One of the files that the page loads."""
    return _file(name, request, settings)


def _check_on(settings: Settings) -> None:
    if not settings.has_console:
        raise NotFound("the console is off: SHORTLIST_CONSOLE")


def _file(name: str, request: Request, settings: Settings) -> Response:
    """A file, or 304 if it is what the browser has. Raises NotFound."""
    _check_on(settings)
    file = files().get(name)
    if file is None:
        raise NotFound("no such file")
    headers = {
        "cache-control": "no-cache",  # kept, and asked for again: a new version is seen at once
        "content-security-policy": POLICY,
        "referrer-policy": "no-referrer",
        "x-content-type-options": "nosniff",
    }
    return file.reply(request, headers)
