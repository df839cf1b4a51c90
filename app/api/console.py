"""``/console``: a page to show and try the service, by the same API as everybody's.

It is static files, which come in the wheel and are held in memory. The page may load them alone, call this
service alone, and runs no script but its own: names and metadata of arms are only ever text in it. Plug-ins
add pages: a link in the navigation, and the module that shows the page.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from html import escape
from pathlib import Path

from fastapi import Request, Response
from fastapi.responses import RedirectResponse

from app.api.pages import StaticFile
from app.api.strict_json import Provided, json_router
from app.platform import plugins
from app.platform.errors import NotFound, StartupError
from app.platform.settings import Settings

router = json_router(tags=["operations"])

FOLDER = Path(__file__).parents[1] / "console"
PAGE = "index.html"
ADDRESS = re.compile(r'href="#/([a-z-]+)"')
MODULE_NAME = re.compile(r"[a-z-]+\.js")
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


@dataclass(frozen=True, slots=True)
class ConsolePage:
    """A page of a plug-in. The name of its entry point is the first part of its address, after ``#/``.

    ``title``   stands in the navigation
    ``module``  a file of JavaScript, served as ``/console/<its name>``. It exports ``show(view)``, as the
                files ``page-*.js`` of the console do, and is loaded when the page is opened. It may import
                the console's other modules, such as ``./dom.js``, which may change with each version
    """

    title: str
    module: Path


def load() -> Mapping[str, ConsolePage]:
    """The pages of plug-ins, by address. Raises StartupError: one is taken, or has no file of its own."""
    pages = plugins.load("console_pages", ConsolePage, ADDRESS.findall((FOLDER / PAGE).read_text()))
    taken_files = {path.name for path in FOLDER.iterdir()}
    for name, page in pages.items():
        file = page.module.name
        if file in taken_files or not MODULE_NAME.fullmatch(file) or not page.module.is_file():
            raise StartupError(
                f"the console page {name} of a plug-in needs a file of its own: page-{name}.js"
            )
        taken_files.add(file)
    return pages


def with_links(html: str, pages: Mapping[str, ConsolePage]) -> str:
    """The page of the console with a link to each page in its navigation, and with their modules."""
    links = [
        f'<li><a href="#/{name}" data-module="{page.module.name}">{escape(page.title)}</a></li>\n'
        for name, page in pages.items()
    ]
    preloads = [
        f'<link rel="modulepreload" href="console/{page.module.name}" fetchpriority="low">\n'
        for page in pages.values()
    ]
    return html.replace("</ul></nav>", f"{''.join(links)}</ul></nav>").replace(
        "</head>", f"{''.join(preloads)}</head>"
    )


@cache
def files() -> dict[str, StaticFile]:
    """All files by name, with those of plug-ins; read when the first one is asked for."""
    pages = load()
    paths = [*sorted(FOLDER.iterdir()), *(page.module for page in pages.values())]
    contents = {path.name: path.read_bytes() for path in paths if path.suffix in KINDS}
    contents[PAGE] = with_links(contents[PAGE].decode(), pages).encode()
    return {name: StaticFile.of(content, KINDS[Path(name).suffix]) for name, content in contents.items()}


@router.get("/console", include_in_schema=False)
async def console(request: Request, settings: Provided[Settings]) -> Response:
    """The page."""
    return _file(PAGE, request, settings)


@router.get("/console/", include_in_schema=False)
async def console_folder(settings: Provided[Settings]) -> Response:
    """A redirect to the page's address without the slash: links on the page begin there."""
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
    """A file, or 304 for the browser's current copy. Raises NotFound."""
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
