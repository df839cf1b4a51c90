"""What rewards at stated places weigh: measured from lists of everybody, with the stated p held."""

# ruff: noqa: F401, F811 - fixtures are imported

from typing import Any

import msgspec
import numpy as np
import pytest
from test_learned_places import place_numbers, play, shown, start

from api_client import Api, Json
from app.records.place_sums import examined_at
from app.records.records import bytes_to_state
from app.rewards.tokens import decision_of, raw_of
from bandit_with_effects import BANDIT, FEATURES, PATH, api, check, entries_of
from oracle import judged
from shortlist.linear import places

pytestmark = [pytest.mark.anyio, pytest.mark.rest]

STATED = [1.0, 0.5, 0.25]


def places_in(choice: Json) -> list[tuple[float, float]]:
    data = decision_of(raw_of(choice["decision"])).places
    assert data is not None
    return [examined_at(data, place) for place in range(3)]


async def stated_bandit(api: Api, **more: Any) -> None:
    await start(api)
    await api.ok("PATCH", BANDIT, {"position": {"examination": STATED}, **more})


async def test_weights_are_measured_while_stated_probabilities_hold(api: Api):
    await stated_bandit(api)
    first = await play(api, 12)
    assert places_in(first[0]) == [(p, 1.0) for p in STATED]
    numbers = await place_numbers(api, first)
    found = await shown(api)
    assert (found["places"], found["places_note"]) == (STATED, "as the position of the bandit states")
    more = await play(api, 8, seed=1)
    both = places_in(more[0])
    assert [p for p, _ in both] == STATED
    _, w = places.fit(numbers, np.array(STATED))
    np.testing.assert_allclose([own for _, own in both], w, rtol=0.01)
    v = numbers.V / numbers.n
    np.testing.assert_allclose(w, np.clip(v[0] / v, 1.0, 1.0 / np.array(STATED)), rtol=1e-6)
    assert max(w) > 1.0
    # A learner: G += w p^2 x x', and the rest alike.
    decisions = judged(await entries_of(api))
    for key in ("u0", "u3"):
        answer = await api.call(
            "GET", f"{BANDIT}/learners/{key}", headers={"accept": "application/octet-stream"}
        )
        gram = np.zeros((3, 3))
        for each in decisions:
            if each.entry["key"] == key:
                entry, x = each.entry, FEATURES[each.entry["arm"]]
                gram += (entry["weight"] or 1.0) * (entry["examined"] or 1.0) ** 2 * np.outer(x, x)
        lower = bytes_to_state(answer.content).sums.lower_gram()
        np.testing.assert_allclose(lower + np.tril(lower, -1).T, gram, rtol=1e-9, atol=1e-9)
    await check(api)


async def test_it_is_changed_to_auto_and_back_while_rewards_are_under_way(api: Api):
    await stated_bandit(api)
    await play(api, 8)
    await shown(api)
    choices = [await api.choose("b", key="u0", k=3)]
    for position in ("auto", {"examination": [1.0, 0.9, 0.8]}):
        await api.ok("PATCH", BANDIT, {"position": position})
        choices.append(await api.choose("b", key="u0", k=3))
    assert [p for p, _ in places_in(choices[1])] != STATED  # as fitted, at once
    assert all(w <= 1.0 / p + 0.001 for p, w in places_in(choices[2]))
    for choice in choices:
        await api.reward({"decision": choice["decision"], "arm": choice["arms"][1]["id"], "value": 1.0})
    entries = {each.entry["id"]: each.entry for each in judged(await entries_of(api))}
    for choice, p in zip(choices, (0.5, places_in(choices[1])[1][0], 0.9), strict=True):
        entry = entries[decision_of(raw_of(choice["decision"])).id]
        assert (entry["examined"], entry["weight"]) == (p, places_in(choice)[1][1])
    await check(api)


async def test_a_stored_bandit_without_the_mark_is_as_before(api: Api):
    await stated_bandit(api)
    await play(api, 4)
    await shown(api)
    served = api.app.service.bandits.by_name("b")
    assert served.places_of_token(3) is not None
    settings = msgspec.to_builtins(served.record)
    assert settings.pop("weighs_places")
    before = msgspec.structs.replace(served, record=msgspec.convert(settings, type(served.record)))
    assert before.places_of_token(3) is None
    assert [before.examination_at(place) for place in range(4)] == [*STATED, STATED[-1]]


@pytest.mark.parametrize("examination", [[0.9, 0.5], [1.0] + [0.5] * 20])
async def test_a_first_place_below_one_and_long_lists_have_no_weights(api: Api, examination: list[float]):
    await start(api)
    await api.ok("PATCH", BANDIT, {"position": {"examination": examination}})
    choice = await api.choose("b", key="u0", k=3)
    assert decision_of(raw_of(choice["decision"])).places is None


async def test_signals_and_bandits_without_effects_have_no_weights(api: Api):
    body = {"catalogue": "c", "policy": "sub_ts", "scope": "per_key", "position": {"examination": STATED}}
    for name, more in (("x", {"signals": {"click": {}, "buy": {}}}), ("y", {"arm_effects": "off"})):
        await api.ok("PUT", f"/v1/bandits/{name}", {**body, **more}, 201)
        choice = await api.choose(name, key="u0", k=3)
        assert decision_of(raw_of(choice["decision"])).places is None


async def test_rewards_below_zero_weigh_alike(api: Api):
    await stated_bandit(api, reward={"min": -1.0})
    await play(api, 4)
    await shown(api)
    assert places_in(await api.choose("b", key="u0", k=3)) == [(p, 1.0) for p in STATED]
