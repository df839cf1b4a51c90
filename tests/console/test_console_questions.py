"""Questions, each answered in at most three clicks from the overview; and what pages let one change."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, expect
from test_console_pages import LOOKS, OTHER_LOOKS, Look, check_looks, go

from console_browser import console_of
from console_world import features, furnish
from service_process import Service, serving
from shortlist_client import Client

pytestmark = pytest.mark.rest


@pytest.fixture(scope="module")
def furnished(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with serving(tmp_path_factory.mktemp("furnished")) as service:
        furnish(service)
        with Client(service.url) as client:
            client.create_slates(id="looks", arms=[f"f{n}" for n in range(8)], k=2, noise_std=0.5)
            client.create_centers(id="looks", points=[f"f{n}" for n in range(8)], k=2)
        yield service


# An address, what is pressed there, and what stands there then. The shop of test_console_pages.py has none of
# it.
OWN_PAGES = [
    ("try/home?key=user-7&k=3", "Choose", "Chosen"),
    ("bandits/home/signals", "What would these weights earn?", "then"),
    ("bandits/home/quotas", "Change soon", "Change soon"),
    ("bandits/home/prior", "", ""),
    ("bandits/plain/move", "", ""),
    ("keys/home/user-7", "", ""),
    ("decisions/home", "explain", "What was shown"),
    ("what-if/home", "Evaluate", "Would the log support it?"),
    ("queries/films", "Ask all of them", "Side by side"),
    ("campaigns/slates/looks", "Ask for five slates", "What did each of these slates earn in total?"),
    ("campaigns/centers/looks", "Ask for five distances", "How far apart are these points?"),
]
# All that it has too, with more on each page.
FULLER_PAGES = [(address, "", "") for address in (
    "", "bandits", "bandits/home", "bandits/home/explore", "bandits/home/settings", "bandits/home/versions",
    "bandits/home/learners", "catalogues", "catalogues/films?arm=f7", "keys", "decisions", "decisions/home",
    "what-if", "campaigns", "nowhere",
)]  # fmt: skip


@pytest.mark.parametrize(
    ("pages", "looks"),
    [
        pytest.param(OWN_PAGES, LOOKS[1:], id="own"),
        pytest.param(OWN_PAGES, [*LOOKS[:1], *OTHER_LOOKS], id="own, other looks", marks=pytest.mark.slow),
        pytest.param(FULLER_PAGES, [*LOOKS, *OTHER_LOOKS], id="fuller", marks=pytest.mark.slow),
    ],
)
def test_pages_and_what_they_answer_are_whole_accessible_and_fit(
    browser: Browser, furnished: Service, pages: list[tuple[str, str, str]], looks: list[Look]
):
    with console_of(browser, furnished) as console:
        page = console.open("nowhere")
        for address, press, told in pages:
            go(page, address)
            expect(page.locator(".skeleton")).to_have_count(0)
            if press:
                main = page.locator("main")
                button = main.get_by_role("button", name=press, exact=True)
                button.or_(main.get_by_role("link", name=press, exact=True)).first.click()
                main.get_by_text(told, exact=True).first.wait_for()
            check_looks(console, address, looks)
        console.check()


def test_a_quota_is_made_changed_and_deleted(browser: Browser, furnished: Service):
    with console_of(browser, furnished) as console, Client(furnished.url) as client:
        page = console.open("bandits/home/quotas")
        form = page.get_by_role("form", name="Make a quota")
        form.get_by_label("Name").fill("films-of-4")
        form.get_by_label("Most in a window").fill("1234")
        form.get_by_text("Build the filter").click()
        form.get_by_role("button", name="Add a condition").click()
        condition = form.get_by_role("group", name="Condition")
        condition.get_by_label("Field").fill("prise")
        condition.get_by_label("Field").blur()
        expect(condition.locator(".error")).to_have_text("no arm has `prise`")
        condition.get_by_label("Field").fill("price")
        condition.get_by_label("Field").blur()
        expect(condition).to_contain_text("a number in 54 arms, text in 6 arms")
        # One value of one field is all that a quota may count.
        expect(condition.get_by_label("Comparison").locator("option")).to_have_text(["is"])
        expect(form.get_by_role("button", name="Add a condition")).to_be_hidden()
        condition.get_by_label("Value").fill("4")
        condition.get_by_label("Value").blur()
        form.get_by_text("of 60 arms match").wait_for()
        assert form.get_by_label("Filter", exact=True).input_value() == '{"price":4}'
        form.get_by_role("button", name="Make a quota").click()
        page.get_by_text("Made: films-of-4").wait_for()
        made = client.get_quota("home", "films-of-4")
        assert (made.filter, made.most, made.per_s) == ({"price": 4}, 1_234, 86_400)
        page.get_by_role("button", name="Change films-of-4").click()
        page.get_by_role("form", name="Change films-of-4").get_by_label("Most in a window").fill("99")
        page.get_by_role("form", name="Change films-of-4").get_by_role(
            "button", name="Change films-of-4"
        ).click()
        quotas = page.get_by_role("region", name="Quotas")
        expect(quotas.locator("tbody tr", has_text="films-of-4")).to_contain_text("99")
        expect(page.get_by_role("form", name="Change films-of-4")).to_have_count(0)
        page.get_by_role("button", name="Change films-of-4").click()
        page.locator(".destroy summary", has_text="Delete films-of-4").click()
        page.get_by_label("Type films-of-4 to go on").fill("films-of-4")
        page.get_by_role("button", name="Delete films-of-4").click()
        expect(quotas.locator("tbody tr", has_text="films-of-4")).to_have_count(0)
        assert "films-of-4" not in {each.id for each in client.list_quotas("home").items}
        console.check()


def test_places_and_ages_are_told_learned_stated_or_not(browser: Browser, furnished: Service):
    ages = [{"from_s": 0, "effect": 0.04, "sd": 0.02}, {"from_s": 900, "effect": -0.06, "sd": 0.01}]
    with console_of(browser, furnished) as console, Client(furnished.url) as client:
        client.put_bandit("lists", catalogue="films", policy="sub_ts", scope="per_key")
        page = console.open("bandits/lists/prior")
        expect(page.locator("main")).to_contain_text("Not learned: no reward of a list of two arms or more")
        told = {"places": [1, 0.69, 0.453], "places_note": None, "ages": ages}
        page.route("**/arm-effects?limit=1", lambda route: route.fulfill(json=route.fetch().json() | told))
        for position, places in (
            ("auto", ["1100 %", "269 %", "3 and below45 %"]),
            ({"examination": [1, 0.5]}, ["1100 %", "2 and below50 %"]),
            (None, []),
        ):
            httpx.patch(f"{furnished.url}/v1/bandits/lists", json={"position": position}).raise_for_status()
            go(page, "bandits/lists/prior")
            rows = page.get_by_role("region", name="Ages of arms").locator("tbody tr")
            expect(rows).to_have_text(["0 min+0,040,02", "15 min-0,060,01"])
            rows = page.get_by_role("region", name="Places of a list").locator("tbody tr")
            expect(rows).to_have_text(places)
        console.check()


def test_a_move_is_looked_at_and_then_made(browser: Browser, tmp_path: Path):
    rows = features()
    with serving(tmp_path) as service, console_of(browser, service) as console, Client(service.url) as client:
        for name, factor in (("old", 1.0), ("new", 2.0)):
            client.put_catalogue(name, dim=4)
            arms = [[factor * value for value in row] for row in rows]
            client.upsert_arms(name, arms, ids=[f"f{n}" for n in range(len(rows))])
        client.put_bandit("b", catalogue="old", policy="sub_ts", log={})
        client.reward(client.choose("b").decision, value=1.0, wait=True)
        page = console.open("bandits/b")
        page.get_by_role("link", name="Move", exact=True).click()
        page.get_by_label("To this catalogue").select_option("new")
        page.get_by_role("button", name="What would it do? (dry run)").click()
        told = page.locator("section", has=page.get_by_role("heading", name="2. What it would do"))
        expect(told).to_contain_text("Arms in both")
        expect(told).to_contain_text("60")
        assert client.get_bandit("b").catalogue == "old"
        page.locator(".destroy summary").click()
        page.get_by_label("Type b to go on").fill("b")
        page.get_by_role("button", name="Move b to new").click()
        expect(page.get_by_role("region", name="Changes")).to_contain_text("moved: old → new")
        assert client.get_bandit("b").catalogue == "new"
        console.check()
