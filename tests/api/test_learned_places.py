"""``"position": "auto"``: how likely each place of a list is looked at, learned from lists of everybody."""

# ruff: noqa: F401, F811 - fixtures are imported

import io
from collections import defaultdict
from typing import Any

import msgspec
import numpy as np
import pyarrow.parquet as pq
import pytest

from api_client import Api, Json
from app.decision_log.rows import Row
from app.fold.replay import compare
from app.records.place_sums import examined_at
from app.rewards.tokens import decision_of, raw_of
from bandit_with_effects import (
    BANDIT,
    FEATURES,
    KEYS,
    PATH,
    REFRESH,
    api,
    check,
    entries_of,
    listed,
    make,
)
from oracle import judged
from shortlist.linear import places
from shortlist.linear.places import PlaceNumbers
from shortlist_lake import tables
from waiting import wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.rest]

TRUTH = np.array([1.0, 0.5, 0.25])
WORTH = dict(zip(FEATURES, np.random.default_rng(5).uniform(0.3, 0.9, len(FEATURES)), strict=True))


async def start(api: Api, **more: Any) -> None:
    """Keys that have liked what is worth something, so that there is a prior."""
    await make(api, position="auto", **more)
    rows = [
        {"id": f"{key}-{arm}", "key": f"u{key}", "arm": arm, "value": WORTH[arm]}
        for key in range(KEYS)
        for arm in list(FEATURES)[key : key + 5]
    ]
    await api.observe("b", *rows)
    assert (await api.ok("POST", REFRESH, {}))["version"]


async def play(api: Api, rounds: int, *, seed: int = 0, k: int = 3, **more: Any) -> list[Json]:
    """Lists of all keys, each arm clicked if its place is looked at and it is liked."""
    rng, choices = np.random.default_rng(seed), list[Json]()
    for number in range(rounds):
        for key in range(KEYS):
            choice = await api.choose("b", key=f"u{key}", k=k, seed=10_000 * seed + 10 * number + key, **more)
            rewards = [
                {
                    "decision": choice["decision"],
                    "arm": arm["id"],
                    "value": float(rng.random() < TRUTH[place] * WORTH[arm["id"]]),
                }
                for place, arm in enumerate(choice["arms"])
            ]
            await api.reward(*rewards)
            choices.append(choice)
    return choices


async def place_numbers(api: Api, choices: list[Json]) -> PlaceNumbers:
    """n, M, Y and V of each place, from the exported reward log."""
    place_of = {
        (decision_of(raw_of(choice["decision"])).id, arm["id"]): place
        for choice in choices
        for place, arm in enumerate(choice["arms"])
    }
    found = np.zeros((4, 3))
    for each in judged(await entries_of(api)):
        entry = each.entry
        if (entry["id"], entry["arm"]) not in place_of:
            continue
        place, (y,) = place_of[entry["id"], entry["arm"]], each.values
        worth = entry["expected"][0] + entry["effect"][0]
        found[:, place] += 1.0, max(worth, 0.0), y, (y - entry["examined"] * worth) ** 2
    return PlaceNumbers(*found)


async def shown(api: Api) -> Json:
    await api.ok("POST", REFRESH, {})
    found: Json = await api.ok("GET", PATH)
    return found


async def test_places_are_fitted_to_the_lists_of_everybody(api: Api):
    await start(api)
    empty = await api.ok("GET", PATH)
    assert (empty["places"], empty["places_note"]) == (
        None,
        "no reward of a list of two arms or more has counted yet",
    )
    first = await play(api, 12)
    found = await shown(api)
    p, w = places.fit(await place_numbers(api, first))
    assert found["places_note"] is None
    # The worker has fitted meanwhile, and the first lists have faded a little more: by 1 % at most.
    np.testing.assert_allclose(found["places"], p, rtol=0.01)
    assert found["places"][0] == 1.0
    # What comes next is served, and learned, by that; what was known fades by how many lists came.
    more = await play(api, 12, seed=1)
    decision = decision_of(raw_of(more[0]["decision"]))
    both = [examined_at(decision.places, place) for place in range(3)]
    assert [own for own, _ in both] == found["places"]
    np.testing.assert_allclose([own for _, own in both], w, rtol=0.01)
    before, whole = await place_numbers(api, first), await place_numbers(api, [*first, *more])
    since = PlaceNumbers(*(a - b for a, b in zip(whole, before, strict=True)))
    again, _ = places.fit(places.faded(before, since))
    np.testing.assert_allclose((await shown(api))["places"], again, rtol=0.01)
    # Keys and arms have learned by the p and w of each decision; a replay and a lake say the same.
    entries = [each.entry for each in judged(await entries_of(api)) if each.entry["kind"] == "reward"]
    assert {entry["examined"] for entry in entries} > {1.0}
    assert max(entry["weight"] for entry in entries) > 1.0
    await check(api)


async def test_a_learner_weighs_rewards_by_their_noise(api: Api):
    """G += w p^2 x x', and the rest alike."""
    from app.records.records import bytes_to_state  # noqa: PLC0415 - of this test alone

    await start(api)
    await play(api, 8)
    await shown(api)
    await play(api, 8, seed=1)
    decisions = judged(await entries_of(api))
    for key in ("u0", "u3"):
        answer = await api.call(
            "GET", f"{BANDIT}/learners/{key}", headers={"accept": "application/octet-stream"}
        )
        sums = bytes_to_state(answer.content).sums
        gram = np.zeros((3, 3))
        squares = 0.0
        for each in decisions:
            if each.entry["key"] == key:
                entry, x = each.entry, FEATURES[each.entry["arm"]]
                p, w = entry["examined"] or 1.0, entry["weight"] or 1.0
                gram += w * p**2 * np.outer(x, x)
                squares += w * (each.values[0] - p * (entry["effect"] or [0.0])[0]) ** 2
        lower = sums.lower_gram()
        np.testing.assert_allclose(lower + np.tril(lower, -1).T, gram, rtol=1e-9, atol=1e-9)
        assert sums.squares == pytest.approx(squares, rel=1e-9)


async def test_places_of_a_long_list_count_as_the_last_that_is_learned(api: Api):
    await start(api)
    more = [{"id": f"m{number}", "features": [0.1] * 3} for number in range(10)]
    await api.ok("PUT", "/v1/catalogues/c/arms", {"arms": more})
    choice = await api.choose("b", key="u0", k=22)
    decision, arms = choice["decision"], choice["arms"]
    await api.reward(*({"decision": decision, "arm": arms[place]["id"], "value": 1.0} for place in (0, 21)))
    assert len((await shown(api))["places"]) == 20


async def test_one_arm_alone_says_nothing_of_places_and_its_token_has_nothing(api: Api):
    await start(api)
    for choice in await play(api, 3, k=1):
        assert decision_of(raw_of(choice["decision"])).places is None
    assert (await shown(api))["places"] is None
    (choice, *_) = await play(api, 1, k=2)
    assert decision_of(raw_of(choice["decision"])).places == b""
    assert len((await shown(api))["places"]) == 2


async def test_a_key_that_is_forgotten_has_said_nothing_of_places(api: Api):
    await start(api)
    await play(api, 4)
    before = await place_state(api)
    odd = await api.choose("b", key="u0", k=3)
    first = odd["arms"][0]["id"]
    await api.observe("b", {"id": "odd", "key": "odd", "arm": first, "value": 0.5})
    for number in range(5):
        choice = await api.choose("b", key="odd", k=3, seed=number)
        for arm in choice["arms"]:
            await api.reward({"decision": choice["decision"], "arm": arm["id"], "value": 1e7})
    assert (await place_state(api))["Y"] != before["Y"]
    await api.ok("DELETE", f"{BANDIT}/learners/odd", status=204)
    left = await place_state(api)
    for name in ("n", "M", "Y", "V"):
        np.testing.assert_allclose(left[name], before[name], rtol=1e-9, atol=1e-9, err_msg=name)
    assert not (await compare(api.app.service.store)).different


async def place_state(api: Api) -> dict[str, list[float]]:
    """The sums of places, of all partitions."""
    from app.fold.arm_sums import folded_sums, places_of  # noqa: PLC0415 - of this helper alone

    service, found = api.app.service, defaultdict[str, Any](lambda: np.zeros(3))
    of = places_of(service.bandits.by_name("b").uid)
    for partition in range(service.store.partitions):
        (data,) = await service.store.effects.sums(partition, [of])
        if data is not None:
            sums: Any = folded_sums(of.revision, data)
            for name, errors in (("n", None), ("M", None), ("Y", sums.Y_error), ("V", sums.V_error)):
                own = np.array(getattr(sums, name)) - (np.array(errors) if errors else 0.0)
                found[name] = found[name] + np.pad(own, (0, 3 - len(own)))
    return {name: numbers.tolist() for name, numbers in found.items()}


async def test_rewards_below_zero_leave_places_at_one_and_say_so(api: Api):
    await start(api)
    await play(api, 4)
    assert (await shown(api))["places"] is not None
    choice = await api.choose("b", key="u1", k=2)
    await api.reward({"decision": choice["decision"], "arm": choice["arms"][0]["id"], "value": -0.5})
    found = await shown(api)
    assert (found["places"], found["places_note"]) == (None, "rewards may be less than 0")
    token = decision_of(raw_of((await api.choose("b", key="u1", k=3))["decision"]))
    assert [examined_at(token.places, place) for place in range(3)] == [(1.0, 1.0)] * 3


async def test_late_deferred_and_replaced_rewards_count_by_the_token_of_their_decision(api: Api):
    await start(api, reward={"wait_s": 600, "default": 0.0, "aggregate": "sum"})
    await play(api, 6)
    await shown(api)
    late = await api.choose("b", key="u1", k=3)
    deferred = await api.choose("b", key="u2", k=3, activate=False)
    await play(api, 6, seed=1)
    await shown(api)
    await api.ok("POST", "/v1/decisions/activate", {"decisions": [deferred["decision"]]})
    for choice in (late, deferred):
        for number in range(2):
            arm = choice["arms"][1]["id"]
            reward = {"decision": choice["decision"], "arm": arm, "value": 1.0, "reward_id": f"r{number}"}
            assert (await api.reward(reward))["accepted"] == 1
    entries = {(each.entry["id"], each.entry["arm"]): each.entry for each in judged(await entries_of(api))}
    for choice in (late, deferred):
        decision = decision_of(raw_of(choice["decision"]))
        entry = entries[decision.id, choice["arms"][1]["id"]]
        assert (entry["examined"], entry["weight"]) == examined_at(decision.places, 1)
    await check(api)


async def test_rows_and_dry_runs_say_how_likely_a_place_is_looked_at(api: Api):
    await start(api)
    await play(api, 8)
    found = await shown(api)
    choice = await api.choose("b", key="u1", k=3, seed=3)
    dry = await api.ok("POST", f"{BANDIT}/choose", {"key": "u1", "k": 3, "seed": 3, "dry_run": True})
    assert [arm["place"] for arm in dry["arms"]] == found["places"]

    async def logged() -> Json | None:
        rows = await listed(api, f"{BANDIT}/log")
        return next((row for row in rows if row["decision"] == choice["decision"]), None)

    row = await wait_until(logged, what="the row is written")
    assert row is not None
    assert [arm["examined"] for arm in row["arms"]] == found["places"]
    token = decision_of(raw_of(choice["decision"])).places
    assert [arm["weight"] for arm in row["arms"]] == [examined_at(token, place)[1] for place in range(3)]


async def test_it_is_changed_to_stated_places_and_back_while_rewards_are_under_way(api: Api):
    await start(api)
    await play(api, 6)
    learned = (await shown(api))["places"]
    under_way = await api.choose("b", key="u0", k=3)
    stated = {"examination": [1.0, 0.5]}
    assert (await api.ok("PATCH", BANDIT, {"position": stated}))["position"] == stated
    found = await shown(api)
    assert (found["places"], found["places_note"]) == ([1.0, 0.5], "as the position of the bandit states")
    choice = await api.choose("b", key="u0", k=3)
    weight = examined_at(decision_of(raw_of(choice["decision"])).places, 1)[1]
    for each in (under_way, choice):
        await api.reward({"decision": each["decision"], "arm": each["arms"][1]["id"], "value": 1.0})
    entries = {each.entry["id"]: each.entry for each in judged(await entries_of(api))}
    by_token = entries[decision_of(raw_of(under_way["decision"])).id]
    assert by_token["examined"] == learned[1]
    assert by_token["weight"] == examined_at(decision_of(raw_of(under_way["decision"])).places, 1)[1]
    by_version = entries[decision_of(raw_of(choice["decision"])).id]
    assert (by_version["examined"], by_version["weight"]) == (0.5, weight)
    assert (await api.ok("PATCH", BANDIT, {"position": {"examination": [0.9]}}))["position"] == {
        "examination": [0.9]
    }
    assert (await api.ok("PATCH", BANDIT, {"position": "auto"}))["position"] == "auto"
    again = (await shown(api))["places"]
    np.testing.assert_allclose(again, learned, atol=0.05)  # one more reward of a list
    assert (await api.ok("PATCH", BANDIT, {"position": None}))["position"] is None
    await check(api)


async def test_what_is_refused(api: Api):
    body = {"catalogue": "c", "policy": "sub_ts", "scope": "per_key", "position": "auto"}
    signals = {"click": {}, "buy": {}}
    refusals: list[tuple[Json, tuple[Any, ...]]] = [
        ({"arm_effects": "off"}, ("position",)),
        ({"scope": "global"}, ("position",)),
        ({"signals": signals}, ("position",)),
        ({"policy": "sub_elim"}, ("position",)),
        ({"position": "Auto"}, ("position",)),
        ({"position": 1}, ("position",)),
        ({"position": {"examination": [2]}}, ("position", "examination", 0)),
    ]
    for more, loc in refusals:
        await api.refused("PUT", "/v1/bandits/x", {**body, **more}, loc=["body", *loc])
    await make(api)
    for patch, loc in (({"position": "none"}, ("position",)), ({"position": {"x": 1}}, ("position", "x"))):
        await api.refused("PATCH", BANDIT, patch, loc=["body", *loc])
    await api.refused("PATCH", BANDIT, {"arm_effects": "off", "position": "auto"}, loc=["body", "position"])


async def test_a_new_bandit_has_it_where_it_can_and_null_is_none(api: Api):
    """One that exists stays as it is, whatever is asked for again without a position."""
    body = {"catalogue": "c", "policy": "sub_ts", "scope": "per_key"}
    stated = {"examination": [1.0, 0.5]}
    cases: list[tuple[Json, Json | str | None]] = [
        ({}, "auto"),
        ({"policy": "softmax"}, "auto"),
        ({"arm_effects": "off"}, None),
        ({"scope": "global"}, None),
        ({"policy": "sub_elim"}, None),
        ({"signals": {"click": {}, "buy": {}}}, None),
        ({"position": None}, None),
        ({"position": stated}, stated),
    ]
    for number, (fields, position) in enumerate(cases):
        path = f"/v1/bandits/new{number}"
        assert (await api.ok("PUT", path, {**body, **fields}, 201))["position"] == position, fields
        again = {name: value for name, value in fields.items() if name != "position"}
        assert (await api.ok("PUT", path, {**body, **again}))["position"] == position, fields
    path = "/v1/bandits/new0"
    await api.refused("PUT", path, {**body, "position": None}, status=409, code="conflict")
    for takes_effects_away in ({"arm_effects": "off"}, {"prior": "plain"}):
        assert (await api.ok("PATCH", path, takes_effects_away))["position"] is None
        assert (await api.ok("PUT", path, body))["position"] is None
        back = {"arm_effects": "auto", "prior": "learned"}
        assert (await api.ok("PATCH", path, back))["position"] is None
        assert (await api.ok("PATCH", path, {"position": "auto"}))["position"] == "auto"
    assert (await api.ok("PATCH", path, {"position": None}))["position"] is None
    assert (await api.ok("PATCH", path, {"exploration": 0.7}))["position"] is None
    await api.refused("PUT", path, {**body, "position": "auto"}, status=409, code="conflict")


async def test_explanations_say_how_likely_a_place_is_looked_at_and_weigh_reasons(api: Api):
    """The parts of an estimate are those of w p x and y - p b, as the key has learned them."""
    await start(api, policy="linear_ts")
    await play(api, 8)
    await shown(api)
    for number in range(3):
        choice = await api.choose("b", key="late", k=3, seed=number)
        for place, arm in enumerate(choice["arms"]):
            reward = {"decision": choice["decision"], "arm": arm["id"], "value": float(place != 1)}
            await api.reward(reward)
    parts, values = defaultdict[str, Any](lambda: np.zeros(3)), defaultdict[str, float](float)
    for each in judged(await entries_of(api)):
        if each.entry["key"] == "late":
            entry, (y,) = each.entry, each.values
            p, w, x = entry["examined"], entry["weight"], FEATURES[entry["arm"]]
            parts[entry["arm"]] += w * p * (y - p * entry["effect"][0]) * x
            values[entry["arm"]] += y
    choice = await api.choose("b", key="late", k=3)
    await api.app.service.rows.flush()
    told = await api.ok("POST", f"{BANDIT}/log/explain", {"decision": choice["decision"]})
    assert told["changed"] == []
    by_place = {each["place"]: each for each in told["candidates"] if each["place"]}
    token = decision_of(raw_of(choice["decision"]))
    for place in range(3):
        assert by_place[place + 1]["examined"] == examined_at(token.places, place)[0]
    assert by_place[3]["examined"] != 1.0
    assert {each["examined"] for each in told["candidates"] if not each["place"]} <= {None}
    precision = np.array((await api.learner("b", "late", precision=True))["precision"])
    for each in by_place.values():
        direction = np.linalg.solve(precision, FEATURES[each["id"]])
        shares = sorted(
            ((arm, direction @ own) for arm, own in parts.items()), key=lambda pair: pair[1], reverse=True
        )
        expected = {arm: share for arm, share in shares[:3] if share > 0.0}
        assert {one["arm"]: one["share"] for one in each["because"]} == pytest.approx(expected, rel=1e-5)
        assert all(one["value"] == values[one["arm"]] for one in each["because"])


async def test_pins_holdouts_and_lists_of_any_length_teach_the_place_where_an_arm_stands(api: Api):
    await start(api, holdout={"share": 0.5})
    choices = await play(api, 4)
    choices += await play(api, 4, seed=1, k=2)
    pinned = [{"arm": "a7", "place": 3}]
    choices += await play(api, 4, seed=2, rules={"pin": pinned})
    assert {choice["group"] for choice in choices} == {"policy", "holdout"}
    assert any(choice["arms"][-1]["id"] == "a7" for choice in choices[-KEYS:])
    found, wanted = await place_state(api), await place_numbers(api, choices)
    for name, own in wanted._asdict().items():  # private: every NamedTuple has it
        np.testing.assert_allclose(found[name], own, rtol=1e-9, atol=1e-9, err_msg=name)
    assert found["n"] == [12.0 * KEYS, 12.0 * KEYS, 8.0 * KEYS]
    await check(api)


async def test_a_move_keeps_what_is_known_of_places(api: Api):
    """A place is one in any catalogue."""
    await start(api)
    await play(api, 8)
    before = (await shown(api))["places"]
    await api.catalogue("d", {arm: (2.0 * row).tolist() for arm, row in FEATURES.items()})
    await api.ok("POST", f"{BANDIT}/move", {"catalogue": "d"})
    assert (await api.ok("GET", PATH))["places"] == before
    token = decision_of(raw_of((await api.choose("b", key="u0", k=3))["decision"]))
    assert [examined_at(token.places, place)[0] for place in range(3)] == before
    await play(api, 2, seed=1)
    np.testing.assert_allclose((await shown(api))["places"], before, atol=0.3)
    assert not (await compare(api.app.service.store)).different


async def test_exports_have_what_rows_have(api: Api):
    """Parquet and lakes as lines of JSON."""
    await start(api)
    await play(api, 8)
    await shown(api)
    await play(api, 2, seed=1)
    await api.app.service.rows.flush()
    lines = (await api.call("GET", f"{BANDIT}/log/export?format=ndjson")).content.splitlines()
    rows = [msgspec.json.decode(line) for line in lines]
    known = {
        (row["decision"], arm["id"]): (arm["examined"], arm["weight"]) for row in rows for arm in row["arms"]
    }
    assert len({examined for examined, _ in known.values()}) > 1
    data = (await api.call("GET", f"{BANDIT}/log/export?format=parquet")).content
    columns = pq.read_table(io.BytesIO(data)).to_pylist()
    made = tables.decisions([msgspec.convert(row, Row) for row in rows])
    for table in (columns, [row for day in made.values() for row in day.to_pylist()]):
        found = {
            (row["decision"], arm["id"]): (arm["examined"], arm["weight"])
            for row in table
            for arm in row["arms"]
        }
        assert found == known


@pytest.mark.parametrize("learners", ["before", "now"])
async def test_evaluations_predict_by_what_is_learned_of_places(api: Api, learners: str):
    await start(api, policy="softmax", temperature=1.0)
    await play(api, 8)
    await shown(api)
    await play(api, 8, seed=1)
    answers = [
        await api.ok(
            "POST",
            f"{BANDIT}/evaluations",
            {"policy": {"temperature": 0.5, **places}, "estimators": ["dr"], "learners": learners},
        )
        for places in ({}, {"position": None})
    ]
    estimates = [answer["estimates"][0] for answer in answers]
    assert 0.0 < estimates[0]["interval"][0] < estimates[0]["interval"][1] < 3.0
    # A reward that is looked for less is foreseen better: over seven runs by 3 to 16 % of the interval.
    learned, without = (np.ptp(each["places"][1]["interval"]) for each in estimates)
    assert learned < without


@pytest.mark.slow
@pytest.mark.parametrize(("better", "enough"), [(1.0, 6), (1.5, 7)])
async def test_like_arms_share_first_places_and_a_better_one_leads(api: Api, better: float, enough: int):
    """In 17 and 18 of twenty seeds each held. False alarms: 1 in 100, where these are the shares."""
    truth, clicked, held = np.array([1.0, 0.6, 0.4, 0.3, 0.2]), 0.4 * better ** (np.arange(40) == 7), 0
    features = enumerate(np.random.default_rng(104).normal(size=(40, 4)))
    await api.catalogue("like", {str(arm): own for arm, own in features})
    for seed in range(10):
        rng, first = np.random.default_rng(seed), np.zeros(40)
        await make(api, catalogue="like", position="auto", intercept=True)
        for number in range(140):
            keys = rng.choice(50, 10, replace=False)
            asked = {"requests": [{"key": f"u{key}", "k": 5, "seed": 1_000 * number + seed} for key in keys]}
            choices = (await api.ok("POST", f"{BANDIT}/choose/batch", asked))["results"]
            rewards = [
                {"decision": choice["decision"], "arm": arm["id"], "value": float(rng.random() < likely)}
                for choice in choices
                for arm, p in zip(choice["arms"], truth, strict=True)
                for likely in (p * clicked[int(arm["id"])],)
            ]
            await api.reward(*rewards)
            if number >= 70:
                first += np.bincount([int(choice["arms"][0]["id"]) for choice in choices], minlength=40)
            if number % 2:
                await api.ok("POST", REFRESH, {})
        await api.ok("DELETE", BANDIT, status=204)
        held += first[7] >= 350 if better > 1.0 else first.max() <= 490
    assert held >= enough
