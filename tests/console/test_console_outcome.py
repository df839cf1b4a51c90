"""The sentence that says whether a bandit is better, beside what is computed here from its report."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from console_browser import console_of
from node import node
from service_process import serving
from shortlist_client import Client
from waiting import wait_until_sync

pytestmark = pytest.mark.rest

OUTCOME = Path(__file__).parents[2] / "app/console/outcome.js"
GLOBALS = "globalThis.HTMLElement = class {}; globalThis.navigator ??= {}; const DAY = 86_400_000;"


def run(expression: str) -> Any:
    """What an expression over the module comes to, in English."""
    script = f"""
        {GLOBALS}
        Object.defineProperty(globalThis, "navigator", {{ value: {{ languages: ["en-GB"] }} }});
        const module = await import({json.dumps(OUTCOME.as_uri())});
        const {{ outcome, alarmsOf, boundsOf, costOf, nextStep, planned }} = module;
        process.stdout.write(JSON.stringify({expression}));
    """
    return json.loads(node("--input-type=module", "--eval", script))


def bandit(**settings: Any) -> dict[str, Any]:
    reward = {"min": None, "max": None, "aggregate": "first", "default": None}
    holdout = {"share": 0.2, "serve": "random"}
    return {"scope": "global", "holdout": holdout, "signals": None, "reward": reward, **settings}


def report(policy: float | None, holdout: float | None, interval: list[float] | None, **more: Any) -> Any:
    lift = None if policy is None or holdout is None else policy - holdout
    return {
        "groups": [
            {"group": name, "mean_reward": mean, "decisions": 100}
            for name, mean in (("policy", policy), ("holdout", holdout))
        ],
        "lift": {"value": lift, "interval": interval},
        "unit": "decision",
        "decisions": 1_000,
        "as_of_decisions": 1_000,
        "next_look": None,
        "warnings": [],
        **more,
    }


def told(report: dict[str, Any], **settings: Any) -> dict[str, str]:
    found: dict[str, str] = run(
        f"outcome({json.dumps(bandit(**settings))}, {json.dumps(report)}, Date.now() - 40 * DAY)"
    )
    return found


def test_a_difference_is_said_as_a_share_of_the_holdout_and_as_a_number():
    found = told(report(0.131, 0.1, [0.012, 0.048]))
    assert re.fullmatch(r"Since .+ 31% more reward than random arms \(95%: 12% to 48%\)\.", found["sentence"])
    assert found["numbers"] == (
        "0.131 a decision against 0.100: 0.031 more (95%: 0.012 to 0.048), of 1,000 decisions."
    )
    assert (found["word"], found["kind"]) == ("better", "good")
    worse = told(report(0.05, 0.1, [-0.08, -0.02]), signals={"click": {}})
    assert "50% less click than random arms (95%: 20% to 80%)" in worse["sentence"]
    assert (worse["word"], worse["kind"]) == ("worse", "bad")
    served = told(report(0.2, 0.1, [0.05, 0.15]), holdout={"share": 0.2, "serve": {"arms": ["a", "b"]}})
    assert "100% more reward than the fixed list of 2 arms" in served["sentence"]
    served = told(report(0.2, 0.1, [0.05, 0.15]), holdout={"share": 0.2, "serve": "candidates"})
    assert "100% more reward than your list" in served["sentence"]
    shown = {**report(None, 0.1, None), "agreement": {"decisions": 1, "same_first": 1.0, "overlap": 1.0}}
    for share, sentence in ((1, "Your list is shown to all"), (0.1, "one of the groups has no decision")):
        found = told(shown, holdout={"share": share, "serve": "candidates"})
        assert sentence in found["sentence"]
        assert "in 100% of 1 decision;" in found["sentence"]


def test_the_screen_says_first_whether_it_is_better(browser: Browser, tmp_path: Path):
    with serving(tmp_path) as service, console_of(browser, service) as console, Client(service.url) as client:
        client.put_catalogue("c", dim=1)
        client.upsert_arms("c", [[float(n)] for n in range(4)], ids=[f"a{n}" for n in range(4)])
        client.put_bandit(
            "b",
            catalogue="c",
            policy="sub_ts",
            log={},
            holdout={"share": 0.5},
            reward={"min": 0, "max": 1},
        )
        # Seeds say who is in the holdout too: random groups differ so much that it warns once in 60,000 runs.
        for first in range(0, 600, 100):
            choices = client.choose_batch("b", [{"seed": first + n} for n in range(100)]).results
            client.reward_batch(
                [{"decision": each.decision, "value": float(each.arms[0].id == "a3")} for each in choices],
                wait=True,
            )
        wait_until_sync(lambda: client.report("b").decisions == 600, what="all decisions are in the log")
        lift = client.report("b").lift
        assert lift.interval is not None
        assert lift.interval[0] > 0  # .75 more: its half width is below .3
        page = console.open("")
        row_of = page.get_by_role("region", name="Bandits").locator("tbody tr")
        expect(row_of).to_contain_text(re.compile("Since .+ more reward than random arms"))
        expect(page.locator(".done")).to_contain_text("Nothing is wrong.")
        heads = page.locator("main h2").all_inner_texts()
        assert heads.index("Bandits") < heads.index("The service")
        page = console.open("bandits/b")
        expect(page.locator(".claim")).to_contain_text(re.compile("Since .+ more reward than random arms"))
        expect(page.locator(".done")).to_contain_text("Nothing is wrong.")
        warned = client.get_bandit("b").warnings[0][3:40]
        expect(page.locator("main")).not_to_contain_text(warned)
        page = console.open("bandits/b/explore")
        expect(page.locator(".claim")).to_contain_text("of the catalogue was shown in the last")
        page = console.open("bandits/b/nothing")
        expect(page.locator(".empty")).to_contain_text("There is no tab nothing")
        page = console.open("what-if/b")
        expect(page.locator(".warning")).to_contain_text(warned)
        console.check()


def test_holdout_log_and_reward_are_changed_by_forms(browser: Browser, tmp_path: Path):
    with serving(tmp_path) as service, console_of(browser, service) as console, Client(service.url) as client:
        client.put_catalogue("c", dim=1)
        client.upsert_arms("c", [[1.0], [2.0]], ids=["a", "b"])
        client.put_bandit("b", catalogue="c", policy="sub_ts")
        page = console.open("bandits/b")
        page.get_by_role("link", name="Keep one").click()
        form = page.get_by_role("form", name="A change")
        expect(form.get_by_label("New value, as JSON")).to_be_hidden()
        expect(form.get_by_label("Keep a log")).to_have_value("yes")
        form.get_by_label("For how many days").fill("3")
        form.get_by_role("button", name="Change the bandit").click()
        page.get_by_text("Version 2 holds from now on.").wait_for()
        assert client.get_bandit("b").log == {"keep_s": 3 * 86_400, "share": 1.0}
        page.get_by_role("button", name="Change holdout").click()
        page.get_by_text("Nothing changes yet.").wait_for()
        form.get_by_label("A holdout").select_option("yes")
        form.get_by_label("Its share").fill("2")
        form.get_by_label("It is shown").select_option("list")
        form.get_by_label("The list").fill("b, a")
        form.get_by_role("button", name="Change the bandit").click()
        share = form.locator(".field", has=page.get_by_label("Its share"))
        expect(share.locator(".error")).to_contain_text("less than or equal to 1")
        form.get_by_label("Its share").fill("0.25")
        form.get_by_role("button", name="Change the bandit").click()
        page.get_by_text("Version 3 holds from now on.").wait_for()
        served: Any = client.get_bandit("b").holdout
        assert (served["share"], served["serve"]) == (0.25, {"arms": ["b", "a"]})
        page.get_by_role("button", name="Change reward").click()
        form.get_by_label("At least").fill("0")
        form.get_by_label("At most").fill("1")
        expect(page.locator("pre code")).to_contain_text('"max": 1')
        form.get_by_role("button", name="Change the bandit").click()
        page.get_by_text("Version 4 holds from now on.").wait_for()
        reward: Any = client.get_bandit("b").reward
        assert [reward[name] for name in ("min", "max", "aggregate", "wait_s")] == [0, 1, "first", None]
        page.get_by_role("button", name="Change log").click()
        form.get_by_label("Keep a log").select_option("no")
        form.get_by_role("button", name="Change the bandit").click()
        page.get_by_text("Version 5 holds from now on.").wait_for()
        assert client.get_bandit("b").log is None
        page.get_by_role("button", name="Change exploration").click()
        expect(form.get_by_label("New value, as JSON")).to_be_visible()
        expect(form.get_by_label("Keep a log")).to_be_hidden()
        console.check()


def test_shares_that_changed_are_compared_each_by_itself():
    stages = [
        {"share": share, "policy": policy, "holdout": held, "weight": weight}
        for share, policy, held, weight in ((1, 0, 900, 0), (0.5, 250, 250, 0.7), (0.1, 450, 50, 0.3))
    ]
    found = told({**report(0.2, 0.1, [0.05, 0.15]), "stages": stages}, holdout={"share": 0.1})
    assert found["numbers"].endswith("Compared within each share of the holdout: 50%, 10%.")
    # By the sizes of all shares together a tenth would be wrong by far.
    whole = {**report(0.2, 0.1, None), "stages": stages}
    for share, is_wrong in ((0.1, False), (0.5, False)):
        owner = bandit(holdout={"share": share})
        alarms = run(f"alarmsOf({json.dumps(owner)}, {json.dumps(whole)}, [])")
        assert ("sample ratio mismatch" in alarms) is is_wrong
    stages[2] |= {"policy": 350, "holdout": 150}
    alarms = run(f"alarmsOf({json.dumps(bandit(holdout={'share': 0.1}))}, {json.dumps(whole)}, [])")
    assert "sample ratio mismatch" in alarms
