"""The contract of constraints over HTTP: logs, explanations and evaluations too.

`tests/serving/test_each_constraint.py` has what needs no HTTP. In `make test` one stands for all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from api_client import Api, Json
from app.policies.selection import SelectionRequest
from app.records.left_out import MOST_BLOCKS, NOT_KEPT
from app.serving.constraints.base import (
    Applied,
    Constraint,
    ConstraintFields,
    LogRecord,
    Shown,
    View,
    recorded,
)
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


async def build(api: Api, name: str, case: Case | None = None) -> None:
    settings = {"scope": "per_key", "policy": "softmax", "temperature": 0.5, "log": {}, "intercept": False}
    settings |= {} if case is None else case.settings
    await api.ok("PUT", f"/v1/bandits/{name}", {"catalogue": "c", **settings}, 201)
    if case is not None and case.quota is not None:
        await api.ok("PUT", f"/v1/bandits/{name}/quotas/q", case.quota, 201)


@pytest.mark.parametrize(
    "constraint",
    [case if case is QuotaConstraint else pytest.param(case, marks=pytest.mark.rest) for case in CASES],
    ids=lambda constraint: constraint.__name__,
)
async def test_a_choice_of_every_way_keeps_to_it(api: Api, constraint: type[Constraint]):
    case = CASES[constraint]
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
    await build(api, "free")
    await build(api, "b", case)
    asked: Json = {"key": "u", "k": 2, **case.request}
    tokens, lists = list[str](), list[list[str]]()

    def note(answer: Json) -> list[str]:
        tokens.append(answer["decision"])
        lists.append([arm["id"] for arm in answer["arms"]])
        return lists[-1]

    # a dry run says what a choice would be, and counts nothing
    before = await api.stored()
    dry = await api.choose("b", **asked, seed=3, dry_run=True)
    assert await api.stored() == before
    first = note(await api.choose("b", **asked, seed=3))
    assert first == [arm["id"] for arm in dry["arms"]]

    # without it some lists would not keep to it
    free = [await api.choose("free", key="u", k=2, seed=seed) for seed in range(20)]
    assert not case.keep([[arm["id"] for arm in answer["arms"]] for answer in free])

    # an event is decided once, a batch one after the other, and what is deferred counts until it expires
    for _ in range(2):
        event = await api.choose("b", **asked, event_id="e", seed=4)
    note(event)
    batch = await api.ok(
        "POST",
        "/v1/bandits/b/choose/batch",
        {"requests": [{**asked, "seed": seed} for seed in range(case.batch)]},
    )
    for answer in batch["results"]:
        note(answer)
    deferred = note(await api.choose("b", **asked, activate=False, seed=5))
    assert all(len(each) == 2 for each in (first, deferred))
    assert case.keep(lists)

    # what was chosen is found again, whatever was chosen since
    async def explained(token: str) -> Json | None:
        answer = await api.call("POST", "/v1/bandits/b/log/explain", {"decision": token})
        return answer.json() if answer.status_code == 200 else None

    logged_tokens, unknown = tokens[:-1], 0
    for token in logged_tokens:
        found = await wait_until(lambda token=token: explained(token), what="the row is written")
        assert found is not None
        is_known = found["row"].get("barred", ()) is not None
        assert (found["repeated"], found["changed"]) == ((True, []) if is_known else (None, ["barred"]))
        unknown += not is_known
    assert unknown <= (len(tokens) // 2 if constraint.counts else 0)

    # an evaluation uses decisions of which the row says what it left, and only these
    plain = 1 if case.request else 0
    for _ in range(plain):
        await api.choose("b", key="u", k=2, seed=6)

    async def evaluated() -> Json | None:
        body = {"policy": {"temperature": 0.5}, "learners": "now"}
        answer = await api.call("POST", "/v1/bandits/b/evaluations", body)
        estimates = answer.json().get("estimates", [])
        found: Json = {"estimates": estimates, **answer.json().get("logged", {"decisions": 0})}
        if f"none of the {len(logged_tokens)} decisions" in answer.json().get("detail", ""):
            found["left_out"] = len(logged_tokens)
        is_whole = found["decisions"] + found.get("left_out", 0) == len(logged_tokens) + plain
        return found if is_whole else None

    logged = await wait_until(evaluated, what="all rows are written")
    assert logged is not None
    assert logged["left_out"] == (unknown if constraint.is_in_row else len(logged_tokens))
    # the policy that chose: each decision has the weight 1, if what it was drawn from is known
    for estimate in logged["estimates"]:
        assert estimate["effective_sample_size"] == pytest.approx(logged["decisions"])


async def test_every_constraint_has_a_case(api: Api):
    assert {type(row.constraint) for row in api.app.service.pipeline._constraints} == set(CASES)


class Counted(Constraint):
    """One that counts, and says what it left out."""

    counts = is_in_row = True

    def __init__(self, name: str, refunds: list[str], left_out: str = "") -> None:
        self.name, self.refunds, self.left_out = name, refunds, left_out

    async def view(self, choice: ConstraintFields, request: SelectionRequest) -> View:
        return View()

    async def charge(self, view: View, shown: Shown) -> str:
        return "charged"

    async def refund(self, charge: str) -> None:
        self.refunds.append(f"{self.name} {charge}")

    def record(self, view: View, charge: object, shown: Shown, ttl_ms: int) -> LogRecord:
        return LogRecord(self.left_out)


SHOWN: Any = Shown(None, None, [], "d")  # type: ignore[arg-type]  # nobody here reads them


class CountedOutOfRow(Counted):
    """One whose row does not say all that it left."""

    is_in_row = False


async def test_what_several_left_out_is_all_recorded():
    parts = ["a.1", "", "b.3 c.1"]
    applied = [Applied(Counted("one", [], left_out=part), View()) for part in parts]
    assert recorded(applied, SHOWN, 1).left_out == "a.1 b.3 c.1"
    many = [Applied(Counted("one", [], left_out=f"{number}.1"), View()) for number in range(MOST_BLOCKS + 1)]
    assert recorded(many, SHOWN, 1).left_out == NOT_KEPT
    unsaid = [*applied, Applied(CountedOutOfRow("two", []), View())]
    assert recorded(unsaid, SHOWN, 1).left_out == NOT_KEPT


@pytest.mark.parametrize("parts", [(NOT_KEPT, "x"), ("x", NOT_KEPT), (NOT_KEPT, "")])
async def test_where_one_does_not_know_what_it_left_out_nobody_says_it(parts: Sequence[str]):
    applied = [Applied(Counted("one", [], left_out=part), View()) for part in parts]
    assert recorded(applied, SHOWN, 1).left_out == NOT_KEPT
