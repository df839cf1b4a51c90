"""What logs, explanations and evaluations say of choices within a constraint; in `make test` of one of them.

`tests/serving/test_each_constraint.py` holds the contract of constraints itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest

from api_client import Api, Json
from app.serving.constraints.base import Constraint
from app.serving.constraints.frequency_caps import FrequencyCapConstraint
from app.serving.constraints.quotas import QuotaConstraint
from app.serving.constraints.requested import AtMostRules, Exclusions, Filters, Pins
from waiting import wait_until

pytestmark = pytest.mark.anyio

ARMS = {f"a{i}": row.tolist() for i, row in enumerate(np.random.default_rng(8).normal(size=(12, 3)))}
Lists = Sequence[Sequence[str]]


@dataclass(frozen=True)
class Case:
    """How a bandit (``settings``, ``quota``) or a ``request`` asks for it.

    ``keep``: whether lists of one key keep to it. ``batch``: how many choices it takes for lists that do not.
    """

    keep: Callable[[Lists], bool]
    request: Json = field(default_factory=dict)
    settings: Json = field(default_factory=dict)
    quota: Json | None = None
    batch: int = 2


def number(arm: str) -> int:
    return int(arm[1:])


def most_of_a_maker(lists: Lists) -> int:
    return max(max(Counter(number(arm) % 3 for arm in each).values()) for each in lists)


CASES: dict[type[Constraint], Case] = {
    Filters: Case(
        lambda lists: all(number(arm) % 2 == 0 for each in lists for arm in each), {"filter": {"even": True}}
    ),
    Exclusions: Case(
        lambda lists: not {arm for each in lists for arm in each} & {"a1", "a4", "a9"},
        {"exclude": ["a1", "a4", "a9", "nobody"]},
    ),
    AtMostRules: Case(
        lambda lists: most_of_a_maker(lists) == 1, {"rules": {"at_most": [{"field": "maker", "count": 1}]}}
    ),
    Pins: Case(
        lambda lists: all(each[1] == "a2" for each in lists), {"rules": {"pin": [{"arm": "a2", "place": 2}]}}
    ),
    FrequencyCapConstraint: Case(
        lambda lists: max(Counter(arm for each in lists for arm in each).values()) == 1,
        settings={"repeats": {"most": 1, "within_s": 3_600}},
    ),
    QuotaConstraint: Case(
        lambda lists: sum(number(arm) % 3 == 0 for each in lists for arm in each) <= 4,
        quota={"filter": {"maker": "m0"}, "most": 4},
        batch=20,
    ),
}


async def build(api: Api, name: str, case: Case) -> None:
    settings = {"scope": "per_key", "policy": "softmax", "temperature": 0.5, "log": {}, "intercept": False}
    await api.ok("PUT", f"/v1/bandits/{name}", {"catalogue": "c", **settings, **case.settings}, 201)
    if case.quota is not None:
        await api.ok("PUT", f"/v1/bandits/{name}/quotas/q", case.quota, 201)


@pytest.mark.parametrize(
    "constraint",
    [case if case is QuotaConstraint else pytest.param(case, marks=pytest.mark.rest) for case in CASES],
    ids=lambda constraint: constraint.__name__,
)
async def test_what_was_chosen_within_it_is_explained_and_evaluated(api: Api, constraint: type[Constraint]):
    case = CASES[constraint]
    await fill(api)
    await build(api, "b", case)
    tokens, lists = await choose_in_every_way(api, case)
    assert case.keep(lists)

    # What was chosen is found again, whatever was chosen since. The last is deferred, and has no row.
    logged_tokens, unknown = tokens[:-1], 0
    for token in logged_tokens:
        explanation = await explain(api, token)
        is_known = explanation["row"].get("barred", ()) is not None
        expected = (True, []) if is_known else (None, ["barred"])
        assert (explanation["repeated"], explanation["changed"]) == expected
        unknown += not is_known
    assert unknown <= (len(tokens) // 2 if constraint.counts else 0)

    # An evaluation uses decisions of which the row says what it left, and only these.
    if plain := int(bool(case.request)):
        await api.choose("b", key="u", k=2, seed=6)
    logged = await evaluate(api, len(logged_tokens), plain)
    assert logged["left_out"] == (unknown if constraint.is_in_row else len(logged_tokens))
    # The policy that chose: each decision has the weight 1, if what it was drawn from is known.
    for estimate in logged["estimates"]:
        assert estimate["effective_sample_size"] == pytest.approx(logged["decisions"])


async def fill(api: Api) -> None:
    await api.ok("PUT", "/v1/catalogues/c", {"dim": 3}, 201)
    arms = [
        {
            "id": arm,
            "features": row,
            "metadata": {"even": number(arm) % 2 == 0, "maker": f"m{number(arm) % 3}"},
        }
        for arm, row in ARMS.items()
    ]
    await api.ok("PUT", "/v1/catalogues/c/arms", {"arms": arms})


async def choose_in_every_way(api: Api, case: Case) -> tuple[list[str], Lists]:
    """One, an event, a batch, and one that is deferred: it counts until it expires. Tokens and lists."""
    asked: Json = {"key": "u", "k": 2, **case.request}
    requests = [{**asked, "seed": seed} for seed in range(case.batch)]
    answers = [
        await api.choose("b", **asked, seed=3),
        await api.choose("b", **asked, event_id="e", seed=4),
        *(await api.ok("POST", "/v1/bandits/b/choose/batch", {"requests": requests}))["results"],
        await api.choose("b", **asked, activate=False, seed=5),
    ]
    lists = [[arm["id"] for arm in answer["arms"]] for answer in answers]
    return [answer["decision"] for answer in answers], lists


async def explain(api: Api, token: str) -> Json:
    async def explanation() -> Json | None:
        answer = await api.call("POST", "/v1/bandits/b/log/explain", {"decision": token})
        return answer.json() if answer.status_code == 200 else None

    found = await wait_until(explanation, what="the row is written")
    assert found is not None
    return found


async def evaluate(api: Api, constrained: int, plain: int) -> Json:
    """What an evaluation says of so many decisions; it refuses a log of which it can use none."""

    async def evaluation() -> Json | None:
        body = {"policy": {"temperature": 0.5}, "learners": "now"}
        answer = (await api.call("POST", "/v1/bandits/b/evaluations", body)).json()
        logged = {"estimates": answer.get("estimates", []), **answer.get("logged", {"decisions": 0})}
        if f"none of the {constrained} decisions" in answer.get("detail", ""):
            logged["left_out"] = constrained
        is_whole = logged["decisions"] + logged.get("left_out", 0) == constrained + plain
        return logged if is_whole else None

    found = await wait_until(evaluation, what="all rows are written")
    assert found is not None
    return found
