"""What the pages say, beside what is computed here from the log: a table of numbers that once were wrong."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect
from test_console_pages import go

from console_browser import console_of
from console_world import furnish
from service_process import Service, serving

pytestmark = pytest.mark.rest

WEIGHTS = {"click": 1.0, "purchase": 10.0}
LAST = 1_000


@pytest.fixture(scope="module")
def furnished(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with serving(tmp_path_factory.mktemp("furnished")) as service:
        furnish(service)
        yield service


def rows_of(service: Service, bandit: str) -> list[dict[str, Any]]:
    """All rows of the log, the oldest first."""
    found: list[dict[str, Any]] = []
    cursor = ""
    while cursor is not None:
        page = httpx.get(f"{service.url}/v1/bandits/{bandit}/log?limit=1000{cursor}").json()
        found += page["items"]
        cursor = page["next"] and f"&cursor={page['next']}"
    return found


def earned(row: dict[str, Any], arm: str | None = None, signal: str | None = None) -> float:
    """What a decision earned, by the weights: for one arm or all, of one signal, unweighted, or all."""
    return sum(
        reward["value"] * (1.0 if signal else WEIGHTS.get(reward.get("signal"), 1.0))
        for reward in row["rewards"]
        if arm in {None, reward["arm"]} and signal in {None, reward.get("signal")}
    )


def mean(rows: list[dict[str, Any]], group: str, signal: str | None = None) -> float:
    own = [earned(row, signal=signal) for row in rows if row["group"] == group]
    return sum(own) / len(own)


def entropy(rows: list[dict[str, Any]]) -> float:
    shown = Counter(arm["id"] for row in rows for arm in row["arms"])
    total = sum(shown.values())
    return -sum(count / total * math.log2(count / total) for count in shown.values())


def policy_of_last(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [row for row in rows[-LAST:] if row["group"] != "holdout"]


def at_look(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The decisions that numbers with keys as the unit are of: a power of two."""
    return rows[: 1 << len(rows).bit_length() - 1]


def numbers_in(text: str) -> list[float]:
    """The numbers of a German text: 1.234,5 is 1234.5."""
    return [
        float(each.replace(".", "").replace(",", ".").replace("−", "-"))
        for each in re.findall(r"[-−+]?\d[\d.]*(?:,\d+)?", text)
    ]


def tile(page: Page, label: str) -> str:
    found = page.locator(".tile", has=page.get_by_text(label, exact=True))
    return found.locator("strong").inner_text()


def cell(page: Page, region: str, row: str, column: int) -> str:
    line = page.get_by_role("region", name=region, exact=True).locator("tbody tr", has_text=row).first
    return line.locator("td").nth(column).inner_text()


Row = tuple[str, str, Callable[[Page], str], Callable[[list[dict[str, Any]]], float]]
# A page, whose log, what is read off it, and the same from the log.
TABLE: list[Row] = [
    ("", "plain", lambda page: cell(page, "Bandits", "plain", 2), lambda rows: mean(rows, "policy")),
    ("", "home", lambda page: cell(page, "Bandits", "home", 2), lambda rows: mean(at_look(rows), "policy")),
    (
        "",
        "plain",
        lambda page: cell(page, "Bandits", "plain", 3),
        lambda rows: sum(row["group"] == "policy" for row in rows),
    ),
    ("bandits/plain", "plain", lambda page: tile(page, "Policy"), lambda rows: mean(rows, "policy")),
    ("bandits/plain", "plain", lambda page: tile(page, "Holdout"), lambda rows: mean(rows, "holdout")),
    (
        "bandits/plain",
        "plain",
        lambda page: tile(page, "Lift over the holdout"),
        lambda rows: mean(rows, "policy") - mean(rows, "holdout"),
    ),
    (
        "bandits/home",
        "home",
        lambda page: tile(page, "Rewarded"),
        lambda rows: (
            100
            * sum(bool(row["rewards"]) for row in at_look(rows) if row["group"] == "policy")
            / sum(row["group"] == "policy" for row in at_look(rows))
        ),
    ),
    (
        "bandits/home/signals",
        "home",
        lambda page: cell(page, "Signals", "click", 3),
        lambda rows: mean(at_look(rows), "policy", "click"),
    ),
    (
        "bandits/home/signals",
        "home",
        lambda page: cell(page, "Signals", "purchase", 4),
        lambda rows: 10 * mean(at_look(rows), "policy", "purchase"),
    ),
    (
        "bandits/home/signals",
        "home",
        lambda page: cell(page, "Signals", "sum", 4),
        lambda rows: mean(at_look(rows), "policy"),
    ),
    (
        "bandits/plain/explore",
        "plain",
        lambda page: tile(page, "Entropy"),
        lambda rows: entropy(policy_of_last(rows)),
    ),
    (
        "bandits/plain/explore",
        "plain",
        lambda page: tile(page, "Looked at"),
        lambda rows: len(policy_of_last(rows)),
    ),
    (
        "bandits/home/explore",
        "home",
        lambda page: page.locator("section", has_text="Never shown").locator("p").first.inner_text(),
        lambda rows: 60 - len({arm["id"] for row in policy_of_last(rows) for arm in row["arms"]}),
    ),
    (
        "keys/home/user-7",
        "home",
        lambda page: str(page.get_by_role("region", name="Last decisions").locator("tbody tr").count()),
        lambda rows: sum(row["key"] == "user-7" for row in rows),
    ),
    (
        "catalogues/films?arm=f7",
        "plain",
        lambda page: cell(page, "Shown", "plain", 1),
        lambda rows: sum(arm["id"] == "f7" for row in rows[-LAST:] for arm in row["arms"]),
    ),
]


def test_numbers_of_the_pages_are_those_of_the_log(browser: Browser, furnished: Service):
    logs = {bandit: rows_of(furnished, bandit) for bandit in ("plain", "home")}
    with console_of(browser, furnished) as console:
        page = console.open("nowhere")
        before = None
        for address, bandit, read, compute in TABLE:
            if address != before:
                go(page, address)
                before = address
            expect(page.locator(".skeleton")).to_have_count(0)
            if address == "":
                expect(page.get_by_role("region", name="Bandits").locator("sl-spark svg")).to_have_count(2)
            found, expected = numbers_in(read(page))[0], compute(logs[bandit])
            assert found == pytest.approx(expected, rel=0.006, abs=0.0006), (address, found, expected)
        console.check()


@pytest.mark.slow
def test_the_last_decisions_are_the_newest_rows_of_the_log(browser: Browser, furnished: Service):
    newest = rows_of(furnished, "plain")[-1]
    with console_of(browser, furnished) as console:
        page = console.open("decisions/plain")
        rows = page.get_by_role("region", name="The last decisions").locator("tbody tr")
        expect(rows).to_have_count(50)
        link = rows.first.get_by_role("link", name="explain").get_attribute("href")
        assert newest["decision"] in link
        console.check()
