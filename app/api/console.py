"""``/console``: a page that shows and tries what the service does, by the API that everybody else has.

It is static files, which come in the wheel and are held in memory. The page may load them alone, call this
service alone, and runs no script but its own: names and metadata of arms are only ever text in it.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from fastapi import Request, Response
from fastapi.responses import RedirectResponse

from app.api import console_pages
from app.api.console_pages import FOLDER, PAGE
from app.api.static_files import StaticFile
from app.api.strict_json import Provided, json_router
from app.platform.errors import NotFound
from app.platform.settings import Settings

router = json_router(tags=["operations"])

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


@cache
def files() -> dict[str, StaticFile]:
    """All files by name, with those of plug-ins; read when the first one is asked for."""
    pages = console_pages.load()
    paths = [*sorted(FOLDER.iterdir()), *(page.module for page in pages.values())]
    contents = {path.name: path.read_bytes() for path in paths if path.suffix in KINDS}
    contents[PAGE] = console_pages.with_links(contents[PAGE].decode(), pages).encode()
    return {name: StaticFile.of(content, KINDS[Path(name).suffix]) for name, content in contents.items()}


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
