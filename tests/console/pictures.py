"""The pictures of docs/console.md, of the example shop and a bandit with quotas: `make console-pictures`."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

from console_browser import BROWSER, Console, load_shop
from console_world import furnish
from service_process import serving

SIZE = {"width": 1120, "height": 700}
LOW = {"width": 1120, "height": 460}


def take(folder: Path) -> None:
    """Write a picture of each page: the shop after a thousand visitors, then a bandit with quotas."""
    with tempfile.TemporaryDirectory() as own, serving(Path(own)) as service, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport=SIZE, locale="en-GB", reduced_motion="reduce")
        console = Console(page, service.url)
        load_shop(console)
        page.get_by_role("button", name="more visitors").click()
        page.get_by_text("Done.").wait_for()
        console.open("")
        page.locator("sl-spark svg").wait_for()
        page.locator(".tile", has_text="Choices").filter(has_text="0").first.wait_for()
        page.screenshot(path=folder / "console-overview.png")
        console.open("bandits/shop-window")
        page.locator("sl-lines .band").first.wait_for()
        page.screenshot(path=folder / "console-bandit.png")
        console.open("try/shop-window?k=5&context.device=mobile&seed=6")
        page.get_by_role("button", name="Only look").click()
        page.get_by_role("heading", name="What would be chosen now").scroll_into_view_if_needed()
        page.screenshot(path=folder / "console-try.png")
        console.open("catalogues/shop?colour=kind&arm=mug-3")
        page.locator("sl-scatter circle.dot").first.wait_for()
        page.locator("h3", has_text="Nearest arms").wait_for()
        page.get_by_role("heading", name="The arms as a picture").evaluate("each => each.scrollIntoView()")
        page.screenshot(path=folder / "console-catalogue.png")
        furnish(service)
        page.set_viewport_size(LOW)
        for name, address, waited in (
            ("explore", "bandits/home/explore", "text=are in none of the last"),
            ("quotas", "bandits/home/quotas", '[aria-label="Quotas"] tbody tr'),
            ("changes", "bandits/home/versions", '[aria-label="Changes"] tbody tr:nth-child(6)'),
            ("decisions", "decisions/home", '[aria-label="The last decisions"] tbody tr'),
        ):
            console.open(address)
            page.locator(waited).first.wait_for()
            page.screenshot(path=folder / f"console-{name}.png")
        row = page.locator("tbody tr", has_text="policy").first
        row.get_by_role("link", name="explain").click()
        page.get_by_role("heading", name="What was shown").wait_for()
        page.get_by_role("heading", name="What was shown").evaluate("each => each.scrollIntoView()")
        page.screenshot(path=folder / "console-why.png")
        browser.close()


if __name__ == "__main__":
    take(Path(sys.argv[1]))
