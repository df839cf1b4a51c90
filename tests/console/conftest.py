"""A browser, and services for its pages to call."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect, sync_playwright

from console_browser import BROWSER, WAIT_MS, console_of, load_shop
from service_process import Service, serving


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Without a browser the tests of this folder are skipped, by name."""
    if BROWSER is None:
        here = Path(__file__).parent
        for item in items:
            if item.path.parent == here and "browser" in getattr(item, "fixturenames", ()):
                item.add_marker(pytest.mark.skip(reason="no Chromium is installed"))


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    expect.set_options(timeout=WAIT_MS)
    with sync_playwright() as playwright:
        options = ["--no-sandbox", "--disable-gpu", "--disable-quic"]
        browser = playwright.chromium.launch(executable_path=BROWSER, args=options)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def shop_service(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service with the example shop, as the button of the overview makes it; tests only read."""
    with serving(tmp_path_factory.mktemp("shop_service")) as service:
        with console_of(browser, service) as console:
            load_shop(console)
            console.check()
        yield service


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service without anything."""
    with serving(tmp_path_factory.mktemp("empty")) as service:
        yield service
