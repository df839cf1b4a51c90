"""By keyboard alone: every control is reached, its focus is seen, and stays when the page changes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from console_browser import console_of
from console_world import features, furnish
from service_process import Service, serving
from shortlist_client import Client

pytestmark = pytest.mark.rest

MOST_STOPS = 250
NAME = """(each) =>
    (each.getAttribute("aria-label") ?? each.labels?.[0]?.textContent ?? each.textContent).trim()"""
# The names of all that can be used and is seen.
CONTROLS = f"""() => [...document.querySelectorAll(
        "main :is(a[href], button, input, select, textarea, summary, [tabindex='0'])")]
    .filter((each) => each.checkVisibility() && !each.disabled).map({NAME})"""
# What has the focus: its name, whether it is on the page, and whether its outline can be seen.
FOCUSED = f"""() => {{
    const at = document.activeElement, box = at.getBoundingClientRect(), style = getComputedStyle(at);
    const isInside = box.bottom > 0 && box.top < innerHeight && box.width > 0;
    const isOutlined = style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2;
    return [at === document.body ? "" : ({NAME})(at), isInside && isOutlined];
}}"""


@pytest.fixture(scope="module")
def furnished(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """The films, and a second catalogue of them that a bandit can be moved to."""
    with serving(tmp_path_factory.mktemp("furnished")) as service:
        furnish(service)
        with Client(service.url) as client:
            client.put_catalogue("other", dim=4)
            arms = [[2 * value for value in row] for row in features()]
            client.upsert_arms("other", arms, ids=[f"f{n}" for n in range(len(arms))])
            client.put_bandit("mover", catalogue="films", policy="sub_ts", log={})
        yield service


def focused(page: Page) -> str:
    name: str = page.evaluate(FOCUSED)[0]
    return name


def tab_to(page: Page, name: str) -> None:
    """Press Tab until the focus is on what has this name."""
    for _ in range(MOST_STOPS):
        page.keyboard.press("Tab")
        if focused(page) == name:
            return
    raise AssertionError(f"Tab does not lead to {name}")


def write(page: Page, text: str) -> None:
    """Type in place of what stands there."""
    page.keyboard.press("Control+a")
    page.keyboard.type(text)


@pytest.mark.parametrize(
    ("address", "opened"),
    [
        ("bandits/home/quotas", "Build the filter"),
        ("", ""),
        pytest.param("bandits/home/signals", "Make it so", marks=pytest.mark.slow),
        pytest.param("bandits/mover/move", "The calls it makes", marks=pytest.mark.slow),
        pytest.param("what-if/home", "The call it makes", marks=pytest.mark.slow),
        pytest.param("catalogues/films", "Build the filter", marks=pytest.mark.slow),
    ],
)
def test_everything_is_reached_by_tab_and_the_focus_is_seen(
    browser: Browser, furnished: Service, address: str, opened: str
):
    with console_of(browser, furnished) as console:
        page = console.open(address)
        expect(page.locator(".skeleton")).to_have_count(0)
        if opened:
            tab_to(page, opened)
            page.keyboard.press("Enter")
            expect(page.locator(".skeleton")).to_have_count(0)
        wanted, reached = set(page.evaluate(CONTROLS)), set()
        unseen = set()
        for _ in range(MOST_STOPS):
            page.keyboard.press("Tab")
            name, is_seen = page.evaluate(FOCUSED)
            reached.add(name)
            if name and not is_seen:
                unseen.add(name)
            if wanted <= reached:
                break
        assert wanted - reached == set()
        assert unseen == set()
        console.check()


def test_a_filter_is_built_and_a_quota_made_and_changed(browser: Browser, furnished: Service):
    with console_of(browser, furnished) as console, Client(furnished.url) as client:
        page = console.open("bandits/home/quotas")
        page.get_by_role("button", name="Change used-up").wait_for()
        tab_to(page, "Name")
        write(page, "by-key")
        tab_to(page, "Build the filter")
        page.keyboard.press("Space")
        for _ in range(2):  # made, removed and made once more
            tab_to(page, "Add a condition")
            page.keyboard.press("Enter")
            assert focused(page) == "Field"
            page.keyboard.type("genre")
            page.keyboard.press("Tab")
            assert focused(page) == "Comparison"
            page.keyboard.press("Tab")
            page.keyboard.type("drama")
            page.keyboard.press("Tab")
            assert focused(page) == "Remove"
            page.get_by_text("20 of 60 arms match.").wait_for()
            if _ == 0:
                page.keyboard.press("Enter")
                assert focused(page) == "Add a condition"
                page.get_by_text("No filter: all 60 arms.").wait_for()
        tab_to(page, "Make a quota")
        page.keyboard.press("Enter")
        page.get_by_text("Made: by-key").wait_for()
        assert client.get_quota("home", "by-key").filter == {"genre": "drama"}
        tab_to(page, "Change by-key")
        page.keyboard.press("Enter")
        assert focused(page) == "Most in a window"
        write(page, "77")
        page.keyboard.press("Enter")
        row = page.get_by_role("region", name="Quotas").locator("tbody tr", has_text="by-key")
        expect(row).to_contain_text("77")
        # The table may show it before the form has its answer.
        expect(row.get_by_role("button", name="Change by-key")).to_be_focused()
        client.put_quota("home", "by-key", filter={"genre": "drama"}, most=88, per_s=86_400)
        expect(row).to_contain_text("88")  # the table was drawn again
        assert focused(page) == "Change by-key"
        client.delete_quota("home", "by-key")
        console.check()
