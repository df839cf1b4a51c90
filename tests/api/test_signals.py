"""Several rewards, weighed at the moment of the choice."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from api_client import EAGER_HOUSEKEEPING, Api, Json
from app.platform.pauses import Pauses
from oracle import ridge_estimate
from waiting import wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.rest]

ARMS = {f"a{i}": list(np.random.default_rng(i).standard_normal(4)) for i in range(30)}
DIAL = {"click": 1.0, "purchase": 20.0, "hide": -5.0}
SIGNALS: dict[str, Json] = {name: {"weight": weight} for name, weight in DIAL.items()}
DEFAULTS = {"click": 0.0, "purchase": 0.25, "hide": 0.0}
WITH_DEFAULTS = {name: {"weight": w, "default": DEFAULTS[name]} for name, w in DIAL.items()}


@pytest.fixture
def pauses() -> Pauses:
    return EAGER_HOUSEKEEPING


@pytest.fixture
async def api(api: Api) -> Api:
    await api.catalogue("c", ARMS)
    return api


def solved(rows: list[str], rewards: list[float]) -> list[float]:
    return ridge_estimate([(ARMS[arm], reward) for arm, reward in zip(rows, rewards, strict=True)])


@pytest.mark.rest
async def test_signals_come_in_any_order_each_once(api: Api):
    await api.bandit("b", "c", signals=WITH_DEFAULTS)
    choices = [await api.choose("b", seed=i) for i in range(6)]
    arms = [choice["arms"][0]["id"] for choice in choices]
    got = [dict(DEFAULTS) for _ in choices]
    rng = np.random.default_rng(1)
    sent = [(i, name) for i in range(5) for name in DIAL if rng.random() < 0.7]
    for i, name in (sent[place] for place in rng.permutation(len(sent))):
        got[i][name] = float(rng.standard_normal())
        reward = {"decision": choices[i]["decision"], "signal": name, "value": got[i][name]}
        assert (await api.reward(reward))["accepted"] == 1
        again = await api.reward({**reward, "value": 7.0})
        assert (again["accepted"], again["duplicate"]) == (0, 1)
    judged = sorted({i for i, _ in sent})
    learner = await api.learner("b")
    assert learner["observations"] == len(judged)
    for name in DIAL:
        theta = solved([arms[i] for i in judged], [got[i][name] for i in judged])
        np.testing.assert_allclose(learner["signals"][name]["theta"], theta, rtol=1e-9, atol=1e-12)
    mixed = [sum(DIAL[name] * got[i][name] for name in DIAL) for i in judged]
    theta = solved([arms[i] for i in judged], mixed)
    np.testing.assert_allclose(learner["theta"], theta, rtol=1e-9, atol=1e-12)


@pytest.mark.rest
@pytest.mark.parametrize(
    "settings",
    [
        {"policy": "sub_ts"},
        {"policy": "linear_ts"},
        {"policy": "softmax"},
        {"policy": "igw"},
        {"policy": "sub_ts", "scope": "per_key"},
        {"policy": "linear_ts", "context": {"dim": 2}},
        {"policy": "sub_ts", "exploration": "auto", "ridge": 1.0},
        {"policy": "igw", "gamma": "auto", "ridge": 1.0, "exploration": "auto"},
    ],
)
async def test_a_setting_of_the_dial_is_a_bandit_that_learned_that_mix(api: Api, settings: Json):
    """The mix is learned from the same decisions, each rewarded once with the sum of what came for it."""
    await api.bandit("dial", "c", signals={name: {} for name in DIAL}, **settings)
    await api.bandit("mix", "c", **settings)
    per_key, rng = settings.get("scope") == "per_key", np.random.default_rng(2)

    def asked(i: int) -> Json:
        more: Json = {"key": f"k{i % 3}"} if per_key else {}
        if "context" in settings:
            more["context"] = [float(i % 2), 1.0]
        return more

    for turn in range(6):
        rewards, observations = list[Json](), list[Json]()
        for i in range(10 * turn, 10 * turn + 10):
            choice = await api.choose("dial", **asked(i))
            values = {name: float(rng.standard_normal()) for name in DIAL if rng.random() < 0.6}
            for name, value in values.items():
                rewards += 2 * [{"decision": choice["decision"], "signal": name, "value": value}]
            if values:
                total = sum(DIAL[name] * value for name, value in values.items())
                arm = choice["arms"][0]["id"]
                observations.append({"id": f"o{i}", "arm": arm, "value": total, **asked(i)})
        await api.reward(*rewards)
        await api.observe("mix", *observations)
    for i in range(10):
        seed = 100 + i
        one = await api.choose("dial", seed=seed, weights=DIAL, k=5, dry_run=True, **asked(i))
        other = await api.choose("mix", seed=seed, k=5, dry_run=True, **asked(i))
        assert one["weights"] == DIAL
        if per_key:
            continue  # what a choice knows of a pool may be a moment old
        estimates = {arm["id"]: arm["estimate"] for arm in one["arms"]}
        for arm in other["arms"]:
            if arm["id"] in estimates:
                assert arm["estimate"] == pytest.approx(estimates[arm["id"]], rel=1e-7, abs=1e-9)
    key = "k0" if per_key else "_global"
    await api.ok("PATCH", "/v1/bandits/dial", {"signals": {n: {"weight": w} for n, w in DIAL.items()}})
    one, other = await api.learner("dial", key), await api.learner("mix", key)
    np.testing.assert_allclose(one["theta"], other["theta"], rtol=1e-9, atol=1e-9)
    assert one["used"]["noise"] == pytest.approx(other["used"]["noise"], rel=1e-9)


@pytest.mark.rest
async def test_one_signal_of_weight_1_is_a_bandit_without_to_the_bit(api: Api):
    found = []
    for signals in (None, {"reward": {}}):
        rule = {} if signals is None else {"signals": signals}
        await api.bandit("b", "c", exploration="auto", ridge="auto", **rule)
        of = {} if signals is None else {"signal": "reward"}
        for i in range(20):
            choice = await api.choose("b", seed=i)
            await api.reward({"decision": choice["decision"], "value": i % 3, **of})
        choices = [(await api.choose("b", seed=i, k=4))["arms"] for i in range(20)]
        states = await api.ok("GET", "/v1/bandits/b/learners", params={"include": "state"})
        found.append((choices, states["items"][0]["state"]))
        await api.ok("DELETE", "/v1/bandits/b", status=204)
    assert found[0] == found[1]


@pytest.mark.rest
async def test_a_decision_that_waits_counts_once_whatever_comes_first(api: Api):
    await api.bandit("b", "c", signals=WITH_DEFAULTS, reward={"wait_s": 600})
    choices = [await api.choose("b") for _ in range(3)]
    await api.reward({"decision": choices[0]["decision"], "signal": "click", "value": 1})
    await api.due_now()

    async def counted() -> Json | None:
        learner = await api.learner("b")
        return learner if learner["observations"] == 3 else None

    await wait_until(counted, what="the defaults are counted")
    for name in ("purchase", "hide"):
        await api.reward({"decision": choices[1]["decision"], "signal": name, "value": 2})
    learner = await api.learner("b")
    arms = [choice["arms"][0]["id"] for choice in choices]
    assert learner["observations"] == 3
    expected = {"click": [1.0, 0.0, 0.0], "purchase": [0.25, 2.0, 0.25], "hide": [0.0, 2.0, 0.0]}
    for name, values in expected.items():
        np.testing.assert_allclose(learner["signals"][name]["theta"], solved(arms, values), rtol=1e-9)


@pytest.mark.rest
async def test_values_that_are_summed_count_each_reward_id_once(api: Api):
    await api.bandit("b", "c", signals={"click": {"aggregate": "sum", "default": 0.5}, "buy": {}})
    choice = await api.choose("b")
    of = {"decision": choice["decision"], "signal": "click"}
    await api.reward({**of, "signal": "buy", "value": 3})
    for _ in range(2):
        await api.reward({**of, "value": 1, "reward_id": "x"}, {**of, "value": 2, "reward_id": "y"})
    learner, arm = await api.learner("b"), choice["arms"][0]["id"]
    np.testing.assert_allclose(learner["signals"]["click"]["theta"], solved([arm], [3.0]), rtol=1e-9)
    np.testing.assert_allclose(learner["signals"]["buy"]["theta"], solved([arm], [3.0]), rtol=1e-9)


@pytest.mark.rest
async def test_the_log_says_which_weights_served_and_which_signal_came(api: Api):
    await api.bandit("b", "c", signals=SIGNALS, log={"keep_s": 3600})
    choice = await api.choose("b", weights={"hide": 0.0}, event_id="e")
    weights = {**DIAL, "hide": 0.0}
    assert choice["weights"] == weights
    assert await api.choose("b", weights={"hide": 0.0}, event_id="e") == choice
    await api.refused(
        "POST",
        "/v1/bandits/b/choose",
        {"weights": {"hide": 1.0}, "event_id": "e"},
        status=409,
        code="event_used",
    )
    await api.reward({"decision": choice["decision"], "signal": "hide", "value": 1})
    (row,) = (await api.ok("GET", "/v1/bandits/b/log"))["items"]
    assert row["weights"] == weights
    assert [(each["signal"], each["value"]) for each in row["rewards"]] == [("hide", 1.0)]


@pytest.mark.rest
async def test_weights_and_new_signals_are_changed_and_none_is_removed(api: Api):
    await api.bandit("b", "c", signals=SIGNALS)
    before = await api.choose("b")
    path = "/v1/bandits/b"
    await api.ok("PATCH", path, {"signals": {"click": {"weight": 3.0}, "share": {"weight": 2.0}}})
    assert (await api.choose("b"))["weights"] == {**DIAL, "click": 3.0, "share": 2.0}
    await api.refused(
        "PATCH", path, {"signals": {"late": {"default": 1.0}}}, loc=("body", "signals", "late", "default")
    )
    gone = {"signals": {"click": None}}
    await api.refused("PATCH", path, gone, status=409, code="conflict", loc=["body", "signals", "click"])
    await api.ok("PATCH", path, {"guardrails": [{"signal": "click", "least": 0.1}]})
    await api.refused("PATCH", path, gone, status=409, code="conflict", loc=["body", "signals", "click"])
    await api.ok("PATCH", path, {"guardrails": None})
    await api.refused("PATCH", path, {"signals": None}, status=409, code="conflict")
    receipt = await api.reward({"decision": before["decision"], "signal": "share", "value": 1})
    assert [each["code"] for each in receipt["rejected"]] == ["unknown_signal"]
    after = await api.choose("b")
    await api.reward({"decision": after["decision"], "signal": "share", "value": 1})
    theta = solved([after["arms"][0]["id"]], [1.0])
    np.testing.assert_allclose((await api.learner("b"))["signals"]["share"]["theta"], theta, rtol=1e-9)
    await api.bandit("plain", "c")
    added = {"status": 409, "code": "conflict", "loc": ["body", "signals"]}
    await api.refused("PATCH", "/v1/bandits/plain", {"signals": {"click": {}}}, **added)


@pytest.mark.rest
async def test_the_report_is_of_each_signal_and_of_their_sum(api: Api):
    signals = {
        "click": {"weight": 2, "min": 0, "max": 1},
        "buy": {"weight": -1, "default": 0.5, "min": 0, "max": 1},
    }
    rails = [
        {"signal": "click", "most": 0.9},
        {"signal": "click", "least": 0.99},
        {"signal": "buy", "most": 0.5},
    ]
    log = {"keep_s": 3600}
    await api.bandit("b", "c", signals=signals, guardrails=rails, log=log, policy="softmax")
    got = {"click": 0.0, "buy": 0.0}
    for i in range(300):
        choice = await api.choose("b")
        named = {"click": float(i % 3 == 0), **({"buy": 1.0} if i % 2 else {})}
        of = {"decision": choice["decision"]}
        await api.reward(
            *({**of, "signal": name, "value": value} for name, value in named.items()), wait=False
        )
        got["click"] += named["click"]
        got["buy"] += named.get("buy", 0.5)

    async def written() -> Json | None:
        report: Json = await api.ok("GET", "/v1/bandits/b/report")
        return report if report["groups"][0]["decisions"] == 300 else None

    report = await wait_until(written, what="all decisions are logged")
    means = {each["signal"]: each["groups"][0]["mean_reward"] for each in report["signals"]}
    assert means == pytest.approx({name: total / 300 for name, total in got.items()})
    whole = report["groups"][0]
    assert report["weights"] == {"click": 2.0, "buy": -1.0}
    assert whole["mean_reward"] == pytest.approx(2 * means["click"] - means["buy"])
    assert whole["interval"][0] < whole["mean_reward"] < whole["interval"][1]
    assert [each["state"] for each in report["guardrails"]] == ["kept", "broken", "broken"]
    text = (await api.call("GET", "/metrics")).text
    assert 'shortlist_guardrails{state="broken"} 2.0' in text
    await api.ok("DELETE", "/v1/bandits/b", status=204)
    assert 'shortlist_guardrails{state="broken"} 0.0' in (await api.call("GET", "/metrics")).text


@pytest.mark.rest
async def test_an_evaluation_is_of_the_weighted_sum_with_what_was_known_then(api: Api):
    signals = {"click": {"min": 0, "max": 1}, "buy": {"weight": 3, "default": 0.5, "min": 0, "max": 1}}
    await api.bandit("b", "c", signals=signals, log={"keep_s": 3600}, policy="softmax", temperature=2)
    for i in range(200):
        of = {"decision": (await api.choose("b"))["decision"]}
        await api.reward({**of, "signal": "click", "value": i % 2})
        if i % 5 == 0:
            await api.reward({**of, "signal": "buy", "value": 1})

    async def evaluated(**body: Any) -> Json | None:
        answer: Json = await api.ok("POST", "/v1/bandits/b/evaluations", {"policy": {}, **body})
        return answer if answer["logged"]["decisions"] + answer["logged"]["left_out"] == 200 else None

    now = await wait_until(lambda: evaluated(learners="now"), what="all decisions are logged")
    mean = 0.5 + 3 * (0.2 * 1 + 0.8 * 0.5)
    assert now["logged"]["value"] == pytest.approx(mean)
    before = await evaluated()
    assert before is not None
    assert before["learners"]["begin"] == "known" or before["learners"]["blocks"]
    assert now["weights"] == {"click": 1.0, "buy": 3.0}
    assert now["signals"]["click"]["logged"]["value"] == pytest.approx(0.5)
    assert now["signals"]["buy"]["logged"]["value"] == pytest.approx(0.6)
    curve = [{"click": 1.0, "buy": 0.0}, {"click": 1.0, "buy": 3.0}, {"buy": 2.0}]
    path = "/v1/bandits/b/evaluations"
    found = await api.ok("POST", path, {"policy": {"weights": curve}, "learners": "now"})
    assert [each["weights"]["buy"] for each in found["results"]] == [0.0, 3.0, 2.0]
    assert found["results"][1]["estimates"] == now["estimates"]
    assert found["results"][1]["signals"] == now["signals"]
    alone = await api.ok("POST", path, {"policy": {"weights": curve[2]}})
    together = await api.ok("POST", path, {"policy": {"weights": curve}})
    assert together["results"][2]["estimates"] == alone["estimates"]
    for each in found["results"]:  # ips adds: the value of the sum is the sum of the values
        ips = {name: part["estimates"][0]["value"] for name, part in each["signals"].items()}
        total = sum(each["weights"][name] * value for name, value in ips.items())
        assert each["estimates"][0]["value"] == pytest.approx(total)
    for weights in ({"like": 1}, [], [{"click": 1}] * 51, [{}], 3):
        await api.refused("POST", path, {"policy": {"weights": weights}})


IMPOSSIBLE: list[Any] = [
    ({"signals": {}}, ("signals",)),
    ({"signals": {f"s{i}": {} for i in range(17)}}, ("signals",)),
    ({"signals": {"click": {"weight": 1e300}}}, ("signals", "click", "weight")),
    ({"signals": {"click": {"noise": 0}}}, ("signals", "click", "noise")),
    ({"signals": {"click": {"min": 1, "max": 0}}}, ("signals", "click")),
    ({"signals": {"click": {"min": 1, "max": 2}}}, ("signals", "click")),
    ({"signals": {"click": {}}, "reward": {"min": 0}}, ("reward", "min")),
    ({"signals": {"click": {}}, "reward": {"wait_s": 1, "default": 1}}, ("reward", "default")),
    ({"signals": {"click": {}, "buy": {}}, "policy": "sub_elim"}, ("signals",)),
    ({"signals": {"a b": {}}}, None),
]


@pytest.mark.rest
async def test_signals_that_cannot_be_are_refused(api: Api):
    for settings, loc in IMPOSSIBLE:
        body = {"catalogue": "c", "policy": "sub_ts", **settings}
        await api.refused("PUT", "/v1/bandits/b", body, loc=loc and ("body", *loc))


@pytest.mark.rest
async def test_what_names_no_signal_is_refused_by_its_field(api: Api):
    await api.bandit("b", "c", signals=SIGNALS)
    await api.bandit("plain", "c")
    of = {"decision": (await api.choose("b"))["decision"], "value": 1}
    plain = {"decision": (await api.choose("plain"))["decision"], "value": 1}
    good = {**of, "signal": "click"}
    for bad in (of, {**of, "signal": "like"}, {**plain, "signal": "click"}):
        await api.refused(
            "POST", "/v1/rewards", {"rewards": [good, bad]}, loc=("body", "rewards", 1, "signal")
        )
    assert (await api.learner("b"))["version"] == 0
    choose = "/v1/bandits/b/choose"
    await api.refused("POST", choose, {"weights": {"like": 1}}, loc=("body", "weights", "like"))
    await api.refused("POST", choose, {"weights": {"click": 1e99}}, loc=("body", "weights", "click"))
    batch = {"requests": [{}, {"weights": {"like": 1}}]}
    await api.refused("POST", f"{choose}/batch", batch, loc=("body", "requests", 1, "weights", "like"))
    await api.refused(
        "POST",
        "/v1/bandits/plain/choose",
        {"weights": {"click": 1}},
        loc=(
            "body",
            "weights",
        ),
    )
    for name, item, field in (
        ("b", {"value": 1}, "value"),
        ("b", {}, "values"),
        ("b", {"values": {"like": 1}}, "values"),
        ("plain", {}, "value"),
        ("plain", {"value": 1, "values": {"click": 1}}, "values"),
    ):
        body = {"observations": [{"id": "o", "arm": "a0", **item}]}
        answer = await api.refused("POST", f"/v1/bandits/{name}/observations", body)
        assert answer["errors"][0]["loc"][:4] == ["body", "observations", 0, field]


@pytest.mark.rest
async def test_propensities_and_estimates_are_of_the_weights_of_the_request(api: Api):
    """Among the arms that a filter matches; the holdout is served by chance whatever the weights are."""
    await api.ok(
        "PUT",
        "/v1/catalogues/c/arms",
        {"arms": [{"id": arm, "features": x, "tags": ["new"]} for arm, x in list(ARMS.items())[:12]]},
    )
    holdout = {"share": 0.4, "serve": "random"}
    await api.bandit("b", "c", policy="softmax", temperature=0.7, signals=SIGNALS, holdout=holdout)
    rng = np.random.default_rng(6)
    seen = [
        {"id": arm, "arm": arm, "values": dict(zip(DIAL, rng.standard_normal(3).tolist(), strict=True))}
        for arm in ARMS
    ]
    await api.observe("b", *seen)
    learner = (await api.learner("b"))["signals"]
    new = list(ARMS)[:12]
    groups = set[str]()
    for number in range(40):
        weights = dict(zip(DIAL, rng.standard_normal(3).tolist(), strict=True))
        choice = await api.choose("b", weights=weights, filter={"tags": "new"}, seed=number)
        (arm,) = choice["arms"]
        assert arm["id"] in new
        assert choice["eligible"] == 12
        theta = sum(weight * np.array(learner[name]["theta"]) for name, weight in weights.items())
        mass = {each: np.exp(np.array(ARMS[each]) @ theta / 0.7) for each in new}
        drawn = mass[arm["id"]] / sum(mass.values())
        expected = 1 / 12 if choice["group"] == "holdout" else drawn
        assert arm["propensity"] == pytest.approx(expected, rel=1e-9)
        groups.add(choice["group"])
    assert groups == {"policy", "holdout"}


@pytest.mark.rest
async def test_a_guardrail_is_of_a_signal_that_there_is(api: Api):
    rails = [{"signal": "click", "most": 1}, {"signal": "like", "most": 1}]
    body = {"catalogue": "c", "policy": "sub_ts", "signals": SIGNALS, "guardrails": rails}
    await api.refused("PUT", "/v1/bandits/b", body, loc=("body", "guardrails", 1, "signal"))
    for rule in ({"signal": "click"}, {"signal": "click", "most": 1, "least": 0}):
        body["guardrails"] = [rule]
        await api.refused("PUT", "/v1/bandits/b", body, loc=("body", "guardrails", 0))
