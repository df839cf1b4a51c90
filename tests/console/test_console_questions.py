"""Questions, each answered in at most three clicks from the overview; and what pages let one change."""

from __future__ import annotations

import re
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


@pytest.mark.slow
def test_a_filter_says_why_it_lets_in_nothing_as_the_service_does(browser: Browser, furnished: Service):
    with console_of(browser, furnished) as console:
        page = console.open("catalogues/films")
        page.get_by_text("Build the filter").click()
        page.get_by_role("button", name="Add a condition").click()
        condition = page.get_by_role("group", name="Condition")
        for field, value, words in (
            ("genre", "7", "`genre` is text in 60 arms, and the filter compares it with a number"),
            ("campaign", "seven", "`campaign` is a number in 60 arms, and the filter compares it with text"),
        ):
            page.get_by_label("Filter", exact=True).fill(
                f'{{"{field}": {value if value == "7" else chr(34) + value + chr(34)}}}'
            )
            page.get_by_label("Filter", exact=True).blur()
            expect(condition.locator(".error")).to_have_text(words)
            expect(page.locator(".builder")).to_contain_text("No arm matches: ")
            body = {"query": [0.0] * 4, "filter": {field: 7 if value == "7" else value}}
            told = httpx.post(f"{furnished.url}/v1/catalogues/films/mips", json=body).json()
            assert told["errors"] == [{"loc": ["body", "filter", field], "message": words}]
            page.get_by_role("button", name="Show arms").click()
            expect(page.locator(".form-problem .problem")).to_contain_text(words)
        console.check()


@pytest.mark.slow
def test_policies_are_compared_in_one_chart_and_an_evaluation_is_cancelled(
    browser: Browser, furnished: Service
):
    with console_of(browser, furnished) as console, Client(furnished.url) as client:
        page = console.open("what-if/plain")
        page.get_by_role("button", name="every policy with probabilities").click()
        page.get_by_role("button", name="Evaluate").click()
        expect(page.get_by_role("heading", name="Would the log support it?")).to_be_visible()
        bars = page.locator("sl-bars").first
        expect(bars.locator("text.name")).to_have_count(4)
        value = client.evaluate("plain", {"policy": "epsilon_greedy", "epsilon": 0.05}).estimates
        dr = {each.estimator: each.value for each in value}["dr"]
        estimates = page.locator(
            "section", has=page.get_by_role("heading", name=re.compile("^epsilon_greedy"))
        )
        expect(estimates.get_by_role("region", name="Estimates")).to_contain_text(
            f"{dr:.3f}".replace(".", ",")
        )

        def slow(route):  # type: ignore[no-untyped-def]
            route.fulfill(
                json={
                    "id": "x",
                    "created": 0,
                    "state": "running",
                    "progress": {"decisions": 5, "of": 10},
                    "error": None,
                    "result": None,
                }
            )

        page.route(
            re.compile(r"/evaluations/[^/?]+$"),
            lambda route: slow(route) if route.request.method == "GET" else route.continue_(),
        )
        page.get_by_role("button", name="Evaluate").click()
        page.get_by_text("5 of 10 decisions").or_(page.get_by_text("5 von 10")).first.wait_for()
        page.get_by_role("button", name="Cancel").click()
        page.get_by_text("Cancelled: nothing was changed.").wait_for()
        assert client.list_evaluations("plain").items == () or all(
            each.state != "running" for each in client.list_evaluations("plain").items
        )


@pytest.mark.slow
def test_what_a_key_has_had_is_shown(browser: Browser, furnished: Service):
    found = httpx.get(f"{furnished.url}/v1/bandits/home/learners/user-7/exposures").json()["items"]
    with console_of(browser, furnished) as console:
        page = console.open("keys/home/user-7")
        had = page.get_by_role("region", name="Had")
        expect(had.locator("tbody tr")).to_have_count(len(found))
        expect(had.locator("tbody tr").first).to_contain_text(f"Film number {found[0]['arm'][1:]}")
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
