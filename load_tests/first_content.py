"""How soon does the console show something, and do many arms and keys change that? Linux, Chromium.

    PYTHONPATH=.:tests/support python -m load_tests.first_content [--quick] [--rounds N] [--json FILE]

Two services, a small one and a large one, each with a catalogue of arms with titles, a bandit with a learner
for each key, a holdout, and a log of as many decisions. A browser that has cached nothing opens each page of
both in turn. Medians over the rounds, in ms since the navigation began:

    bare      First Contentful Paint of the answer of /healthz: what a browser needs for a few bytes here
    paint     First Contentful Paint of the page
    numbers   the first card or row has a number
    whole     nothing is left that loads
    cpu       processor time of the page's thread and of the service until then and for a second more,
              which does not depend on what else the machine does; ratio: large / small
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from playwright.sync_api import Browser, sync_playwright

from console_browser import BROWSER, SIZES
from examples.service import Server, temporary_service
from load_tests.stalls import cpu_s
from load_tests.wrk import LoadError
from shortlist_client.bodies import ChooseBody, ObservationItem, RewardItem
from studies.measurement import report

SEED = 61
DIM, BATCH = 16, 1_000
# Arms, keys.
SMALL, LARGE, QUICK = (300, 100), (300_000, 100_000), (3_000, 1_000)
DECISIONS = 2_000
ROUNDS, QUICK_ROUNDS = 7, 3
SETTLE_S, PAGE_S, POLL_MS = 600.0, 120.0, 50
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
        const isWhole = page.dataset.state === "shown" && !page.querySelector(".skeleton");
        if (!isWhole) delete seen.whole;
        else seen.whole ??= performance.now();
    };
    new MutationObserver(look).observe(document, { subtree: true, childList: true, attributes: true });
}"""
READ = """() => ({
    ...Object.fromEntries(performance.getEntriesByName("first-contentful-paint").map((each) =>
        ["paint", each.startTime])),
    ...window.seen })"""
SETTLED = "() => window.seen.whole && window.seen.numbers && performance.now() - window.seen.whole > 1000"
FIGURES = ("paint", "numbers", "whole", "cpu")


def main(arguments: list[str] | None = None) -> int:
    """Measure, print, and write the figures."""
    parser = argparse.ArgumentParser(prog="python -m load_tests.first_content", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="3,000 arms and 1,000 keys in the large one")
    parser.add_argument("--rounds", type=int, metavar="N", help="how often each page is opened")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write machine, versions and all figures")
    parsed = parser.parse_args(arguments)
    large, rounds = (QUICK, QUICK_ROUNDS) if parsed.quick else (LARGE, ROUNDS)
    rounds = parsed.rounds or rounds
    with temporary_service() as few, temporary_service() as many, sync_playwright() as playwright:
        fill(few, *SMALL)
        fill(many, *large)
        browser = playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox", "--disable-gpu"])
        rows = measured(browser, {"small": few, "large": many}, rounds)
        browser.close()
    setting = {"small": SMALL, "large": large, "decisions": DECISIONS, "rounds": rounds}
    result = report("first_content", rows, seed=SEED) | {"setting": setting}
    if parsed.json is not None:
        parsed.json.write_text(json.dumps(result, indent=1) + "\n")
    return 0


def fill(server: Server, arms: int, keys: int) -> None:
    """The catalogue ``films`` and the bandit ``home``; returns when the index is built."""
    rng = np.random.default_rng(SEED)
    with server.connect(timeout_s=SETTLE_S) as client:
        client.put_catalogue("films", dim=DIM, display={"title": "name"})
        client.import_arms("films", lines(arms, rng))
        terms: dict[str, Any] = {"scope": "per_key", "log": {}, "holdout": {"share": 0.2}}
        client.put_bandit("home", catalogue="films", policy="sub_ts", **terms)
        for first in range(0, keys, BATCH):
            items: list[ObservationItem] = [
                {"id": f"o{key}", "key": f"u{key}", "arm": f"f{arm}", "value": value}
                for key, arm, value in zip(
                    range(first, min(first + BATCH, keys)),
                    rng.integers(arms, size=BATCH).tolist(),
                    rng.random(BATCH).tolist(),
                    strict=False,
                )
            ]
            client.observe("home", items, wait=True)
        for first in range(0, DECISIONS, BATCH):
            asks: list[ChooseBody] = [{"key": f"u{number % keys}"} for number in range(first, first + BATCH)]
            choices = client.choose_batch("home", asks).results
            rewards: list[RewardItem] = [
                {"decision": each.decision, "value": value}
                for each, value in zip(choices, rng.random(BATCH).tolist(), strict=True)
            ]
            client.reward_batch(rewards, wait=True)
        deadline = time.monotonic() + SETTLE_S
        while client.get_catalogue("films").index["state"] != "ready":
            if time.monotonic() > deadline:
                raise LoadError(f"the index was not built within {SETTLE_S:g} s")
            time.sleep(POLL_MS / 1_000)


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
    bare: list[float] = []
    for _ in range(rounds):
        for page, address in PAGES.items():
            for name, server in servers.items():
                bare.append(visit(browser, server, "/healthz")["paint"])
                found = visit(browser, server, f"/console#/{address}")
                seen.setdefault((page, name), []).append(found)
                print(
                    page,
                    name,
                    {figure: round(found[figure]) for figure in FIGURES},
                    file=sys.stderr,
                    flush=True,
                )
    rows = []
    for page in PAGES:
        row: dict[str, Any] = {"page": page, "bare": round(median(bare))}
        for name in servers:
            found = seen[page, name]
            row |= {f"{name}_{each}": round(median(one[each] for one in found)) for each in FIGURES}
        row["cpu_ratio"] = round(row["large_cpu"] / row["small_cpu"], 2)
        print(", ".join(f"{name} {value}" for name, value in row.items()), file=sys.stderr, flush=True)
        rows.append(row)
    return rows


def visit(browser: Browser, server: Server, address: str) -> dict[str, float]:
    """Open a page in a window that has cached nothing. Raises LoadError where it does not become whole."""
    context = browser.new_context(viewport=SIZES["wide"], reduced_motion="reduce")
    try:
        page = context.new_page()
        thread = context.new_cdp_session(page)
        thread.send("Performance.enable", {"timeDomain": "threadTicks"})
        page.add_init_script(f"({WATCH})()")
        before_s = cpu_s(server.pid)
        page.goto(f"{server.url}{address}")
        if address.startswith("/console"):
            deadline = time.monotonic() + PAGE_S
            while not page.evaluate(SETTLED):
                if time.monotonic() > deadline:
                    raise LoadError(f"{address} still loads after {PAGE_S:g} s")
                page.wait_for_timeout(POLL_MS)
        else:
            while "paint" not in page.evaluate(READ):
                page.wait_for_timeout(POLL_MS)
        found: dict[str, float] = page.evaluate(READ)
        metrics = {each["name"]: each["value"] for each in thread.send("Performance.getMetrics")["metrics"]}
        own_s = metrics["TaskDuration"] + cpu_s(server.pid) - before_s
        return {**found, "cpu": 1_000 * own_s}
    finally:
        context.close()


if __name__ == "__main__":
    sys.exit(main())
