"""Questions, each answered in at most three clicks from the overview; and what pages let one change."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime, time, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import httpx
import pytest
from playwright.sync_api import Browser, Locator, Page, expect
from test_console_pages import LOOKS, OTHER_LOOKS, Look, check_looks, go

from console_browser import Console, console_of
from console_world import features, furnish
from service_process import Service, serving
from shortlist_client import Client
from waiting import wait_until_sync

pytestmark = pytest.mark.rest

MOST_CLICKS = 3
BERLIN = ZoneInfo("Europe/Berlin")


@pytest.fixture(scope="module")
def furnished(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with serving(tmp_path_factory.mktemp("furnished")) as service:
        furnish(service)
        with Client(service.url) as client:
            client.create_slates(id="looks", arms=[f"f{n}" for n in range(8)], k=2, noise_std=0.5)
            client.create_centers(id="looks", points=[f"f{n}" for n in range(8)], k=2)
        yield service


class Clicks:
    """A visit that begins on the overview, and counts."""

    def __init__(self, console: Console) -> None:
        self.page = console.open("")
        # The table is drawn again as reports come; a click on what goes meanwhile is none.
        expect(self.page.locator("sl-spark svg")).to_have_count(2)
        self.count = 0

    def click(self, name: str, role: str = "link", within: Locator | Page | None = None) -> None:
        (within or self.page).get_by_role(role, name=name, exact=True).first.click()  # type: ignore[arg-type]
        self.count += 1
        assert self.count <= MOST_CLICKS

    def see(self, text: str | re.Pattern[str]) -> None:
        expect(self.page.locator("main")).to_contain_text(text)


def test_every_question_takes_three_clicks_at_most(browser: Browser, furnished: Service):
    with console_of(browser, furnished) as console, Client(furnished.url) as client:
        # Which bandit earns more than its holdout, and how sure is that?
        visit = Clicks(console)
        row = visit.page.get_by_role("region", name="Bandits").locator("tbody tr", has_text="plain")
        lift = client.report("plain").lift
        word = (
            "cannot be told yet" if lift.interval is None or lift.interval[0] <= 0 <= lift.interval[1]
            else "more" if lift.interval[0] > 0 else "less"
        )  # fmt: skip
        expect(row.locator("td").nth(1)).to_contain_text(word)
        expect(row.locator("td").nth(1)).to_contain_text(re.compile("95%|no interval"))
        # Since when? The same sentence; then what was known when.
        expect(row.locator("td").nth(1)).to_contain_text(re.compile("[Ss]ince"))
        visit.click("plain")
        visit.see("What was known when")
        visit.see(f"of {client.report('plain').decisions:,} decisions".replace(",", "."))
        # What is the next step?
        visit.see("Next: wait for more decisions" if word.startswith("cannot") else "Next: ")
        # What is broken? The first line says it, or that nothing is.
        visit = Clicks(console)
        ill = visit.page.locator("main .alarm").or_(visit.page.locator("main .done"))
        expect(ill.first).to_be_visible()
        # What does it cost?
        for label in ("Memory", "Processor", "One choice, p99"):
            tile = visit.page.locator(".tile", has=visit.page.get_by_text(label, exact=True))
            expect(tile.locator("strong")).to_have_text(re.compile(r"\d|–"))
        # Why did user 7 see this?
        visit = Clicks(console)
        visit.click("home")
        report = client.report("home")
        assert report.as_of_decisions < report.decisions
        visit.see(
            f"first {report.as_of_decisions} of {report.decisions} decisions, anew at {report.next_look}"
        )
        visit.click("Decisions", within=visit.page.locator("main"))
        row = visit.page.get_by_role("region", name="The last decisions").locator(
            "tbody tr", has_text="user-7"
        )
        visit.click("explain", within=row.first)
        visit.see("What was shown")
        visit.see(re.compile("softmax drew|The choice was made again"))
        visit.see("Film number")
        # Who gets what?
        visit = Clicks(console)
        visit.click("home")
        visit.click("Decisions", within=visit.page.locator("main"))
        newest = client.list_log("home", order="desc", limit=1).items[0]
        first = visit.page.get_by_role("region", name="The last decisions").locator("tbody tr").first
        expect(first).to_contain_text(str(newest.key))
        for arm in newest.arms:
            expect(first).to_contain_text(f"Film number {arm.id[1:]}")
        # Does it explore? Which arms are never shown?
        visit = Clicks(console)
        visit.click("home")
        visit.click("Does it explore?")
        visit.see("of the catalogue was shown in the last")
        visit.see(re.compile(r"\d+ of 60 arms are in none of the last \d+ decisions"))
        # Which quota runs out today?
        visit = Clicks(console)
        visit.click("home")
        visit.click("Quotas")
        expect(visit.page.locator(".tile", has_text="Used up now")).to_contain_text("used-up")
        today = visit.page.locator(".tile", has_text="Run out today")

        def is_told() -> bool:
            """The page may have looked before the forecast moved beyond midnight: it looks again."""
            ends = datetime.fromisoformat(client.get_quota("home", "soon").ends)
            midnight = datetime.combine(datetime.now(BERLIN) + timedelta(days=1), time(), BERLIN)
            return ("soon" if ends < midnight else "none") in today.inner_text()

        wait_until_sync(is_told, what="the page says what the quota says")
        expect(visit.page.get_by_role("region", name="Quotas")).to_contain_text("used up in")
        # What would weight 30 for purchases do?
        visit = Clicks(console)
        visit.click("home")
        visit.click("Signals")
        visit.page.get_by_label("Weight of purchase", exact=True).fill("30")
        visit.click("What would these weights earn?", "button")
        table = visit.page.get_by_role("region", name="What these weights would do")
        expect(table.locator("tbody tr")).to_have_count(2)
        expect(table).to_contain_text("30")
        answer = client.evaluate("home", {"weights": [{"click": 1.0, "purchase": 30.0}]})
        estimates = {each.estimator: each.value for each in answer.results[0].signals["click"].estimates}
        value = estimates["dr"]  # None where the log shows too little of what these weights would do
        shown = "–" if value is None else f"{value:.3f}".replace(".", ",")
        expect(table.locator("tbody tr", has_text="click").locator("td").nth(4)).to_have_text(shown)
        # Is the index good?
        visit = Clicks(console)
        visit.click("films")
        visit.see("Every search finds the best arms.")
        # What changed yesterday: versions, moves, priors?
        visit = Clicks(console)
        visit.click("home")
        visit.click("What changed")
        visit.see("in the last 24 hours")
        changes = visit.page.get_by_role("region", name="Changes")
        expect(changes).to_contain_text("temperature")
        priors = client.list_priors("home").items
        expect(changes.locator("tbody tr", has_text="prior")).to_have_count(len(priors))
        for each in priors:
            row = changes.locator("tbody tr", has=visit.page.get_by_text(f"prior {each.version}", exact=True))
            expect(row).to_contain_text(f"of {each.keys} keys")
        console.check()


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
