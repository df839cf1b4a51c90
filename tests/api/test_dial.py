"""A setting of the dial is a bandit that learned that mix from the start, choice by choice.

The same story is told twice: to a bandit with signals, and to one of the same name that gets the mix. Late
signals change the mix of their decision, and so does one that is revised: it is a reward of which the last
counts. All choices have the seeds of their numbers, so as soon as the learners differ the choices would.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from api_client import Api, Json

pytestmark = [pytest.mark.anyio, pytest.mark.rest]

DIAL = {"click": 1.0, "purchase": 20.0, "watch": 0.25, "hide": -5.0}
DEFAULTS = {"click": 0.0, "purchase": 0.25, "watch": 0.0, "hide": 0.0}
SIGNALS: dict[str, Json] = {
    name: {"default": DEFAULTS[name], **({"aggregate": "last"} if name == "watch" else {})} for name in DIAL
}
ARMS = {f"a{i}": list(np.random.default_rng([5, i]).standard_normal(4)) for i in range(60)}
NOW = 1_700_000_000_000


@dataclass(frozen=True)
class Event:
    """Of a decision, after the choice ``when``: a signal, which is sent ``times`` times."""

    decision: int
    when: int
    signal: str
    value: float
    at: int
    times: int


def story(decisions: int) -> dict[int, list[Event]]:
    """What comes after each choice: signals of it, and late ones of earlier decisions."""
    rng, result = np.random.default_rng(decisions), dict[int, list[Event]]()
    for decision in range(decisions):
        for name in DIAL:
            if rng.random() < 0.5:
                continue  # it never comes
            for _ in range(rng.integers(1, 4) if name == "watch" else 1):
                when = min(decision + int(rng.geometric(0.3)) - 1, decisions - 1)
                value, at = float(rng.standard_normal()), NOW + int(rng.integers(5))
                event = Event(decision, when, name, value, at, int(rng.integers(1, 3)))
                result.setdefault(when, []).append(event)
    return result


class Mixed:
    """What the mix of each decision is after each event; None after one that changes nothing."""

    def __init__(self) -> None:
        self.came: dict[int, dict[str, tuple[int, float]]] = {}

    def after(self, event: Event) -> float | None:
        came = self.came.setdefault(event.decision, {})
        had, said = came.get(event.signal), (event.at, event.value)
        if had is not None and (event.signal != "watch" or said <= had):
            return None
        came[event.signal] = said
        values = {name: came[name][1] if name in came else DEFAULTS[name] for name in DIAL}
        return sum(weight * values[name] for name, weight in DIAL.items())


async def told(api: Api, decisions: int, *, mixed: bool, settings: Json) -> tuple[list[Any], Json]:
    """The choices, and the learner in the end."""
    rule: Json = {"reward": {"aggregate": "last"}} if mixed else {"signals": SIGNALS}
    await api.bandit("b", "c", **rule, **settings)
    asked: Json = {} if mixed else {"weights": DIAL}
    tokens, choices, events, mix, sent = list[str](), [], story(decisions), Mixed(), 0
    for number in range(decisions):
        choice = await api.choose("b", seed=number, k=2, **asked)
        tokens.append(choice["decision"])
        choices.append([(arm["id"], arm["score"]) for arm in choice["arms"]])
        rewards = list[Json]()
        for event in events.get(number, ()):
            of = {"decision": tokens[event.decision], "arm": choices[event.decision][0][0]}
            if not mixed:
                item = {**of, "signal": event.signal, "value": event.value, "at": event.at}
                rewards += [item] * event.times
            elif (value := mix.after(event)) is not None:
                sent += 1
                rewards.append({**of, "value": value, "at": NOW + sent})
        if rewards:
            await api.reward(*rewards)
    if not mixed:
        weights = {name: {"weight": weight} for name, weight in DIAL.items()}
        await api.ok("PATCH", "/v1/bandits/b", {"signals": weights})
    learner = await api.learner("b")
    await api.ok("DELETE", "/v1/bandits/b", status=204)
    return choices, learner


async def compared(api: Api, decisions: int, **settings: Any) -> None:
    await api.catalogue("c", ARMS)
    dial, one = await told(api, decisions, mixed=False, settings=settings)
    mix, other = await told(api, decisions, mixed=True, settings=settings)
    differ = [n for n in range(decisions) if [arm for arm, _ in dial[n]] != [arm for arm, _ in mix[n]]]
    assert not differ, f"the choices differ from number {differ[0]} on"
    np.testing.assert_allclose(one["theta"], other["theta"], rtol=1e-9, atol=1e-9)
    assert one["observations"] == other["observations"]
    assert one["used"]["noise"] == pytest.approx(other["used"]["noise"], rel=1e-9)


@pytest.mark.parametrize(
    "settings",
    [
        {"exploration": "auto", "ridge": 1.0},
        pytest.param({"policy": "softmax"}, marks=pytest.mark.slow),
    ],
)
async def test_the_dial_is_the_mix(api: Api, settings: Json):
    await compared(api, 60, **settings)


@pytest.mark.slow
@pytest.mark.timeout(3_600)
async def test_the_dial_is_the_mix_over_10000_decisions(api: Api):
    await compared(api, 10_000, exploration="auto", ridge=1.0)
