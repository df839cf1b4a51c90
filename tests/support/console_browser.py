"""A page of the console in a browser, and what every page must keep to."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from playwright.sync_api import Browser, Page

from service_process import Service

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
WAIT_MS = 30_000
SIZES = {"wide": {"width": 1440, "height": 900}, "narrow": {"width": 360, "height": 740}}


class Console:
    """A page of the console, and what went wrong in it."""

    def __init__(self, page: Page, url: str) -> None:
        self.page = page
        self.url = url
        self.wrong: list[str] = []
        self.hosts: set[str] = set()
        page.set_default_timeout(WAIT_MS)
        page.on("pageerror", lambda error: self.wrong.append(f"error: {error}"))
        page.on("console", self._said)
        page.on("request", lambda request: self.hosts.add(re.match(r"\w+:/*([^/]*)", request.url)[1]))

    def _said(self, message: Any) -> None:
        """What a browser says by itself of an answer that is an error is none of the page."""
        if message.type in {"error", "warning"} and "Failed to load resource" not in message.text:
            self.wrong.append(message.text)

    def open(self, address: str) -> Page:
        """Go to a page as one who is sent its address, and wait until it is shown."""
        self.page.goto("about:blank")
        self.page.goto(f"{self.url}/console#/{address}")
        self.shown()
        return self.page

    def shown(self) -> None:
        self.page.wait_for_selector(".page[data-state=shown]")

    def look(self, size: str, theme: Any) -> None:
        """In a window of this size, with the colours of this theme."""
        self.page.set_viewport_size(SIZES[size])
        self.page.emulate_media(color_scheme=theme)
        self.page.evaluate(
            "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
        )

    def check(self) -> None:
        """Nothing went wrong, and nothing was asked of another host."""
        assert self.wrong == []
        assert self.hosts <= {self.url.removeprefix("http://"), "", "blank"}


@contextmanager
def console_of(
    browser: Browser, service: Service, size: str = "wide", theme: Any = "light"
) -> Iterator[Console]:
    """A page of its own, in a window that all share.

    Another window, or one without a page, would load every module again: two seconds of a processor. The
    console keeps nothing in a browser, as a test of its keys holds.
    """
    if not browser.contexts:
        window = browser.new_context(reduced_motion="reduce", locale="de-DE", timezone_id="Europe/Berlin")
        window.new_page()  # stays
    page = browser.contexts[0].new_page()
    try:
        console = Console(page, service.url)
        console.look(size, theme)
        yield console
    finally:
        page.close()


def load_shop(console: Console) -> None:
    """The example shop, by the button of the overview."""
    page = console.open("")
    page.get_by_role("button", name="Load the example shop").click()
    page.get_by_text("Done.").wait_for()
