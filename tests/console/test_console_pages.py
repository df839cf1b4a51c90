"""Every page of the console in a browser: on the example shop, an empty service, errors, and by keyboard."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import httpx
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from app.api.api_keys import new_key
from console_browser import Console, console_of
from service_process import Service, serving
from shortlist_client import Client
from shortlist_client.errors import NotFound
from waiting import wait_until_sync

pytestmark = pytest.mark.rest

SHOP = "shop-window"
# By name: its address, and what stands on it once all is there.
PAGES = {
    "overview": ("", "Catalogues"),
    "try": (f"try/{SHOP}?k=3", "The same call"),
    "bandits": ("bandits", "All bandits"),
    "work": (f"bandits/{SHOP}", "What was known when"),
    "explore": (f"bandits/{SHOP}/explore", "How evenly it shows"),
    "settings": (f"bandits/{SHOP}/settings", "Change a setting"),
    "versions": (f"bandits/{SHOP}/versions", "What changed"),
    "learners": (f"bandits/{SHOP}/learners", "Learners with rewards"),
    "quotas": (f"bandits/{SHOP}/quotas", "Quotas"),
    "catalogue": ("catalogues/shop?arm=mug-3&colour=kind", "Nearest arms"),
    "key": (f"keys/{SHOP}/_global", "What it has learned"),
    "decisions": (f"decisions/{SHOP}", "The last decisions"),
    "what-if": (f"what-if/{SHOP}", "Another setting"),
    "queries": ("queries/shop", "The question"),
    "campaigns": ("campaigns", "A campaign of slates"),
}
# What other colours may break; the rest is the same document.
RULES_OF_COLOURS = ["color-contrast", "link-in-text-block"]
# A phone has other elements: rows of tables are cards.
Look = tuple[str, str, list[str] | None]
LOOKS: list[Look] = [("wide", "light", None), ("narrow", "dark", None)]
OTHER_LOOKS: list[Look] = [("wide", "dark", RULES_OF_COLOURS), ("narrow", "light", RULES_OF_COLOURS)]
# What is wider than it is shown: the page, and the names of tables and texts.
HIDDEN = """() => [
    ...(document.documentElement.scrollWidth > innerWidth ? ["the page"] : []),
    ...[...document.querySelectorAll(".scroll, pre")]
        .filter((each) => each.checkVisibility() && each.scrollWidth > each.clientWidth + 1)
        .map((each) => each.getAttribute("aria-label") ?? each.textContent),
]"""
# Rows of a table are alike, and each is looked at for as long as all else on a page.
FEW_ROWS = """() => document.querySelectorAll("tbody tr:nth-child(n + 9)").forEach((each) => each.remove())"""
MARKUP = '<img src=x onerror="window.ran=1"><script>window.ran=1</script>'


def axe_finds(page: Page, rules: list[str] | None = None) -> list[str]:
    only: Any = {"runOnly": rules} if rules else {}
    found = Axe().run(page, options={"resultTypes": ["violations"], **only}).response["violations"]
    return [f"{each['id']}: {node['html'][:200]}" for each in found for node in each["nodes"]]


def check_looks(console: Console, name: str, looks: list[Look]) -> None:
    """The page that is shown is whole, accessible and fits, in windows of these looks."""
    page = console.page
    assert page.locator(".problem").count() == 0, name
    assert re.findall(r"\[object|undefined|NaN", page.locator("main").inner_text()) == [], name
    page.evaluate("document.querySelectorAll('main details').forEach((each) => (each.open = true))")
    expect(page.locator(".skeleton")).to_have_count(0)
    for size, theme, _ in looks:
        console.look(size, theme)
        assert page.evaluate(HIDDEN) == [], (name, size)
    page.evaluate(FEW_ROWS)
    for size, theme, rules in looks:
        console.look(size, theme)
        assert axe_finds(page, rules) == [], (name, size, theme)
    console.look("wide", "light")


def go(page: Page, address: str) -> None:
    """Follow a link in the page, which keeps the key; a reload forgets it."""
    page.evaluate(
        """to => {
            document.querySelector(".page").removeAttribute("data-state");
            if (location.hash === to) dispatchEvent(new HashChangeEvent("hashchange"));
            location.hash = to;
        }""",
        f"#/{address}",
    )
    page.wait_for_selector(".page[data-state=shown]")


def finished(page: Page, name: str) -> None:
    """Wait until a page has what it reads after it is shown."""
    page.get_by_role("heading", name=PAGES[name][1], exact=True).first.wait_for()
    charts = {"work": 2, "explore": 4, "key": 2, "catalogue": 1}.get(name, 0)
    expect(page.locator("sl-lines svg, sl-bars svg, sl-scatter svg")).to_have_count(charts)
    expect(page.locator(".skeleton")).to_have_count(0)
    if name == "overview":
        page.locator("sl-spark").wait_for()


@pytest.mark.parametrize(
    "looks",
    [pytest.param(LOOKS, id="looks"), pytest.param(OTHER_LOOKS, id="other looks", marks=pytest.mark.slow)],
)
def test_every_page_of_the_shop_is_whole_accessible_and_fits(
    browser: Browser, shop_service: Service, looks: list[Look]
):
    with console_of(browser, shop_service) as console:
        page = console.open("nowhere")
        for name, (address, _) in PAGES.items():
            go(page, address)
            finished(page, name)
            check_looks(console, name, looks)
        console.check()


def tab_to(page: Page, words: str) -> None:
    """Press Tab until the focus is on what is called so."""
    script = """() => {
        const at = document.activeElement;
        return [at.labels?.[0]?.textContent ?? "", at.tagName === "BODY" ? "" : at.textContent];
    }"""
    for _ in range(120):
        page.keyboard.press("Tab")
        if words in page.evaluate(script):
            return
    raise AssertionError(f"Tab does not lead to {words}")


def test_the_first_session_of_a_newcomer_by_keyboard_alone(browser: Browser, tmp_path: Path):
    with serving(tmp_path) as service, console_of(browser, service) as console:
        page = console.open("")
        page.get_by_role("button", name="Make a catalogue").wait_for()
        tab_to(page, "Make a catalogue")
        page.keyboard.press("Enter")
        page.get_by_text("Made: films").wait_for()
        expect(page.get_by_label("Catalogue", exact=True)).to_have_value("films")
        tab_to(page, "Make a bandit")
        page.keyboard.press("Enter")
        page.get_by_role("heading", name="The same call").wait_for()
        for count in (1, 2):
            tab_to(page, "Choose")
            page.keyboard.press("Enter")
            page.get_by_role("heading", name="Chosen").wait_for()
            expect(page.get_by_text("Accepted, and learned.")).to_have_count(0)
            tab_to(page, "Send the reward")
            page.keyboard.press("Enter")
            page.get_by_text(f"The learner has {count} rewards").wait_for()
        with Client(service.url) as client:
            assert client.get_learner("home", "_global").observations == 2
            assert len(client.list_log("home").items) == 2
        console.check()


def test_a_look_decides_nothing_and_a_choice_is_what_the_address_says(
    browser: Browser, shop_service: Service
):
    with console_of(browser, shop_service) as console, Client(shop_service.url) as client:
        before = client.report(SHOP)
        asked = {"k": 4, "seed": 7, "filter": '{"kind": "mug"}', "context.device": "mobile"}
        page = console.open(f"try/{SHOP}?{httpx.QueryParams(asked)}")
        page.get_by_role("button", name="Only look").click()
        page.get_by_role("heading", name="What would be chosen now").wait_for()
        arms = page.get_by_role("region", name="Arms").locator("tbody tr")
        seen = [row.locator("td").first.inner_text() for row in arms.all()]
        asked_here = {"k": 4, "seed": 7, "filter": {"kind": "mug"}, "context": {"device": "mobile"}}
        expected = client.dry_run(SHOP, **asked_here)
        assert seen == [arm.id for arm in expected.arms]
        assert client.report(SHOP) == before
        code = page.locator("pre code").first
        for way, words in (
            ("curl", "curl -X POST"),
            ("Python", 'filter={"kind": "mug"}'),
            ("TypeScript", "await client"),
        ):
            page.get_by_role("button", name=way, exact=True).click()
            expect(code).to_contain_text(words)
        page.get_by_label("Seed").fill("8")
        expect(page).to_have_url(re.compile("seed=8"))
        console.check()


def test_errors_stand_at_the_field_that_they_name_in_the_words_of_the_service(
    browser: Browser, shop_service: Service
):
    with console_of(browser, shop_service) as console:
        page = console.open(f"try/{SHOP}")
        wrong = {"price": {"$most": 3}}
        page.get_by_label("Filter", exact=True).fill(json.dumps(wrong))
        page.get_by_role("button", name="Choose", exact=True).click()
        field = page.locator(".field", has=page.get_by_label("Filter", exact=True))
        answer = httpx.post(
            f"{shop_service.url}/v1/bandits/{SHOP}/choose", json={"filter": wrong, "context": {}}
        ).json()
        expect(field.locator(".error")).to_contain_text(answer["errors"][0]["message"])
        expect(page.get_by_label("Filter", exact=True)).to_be_focused()
        page.get_by_label("Filter", exact=True).fill("{")
        page.get_by_role("button", name="Choose", exact=True).click()
        expect(field.locator(".error")).to_contain_text("is no JSON")
        page = console.open("catalogues/shop")
        page.get_by_label("Filter", exact=True).fill('{"price": {"$lte": "cheap", "$or": 1}}')
        page.get_by_role("button", name="Show arms").click()
        page.locator(".field", has=page.get_by_label("Filter", exact=True)).locator(
            ".error:not(:empty)"
        ).wait_for()
        page = console.open("bandits/nobody")
        expect(page.locator(".problem")).to_contain_text("Not found")
        page.get_by_role("link", name="Back to the overview").click()
        page.get_by_role("heading", name="Overview").wait_for()
        page = console.open("nowhere")
        page.get_by_role("heading", name="Not here").wait_for()
        console.check()


def test_a_change_is_shown_before_it_is_made_and_what_destroys_asks_for_the_name(
    browser: Browser, tmp_path: Path
):
    with serving(tmp_path) as service, console_of(browser, service) as console, Client(service.url) as client:
        client.put_catalogue("c", dim=2)
        client.upsert_arms("c", [[1.0, 0.0], [0.0, 1.0]], ids=["a", "b"])
        client.put_bandit("b", catalogue="c", policy="softmax")
        page = console.open("bandits/b/settings")
        page.get_by_role("button", name="Change temperature").click()
        page.get_by_label("New value, as JSON").fill("2.5")
        expect(page.get_by_role("region", name="What it changes")).to_contain_text("2.5")
        expect(page.locator("pre code")).to_contain_text("PATCH /v1/bandits/b")
        page.get_by_label("New value, as JSON").fill("-1")
        page.get_by_role("button", name="Change the bandit").click()
        page.locator(".field", has=page.get_by_label("New value, as JSON")).locator(
            ".error:not(:empty)"
        ).wait_for()
        assert client.get_bandit("b").version == 1
        page.get_by_label("New value, as JSON").fill("2.5")
        page.get_by_role("button", name="Change the bandit").click()
        expect(page.get_by_role("region", name="Settings")).to_contain_text("2.5")
        page.get_by_text("Version 2 holds from now on.").wait_for()
        assert client.get_bandit("b").temperature == 2.5
        page = console.open("bandits/b/versions")
        expect(page.get_by_role("region", name="Changes")).to_contain_text("temperature")
        page = console.open("bandits/b/settings")
        page.locator(".destroy summary").click()
        page.get_by_label("Type b to go on").fill("c")
        page.get_by_role("button", name="Delete b").click()
        page.get_by_text("must be b").wait_for()
        assert client.get_bandit("b")
        page.get_by_label("Type b to go on").fill("b")
        page.get_by_role("button", name="Delete b").click()
        page.get_by_text("There is none yet.").wait_for()
        assert client.list_bandits().items == ()
        console.check()


def test_an_evaluation_a_query_and_a_campaign(browser: Browser, shop_service: Service):
    with console_of(browser, shop_service) as console:
        page = console.open(f"what-if/{SHOP}")
        page.get_by_role("button", name="Evaluate").click()
        expect(page.get_by_role("region", name="Estimates").locator("tbody tr")).to_have_count(3)
        page = console.open("queries/shop?arm=mug-3")
        page.get_by_role("button", name="Ask all of them").click()
        expect(page.get_by_role("region", name="Ways of searching").locator("tbody tr")).to_have_count(5)
        page = console.open("campaigns")
        page.get_by_role("button", name="Make a campaign").first.click()
        page.get_by_role("button", name="Ask for five slates").click()
        tell = page.locator("form", has=page.get_by_role("button", name="Tell the totals"))
        expect(tell.locator("input")).to_have_count(5)
        for place, field in enumerate(tell.locator("input").all()):
            field.fill(str(1 + place / 4))
        tell.get_by_role("button").click()
        page.get_by_text("5 totals told.").wait_for()
        page = console.open("campaigns")
        centres = page.get_by_role("form", name="A campaign of centres")
        centres.get_by_label("Centres (k)").fill("0")
        centres.get_by_role("button").click()
        expect(centres.locator(".error", has_text="greater than or equal to 1")).to_have_count(1)
        centres.get_by_label("Centres (k)").fill("2")
        centres.get_by_role("button").click()
        page.get_by_role("button", name="Ask for five distances").click()
        tell = page.locator("form", has=page.get_by_role("button", name="Tell the distances"))
        expect(tell.locator("input")).to_have_count(5)
        for place in (1, 3):  # the others are left empty
            tell.locator("input").nth(place).fill("0.5" if place == 1 else "1e30")
        tell.get_by_role("button").click()
        expect(tell.locator(".field").nth(3).locator(".error:not(:empty)")).to_have_count(1)
        tell.locator("input").nth(3).fill("2")
        tell.get_by_role("button").click()
        page.get_by_text("2 distances told.").wait_for()
        expect(page.locator(".tile", has_text="Distances told")).to_contain_text("2")
        console.check()


def is_logged(client: Client, decision: str) -> bool:
    try:
        client.explain(SHOP, decision)
    except NotFound:
        return False
    return True


def test_a_decision_is_explained(browser: Browser, shop_service: Service):
    with console_of(browser, shop_service) as console, Client(shop_service.url) as client:
        choice = client.choose(SHOP, k=2, seed=5, context={"device": "desktop"})
        wait_until_sync(lambda: is_logged(client, choice.decision), what="the row is written")
        page = console.open(f"decisions/{SHOP}")
        page.get_by_label("Decision", exact=True).fill(choice.decision)
        page.get_by_role("button", name="Explain it").click()
        page.get_by_text("The choice was made again from its seed, and is the same.").wait_for()
        shown = page.get_by_role("region", name="What was shown")
        assert [row.locator("a").inner_text() for row in shown.locator("tbody tr").all()] == [
            a.id for a in choice.arms
        ]
        console.check()


def test_the_service_may_go_and_come_back_and_what_was_typed_stays(browser: Browser, tmp_path: Path):
    data = tmp_path / "data"
    with serving(tmp_path, data_dir=data) as service:
        httpx.put(f"{service.url}/v1/catalogues/c", json={"dim": 2}).raise_for_status()
        with console_of(browser, service) as console:
            page = console.open("")
            page.get_by_label("Name of the bandit").fill("typed")
            state = page.locator(".state")
            expect(state).to_have_text("Connected")
            service.kill()
            expect(state).to_contain_text("does not answer")
            page.get_by_role("button", name="Make a bandit").click()
            expect(page.locator(".form-problem .problem")).to_contain_text("does not answer")
            with serving(tmp_path, "--port", str(service.port), data_dir=data) as again:
                expect(state).to_have_text("Connected")
                assert page.get_by_label("Name of the bandit").input_value() == "typed"
                httpx.put(f"{again.url}/v1/catalogues/d", json={"dim": 2}).raise_for_status()
                page.get_by_role("link", name="d", exact=True).wait_for()
            console.check()


def test_a_key_of_each_scope_does_what_it_may_and_is_kept_nowhere(browser: Browser, tmp_path: Path):
    keys = {scope: new_key(scope, [scope]) for scope in ("choose", "read", "admin")}
    entries = " ".join(entry for _, entry in keys.values())
    with serving(tmp_path, SHORTLIST_API_KEYS=entries) as service:
        with Client(service.url, key=keys["admin"][0]) as client:
            client.put_catalogue("c", dim=2)
            client.upsert_arms("c", [[1.0, 0.0]], ids=["a"])
            client.put_bandit("b", catalogue="c", policy="sub_ts")
        with console_of(browser, service) as console:
            page = console.open("try/b")

            def enter(key: str) -> None:
                page.get_by_label("API key").fill(key)
                page.get_by_role("button", name="Use this key").click()

            page.get_by_text("This service asks for an API key.").wait_for()
            expect(page.locator(".state")).to_have_text("The service asks for an API key")
            enter("sl_wrong")
            page.get_by_text("The service does not know this key.").wait_for()
            expect(page.locator(".state")).to_have_text("The service does not take this API key")
            enter(keys["choose"][0])
            expect(page.locator(".problem")).to_contain_text("lacks the scope read")
            page.get_by_role("button", name="API key").click()
            enter(keys["read"][0])
            expect(page.locator(".state")).to_have_text("Connected")
            page.get_by_role("button", name="Only look").click()
            page.get_by_role("heading", name="What would be chosen now").wait_for()
            page.get_by_role("button", name="Choose", exact=True).click()
            expect(page.locator(".problem")).to_contain_text("lacks the scope choose")
            page.get_by_role("button", name="API key").click()
            enter(keys["admin"][0])
            page.get_by_role("button", name="Choose", exact=True).click()
            page.get_by_role("heading", name="Chosen").wait_for()
            kept = page.evaluate(
                "[location.href, document.cookie, localStorage.length, sessionStorage.length]"
            )
            assert kept[1:] == ["", 0, 0]
            assert "sl_" not in kept[0]
            assert page.get_by_text("$SHORTLIST_KEY").count() == 1, (
                "a call to copy names a variable, not the key"
            )
            page.reload()
            page.get_by_text("This service asks for an API key.").wait_for()
            console.check()


def test_markup_in_every_text_that_is_stored_is_text(browser: Browser, tmp_path: Path):
    with serving(tmp_path) as service, Client(service.url) as client:
        client.put_catalogue("c", dim=2)
        rows: Any = [[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]
        client.upsert_arms(
            "c",
            rows,
            ids=["a", "b", "d"],
            tags=[[MARKUP[:128]]] * 3,
            metadata=[{MARKUP: MARKUP, "n": {"m": [MARKUP]}}] * 3,
        )
        context = {"fields": [{"name": "device", "kind": "category", "values": [MARKUP, "x"]}]}
        where = {"$or": [{"n.m": MARKUP}, {"n.m": {"$ne": MARKUP}}]}
        client.put_bandit(
            "b",
            catalogue="c",
            policy="softmax",
            context=context,
            filter=where,
            log={},
            holdout={"share": 0.5},
        )
        client.patch_bandit("b", filter={"n.m": MARKUP})
        client.put_quota("b", "q", filter={"n.m": MARKUP}, most=10)
        choice = client.choose("b", k=2, context={"device": MARKUP}, filter={"n.m": MARKUP})
        client.reward(choice.decision, value=1.0, arm=choice.arms[0].id, wait=True)
        rules: Any = {"at_most": [{"field": "maker", "count": 1}]}
        markup: Any = {arm: {"maker": f"{MARKUP}{arm}"} for arm in "xyz"}
        client.create_slates(id="s", arms=["x", "y", "z"], k=2, noise_std=0.5, rules=rules, metadata=markup)
        with console_of(browser, service) as console:
            typed = httpx.QueryParams({"filter": json.dumps({"n.m": MARKUP}), "context.device": MARKUP})
            addresses = [
                "", f"try/b?{typed}",
                "bandits/b", "bandits/b/explore", "bandits/b/settings", "bandits/b/versions",
                "bandits/b/quotas",
                f"catalogues/c?{httpx.QueryParams({'arm': 'a', 'colour': MARKUP})}",
                "keys/b/_global", "decisions/b",
                f"decisions/b/{choice.decision}", "what-if/b", "queries/c", "campaigns/slates/s",
                f"bandits/{httpx.QueryParams({'x': MARKUP})}", f"nowhere/{MARKUP}",
            ]  # fmt: skip
            page = console.open("nowhere")
            for address in addresses:
                go(page, address)
                if address.startswith("try"):
                    page.get_by_role("button", name="Choose", exact=True).click()
                    page.get_by_role("heading", name="Chosen").wait_for()
                if address.startswith("catalogues"):
                    expect(page.locator("sl-scatter circle.dot")).to_have_count(3)
                    expect(page.get_by_role("region", name="Arms", exact=True)).to_contain_text("<img")
                assert page.evaluate(
                    "[window.ran ?? null, document.querySelectorAll('img, main script').length]"
                ) == [None, 0]
            console.check()
