"""Pages that plug-ins add to the console: a link in its navigation, and the module that shows the page."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from pathlib import Path

from app.platform import plugins
from app.platform.errors import StartupError

FOLDER = Path(__file__).parents[1] / "console"
PAGE = "index.html"
ADDRESS = re.compile(r'href="#/([a-z-]+)"')
MODULE_NAME = re.compile(r"[a-z-]+\.js")


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
