"""``half_life_s`` of arms beside that of keys: its forms, what fades by it, and what a change of it means."""

# ruff: noqa: F401, F811 - fixtures are imported

import time
from typing import Any

import numpy as np
import pytest

from api_client import Api
from app.fold.replay import compare
from app.records.records import bytes_to_state
from bandit_with_effects import (
    BANDIT,
    EFFECTS,
    FEATURES,
    KEYS,
    PATH,
    REFRESH,
    api,
    begin,
    check_rebuilt,
    entries_of,
    make,
    play,
    revisions_of,
    stored_sums,
)
from oracle import arm_sums, judged, key_moments
from waiting import wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.rest]

H = 3_600.0


async def patch(api: Api, half_life_s: Any) -> Any:
    return (await api.ok("PATCH", BANDIT, {"half_life_s": half_life_s}))["half_life_s"]


async def observe(api: Api, ages_s: list[float]) -> None:
    """An observation of each arm by each key, of each age."""
    now_ms = time.time_ns() // 1_000_000
    rows = [
        {
            "id": f"{key}-{arm}-{age_s}",
            "key": f"u{key}",
            "arm": arm,
            "value": EFFECTS[arm],
            "at": now_ms - round(1_000 * age_s),
        }
        for key in range(KEYS)
        for arm in FEATURES
        for age_s in ages_s
    ]
    await api.observe("b", *rows)


async def keys_know_all(api: Api) -> None:
    """For keys nothing has faded."""
    decisions = judged(await entries_of(api))
    for key in range(KEYS):
        answer = await api.call(
            "GET", f"{BANDIT}/learners/u{key}", headers={"accept": "application/octet-stream"}
        )
        state = bytes_to_state(answer.content)
        assert (state.half_life_s, state.time_ms) == (0.0, 0)
        rows = [each for each in decisions if each.entry["key"] == f"u{key}"]
        assert state.sums.weight == len(rows)
        moments = state.sums.with_signals(1).moments
        np.testing.assert_allclose(moments, key_moments(decisions, FEATURES, f"u{key}"), rtol=1e-9, atol=1e-9)


async def weights(api: Api) -> tuple[dict[str, float], int]:
    """What each arm weighs after a fit, and when that was."""
    await api.ok("POST", REFRESH, {})
    found = await api.ok("GET", PATH, params={"limit": 100})
    version = await api.app.service.effects.newest(api.app.service.bandits.by_name("b").uid)
    return {item["arm"]: item["weight"] for item in found["items"]}, version.record.since_ms


def faded(decisions: list[Any], half_lives: Any) -> dict[str, float]:
    """What each arm weighs. ``half_lives``: how many went by since a time."""
    found = dict[str, float]()
    for each in decisions:
        if each.entry["expected"] is not None:
            arm = each.entry["arm"]
            found[arm] = found.get(arm, 0.0) + 0.5 ** half_lives(each.entry["decided"])
    return found


async def test_arms_fade_and_keys_do_not(api: Api):
    await make(api, half_life_s={"arms": H, "keys": None})
    await begin(api)
    await observe(api, [0.0, H, 2.0 * H])
    await play(api, 3)
    decisions, found = judged(await entries_of(api)), await stored_sums(api, H)
    wanted = arm_sums(decisions, await revisions_of(api), half_life_s=H)
    assert found.keys() == wanted.keys()
    for arm, own in wanted.items():
        np.testing.assert_allclose(found[arm], own, rtol=1e-9, atol=1e-9, err_msg=arm)
    await keys_know_all(api)
    await check_rebuilt(api, found)
    shown, since_ms = await weights(api)
    assert shown == pytest.approx(faded(decisions, lambda ms: (since_ms - ms) / 1_000 / H), rel=1e-6)
    assert not (await compare(api.app.service.store)).different


async def test_keys_fade_and_arms_do_not(api: Api):
    await make(api, half_life_s={"arms": None, "keys": H})
    await begin(api)
    await observe(api, [0.0, H])
    decisions = judged(await entries_of(api))
    wanted = arm_sums(decisions, await revisions_of(api))
    for arm, own in (await stored_sums(api)).items():
        np.testing.assert_allclose(own, wanted[arm], rtol=1e-9, atol=1e-9)
    answer = await api.call("GET", f"{BANDIT}/learners/u1", headers={"accept": "application/octet-stream"})
    assert bytes_to_state(answer.content).half_life_s == H
    shown, _ = await weights(api)
    assert shown == pytest.approx(faded(decisions, lambda _: 0.0))


@pytest.mark.parametrize("before", [None, H])
async def test_a_change_fades_from_then_on_and_nothing_before_it(api: Api, before: float | None):
    """From no half-life, or an hour, to a minute, to none, and to a second: exactly what each time adds."""
    await make(api, half_life_s={"arms": before, "keys": None})
    await begin(api)
    await observe(api, [0.0, H])
    changes, lives = list[int](), [before, 60.0, None, 1.0]
    for half_life_s in lives[1:]:
        assert await patch(api, {"arms": half_life_s}) == (
            half_life_s and {"arms": half_life_s, "keys": None}
        )
        changes.append(api.app.service.bandits.by_name("b").record.arm_clock.since_ms)
        await play(api, 1)
        decisions = judged(await entries_of(api))
        shown, since_ms = await weights(api)

        def passed(ms: int, until_ms: int = since_ms) -> float:
            """Half-lives since ``ms``."""
            starts = [-(10**15), *changes]
            ends = [*changes, until_ms]
            return sum(
                max(0, end - max(start, ms)) / 1_000 / life
                for start, end, life in zip(starts, ends, lives, strict=False)
                if life is not None
            )

        # the clock shows whole milliseconds: up to .5 ms of the shortest half-life
        assert shown == pytest.approx(faded(decisions, passed), rel=2e-3)
    await keys_know_all(api)
    assert not (await compare(api.app.service.store)).different


async def test_a_key_that_is_forgotten_leaves_nothing_whatever_half_lives_there_were(api: Api):
    await make(api, half_life_s=None)
    await begin(api)
    now_ms = time.time_ns() // 1_000_000
    odd = [{"id": f"odd-{arm}", "key": "odd", "arm": arm, "value": 1e6, "at": now_ms} for arm in FEATURES]
    for half_life_s in (None, 30.0, 2.0):
        await patch(api, {"arms": half_life_s})
        await api.observe("b", *({**row, "id": f"{row['id']}-{half_life_s}"} for row in odd))
        await play(api, 1)
    await api.ok("DELETE", f"{BANDIT}/learners/odd", status=204)
    decisions = judged(await entries_of(api))
    assert not any(each.entry["key"] == "odd" for each in decisions)
    service = api.app.service
    own = await stored_sums(api)
    wanted = arm_sums(decisions, await revisions_of(api))
    for arm, numbers in own.items():
        # Faded by some seconds each, but of nothing that a million was added to.
        assert np.abs(numbers).max() < 10 * np.abs(wanted[arm]).max()
    assert not (await compare(service.store)).different


async def test_a_number_means_both_and_patches_may_change_arms_alone(api: Api):
    await make(api, half_life_s=60)
    path = ["body", "half_life_s"]
    assert await patch(api, {"arms": 30}) == {"arms": 30, "keys": 60}
    assert await patch(api, {"arms": 60}) == 60
    assert await patch(api, {"arms": None}) == {"arms": None, "keys": 60}
    assert await patch(api, 60) == 60
    before = await api.ok("GET", BANDIT)
    for wrong, loc in (
        ({"keys": 30}, [*path, "keys"]),
        ({"arms": 5, "keys": None}, [*path, "keys"]),
        (30, path),
        (None, path),
    ):
        await api.refused(
            "PATCH", BANDIT, {"half_life_s": wrong}, status=409, code="not_changeable", loc=["body", *loc[1:]]
        )
    for wrong, names in ({"arms": 0.5}, ["arms"]), ({"arms": "x"}, ["arms"]), ({"b": 1}, ["b"]), ("x", []):
        await api.refused("PATCH", BANDIT, {"half_life_s": wrong}, loc=[*path, *names])
    assert await api.ok("GET", BANDIT) == before


async def test_forms_of_a_new_bandit(api: Api):
    same = await make(api, "same", half_life_s={"arms": 60, "keys": 60})
    assert same["half_life_s"] == 60
    assert (await make(api, "none", half_life_s={}))["half_life_s"] is None
    body = {"catalogue": "c", "policy": "sub_ts", "scope": "per_key", "half_life_s": {"arms": 9}}
    made = await api.ok("PUT", "/v1/bandits/apart", body, 201)
    assert made["half_life_s"] == {"arms": 9, "keys": None}
    assert await api.ok("PUT", "/v1/bandits/apart", body) == made
    terms = await api.ok("GET", "/v1/bandits/apart/log/terms")
    assert (terms["half_life_s"], terms["arm_half_life_s"]) == (None, 9)
    problem = await api.refused(
        "PUT", "/v1/bandits/apart", {**body, "half_life_s": {"arms": 8}}, status=409, code="conflict"
    )
    assert "PATCH changes it" in problem["detail"]
    for wrong, names in ({"arms": 1, "key": 2}, ["key"]), ({"keys": "1"}, ["keys"]), (0.5, []), ([1], []):
        path = ["body", "half_life_s", *names]
        await api.refused("PUT", "/v1/bandits/x", {**body, "half_life_s": wrong}, loc=path)
    needs = ["body", "half_life_s", "arms"]
    await api.refused("PUT", "/v1/bandits/x", {**body, "arm_effects": "off"}, loc=needs)
    await api.refused("PUT", "/v1/bandits/x", {**body, "scope": "global"}, loc=needs)
    await api.refused("PATCH", "/v1/bandits/apart", {"arm_effects": "off"}, loc=needs)
    await api.ok("PATCH", "/v1/bandits/apart", {"arm_effects": "off", "half_life_s": {"arms": None}})


async def test_rewards_under_way_count_by_the_terms_of_their_decision(api: Api):
    """Decided while nothing faded: they count as of the change, whole until then."""
    await make(api)
    await begin(api)
    late = [await api.choose("b", key=f"u{key}", k=1) for key in range(KEYS)]
    assert await patch(api, {"arms": 5.0}) == {"arms": 5.0, "keys": None}
    since_ms = api.app.service.bandits.by_name("b").record.arm_clock.since_ms
    for choice in late:
        await api.reward({"decision": choice["decision"], "value": 1.0})
    assert not (await compare(api.app.service.store)).different
    decisions = judged(await entries_of(api))
    expected = faded(decisions, lambda _: 0.0)

    async def fitted() -> tuple[dict[str, float], int] | None:
        """A fit that is under way may have read the sums before the last reward."""
        shown, now_ms = await weights(api)
        return (shown, now_ms) if all(map(shown.get, expected)) else None

    shown, now_ms = await wait_until(fitted, what="the last reward is in a fit")
    passed = (now_ms - since_ms) / 1_000 / 5.0
    assert shown == pytest.approx(faded(decisions, lambda _: passed), rel=1e-3)
    await keys_know_all(api)
