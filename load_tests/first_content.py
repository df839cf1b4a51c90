"""How soon does the console show something, and do many arms and keys change that? Needs Chromium.

    PYTHONPATH=.:tests/support python -m load_tests.first_content [--quick] [--json FILE]

Two services, a small one and a large one, each with a catalogue of titled arms, a bandit with a learner for each key,
a holdout and a log. A browser that has cached nothing opens each page of both in turn. Medians over the rounds, ms
since the navigation began:

    paint     First Contentful Paint
    numbers   the first card or row of the page has a number
    whole     nothing is left that loads: no skeleton stands any more
    ratio     whole, large / small
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from playwright.sync_api import Browser, sync_playwright

from console_browser import BROWSER, SIZES
from examples.service import Server, temporary_service
from shortlist_client.bodies import RewardItem, ChooseBody, ObservationItem
from studies.measurement import report

SEED = 61
DIM, BATCH = 16, 1_000
# Arms, keys, logged decisions.
SMALL, LARGE, QUICK = (300, 100, 1_000), (300_000, 100_000, 20_000), (3_000, 1_000, 2_000)
ROUNDS, QUICK_ROUNDS = 7, 3
SETTLE_S, PAGE_MS = 600.0, 60_000
GENRES = ("drama", "comedy", "action", "crime", "war")
PAGES = {
    "overview": "",
    "bandit": "bandits/home",
    "explore": "bandits/home/explore",
    "learners": "bandits/home/learners",
    "catalogue": "catalogues/films",
    "arm": "catalogues/films?arm=f7",
    "key": "keys/home/u7",
    "decisions": "decisions/home",
}
# When each thing was first so, in ms since the navigation began.
WATCH = """() => {
    const seen = (window.seen = {});
    const look = () => {
        const page = document.querySelector("main .page");
        if (!page) return;
        const texts = [...page.querySelectorAll(".tile strong, td, dd")].map((each) => each.textContent);
        if (!seen.numbers && texts.some((text) => /\\d/.test(text))) seen.numbers = performance.now();
        if (page.dataset.state === "shown" && !page.querySelector(".skeleton")) seen.whole ??= performance.now();
        else delete seen.whole;
    };
    new MutationObserver(look).observe(document, { subtree: true, childList: true, attributes: true });
}"""
READ = """() => ({
    paint: performance.getEntriesByName("first-contentful-paint")[0]?.startTime, ...window.seen })"""
SETTLED = "() => window.seen.whole && window.seen.numbers && performance.now() - window.seen.whole > 1000"


def main(arguments: list[str] | None = None) -> int:
    """Measure, print, and write the figures."""
    parser = argparse.ArgumentParser(prog="python -m load_tests.first_content", description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="3,000 arms and 1,000 keys in place of the large store"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write machine, versions and all figures")
    parsed = parser.parse_args(arguments)
    large, rounds = (QUICK, QUICK_ROUNDS) if parsed.quick else (LARGE, ROUNDS)
    with temporary_service() as few, temporary_service() as many, sync_playwright() as playwright:
        fill(few, *SMALL)
        fill(many, *large)
        browser = playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox", "--disable-gpu"])
        rows = measured(browser, {"small": few, "large": many}, rounds)
        browser.close()
    setting = {"small": SMALL, "large": large, "rounds": rounds}
    result = report("first_content", rows, seed=SEED) | {"setting": setting}
    if parsed.json is not None:
        parsed.json.write_text(json.dumps(result, indent=1) + "\n")
    return 0


def fill(server: Server, arms: int, keys: int, decisions: int) -> None:
    """The catalogue ``films`` and the bandit ``home``; returns when the index is built and the log is written."""
    rng = np.random.default_rng(SEED)
    with server.connect(timeout_s=SETTLE_S) as client:
        client.put_catalogue("films", dim=DIM, display={"title": "name"})
        client.import_arms("films", lines(arms, rng))
        client.put_bandit(
            "home", catalogue="films", policy="sub_ts", scope="per_key", log={}, holdout={"share": 0.2}
        )
        for first in range(0, keys, BATCH):
            items: list[ObservationItem] = [
                {
                    "id": f"o{key}",
                    "key": f"u{key}",
                    "arm": f"f{rng.integers(arms)}",
                    "value": float(rng.random()),
                }
                for key in range(first, min(first + BATCH, keys))
            ]
            client.observe("home", items, wait=True)
        for first in range(0, decisions, BATCH):
            asks: list[ChooseBody] = [{"key": f"u{number % keys}"} for number in range(first, first + BATCH)]
            choices = client.choose_batch("home", asks).results
            rewards: list[RewardItem] = [
                {"decision": each.decision, "value": float(rng.random())} for each in choices
            ]
            client.reward_batch(rewards, wait=True)
        while (
            client.get_catalogue("films").index["state"] != "ready"
            or len(client.list_log("home", limit=1).items) < 1
        ):
            pass


def lines(arms: int, rng: np.random.Generator) -> Iterator[bytes]:
    """Arms as lines of JSON, a thousand at a time."""
    for first in range(0, arms, BATCH):
        rows = range(first, min(first + BATCH, arms))
        for row, own in zip(rows, rng.standard_normal((len(rows), DIM)).round(4).tolist(), strict=True):
            metadata = {"name": f"Film number {row}", "genre": GENRES[row % 5], "year": 1950 + row % 70}
            yield json.dumps({"id": f"f{row}", "features": own, "metadata": metadata}).encode() + b"\n"


def measured(browser: Browser, servers: dict[str, Server], rounds: int) -> list[dict[str, Any]]:
    """A row for each page: medians of both stores."""
    seen: dict[tuple[str, str], list[dict[str, float]]] = {}
    for _ in range(rounds):
        for page in PAGES:
            for name, server in servers.items():
                seen.setdefault((page, name), []).append(visit(browser, server, PAGES[page]))
    rows = []
    for page in PAGES:
        row: dict[str, Any] = {"page": page}
        for name in servers:
            for figure in ("paint", "numbers", "whole"):
                row[f"{name}_{figure}_ms"] = round(median(each[figure] for each in seen[page, name]))
        row["ratio"] = round(row["large_whole_ms"] / row["small_whole_ms"], 2)
        print(", ".join(f"{name} {value}" for name, value in row.items()), file=sys.stderr, flush=True)
        rows.append(row)
    return rows


def visit(browser: Browser, server: Server, address: str) -> dict[str, float]:
    """Open a page in a window that has cached nothing."""
    context = browser.new_context(viewport=SIZES["wide"], reduced_motion="reduce")
    try:
        page = context.new_page()
        page.add_init_script(f"({WATCH})()")
        page.goto(f"{server.url}/console#/{address}")
        page.wait_for_selector(".page[data-state=shown]", timeout=PAGE_MS)
        deadline = time.monotonic() + PAGE_MS / 1000
        while not page.evaluate(
            SETTLED
        ):  # polled from here: the page's policy lets no text be evaluated in it
            if time.monotonic() > deadline:
                raise LoadError(f"{address} still loads after {PAGE_MS} ms")
            page.wait_for_timeout(POLL_MS)
        found: dict[str, float] = page.evaluate(READ)
        return found
    finally:
        context.close()


if __name__ == "__main__":
    sys.exit(main())
