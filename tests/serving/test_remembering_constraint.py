"""A constraint of a plug-in that remembers keys keeps the contract; its notes go with their keys."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial

import msgspec
import pytest

from app.bandits.bandit import Bandit
from app.bandits.settings import LogRule, RepeatsRule
from app.frequency_caps.exposures import is_of
from app.frequency_caps.notes import MAX_NOTE_BYTES, Note, NoteStore
from app.platform.errors import Invalid
from app.policies.request import ChooseRequest
from app.policies.selection import SelectionRequest
from app.serving.constraints import of_plugins
from app.serving.constraints.base import Shown, View
from app.serving.constraints.of_plugins import RememberingConstraint
from app.serving.constraints.order import constraints_of
from app.storage.types import LearnerId
from headless_service import HeadlessService, bandit_record
from shortlist_service.testing import ConstraintCase, ConstraintContract
from shortlist_service.testing.shop import ids
from waiting import wait_until

pytestmark = pytest.mark.rest

CHOICES = 5
NAME = "not_again"
SPAN_MS = 3_600_000
ONE = "a bandit has one constraint that remembers keys, or repeats"


class NotAgain(RememberingConstraint):
    """An arm that stood in one of the last five choices of a key does not stand in the next one."""

    name = NAME
    remembers_s = SPAN_MS // 1_000

    def allow(self, notes: Sequence[Note], choice: ChooseRequest, request: SelectionRequest) -> View:
        return View(exclude=[arm for note in notes[-CHOICES:] for arm in note.text.split()])

    def note(self, shown: Shown) -> str:
        return " ".join(map(shown.whole.id_of, shown.rows))


@pytest.fixture
async def service(service: HeadlessService, monkeypatch: pytest.MonkeyPatch) -> HeadlessService:
    """One that has loaded the plug-in."""
    monkeypatch.setitem(of_plugins.PLUGIN_CONSTRAINTS, NAME, NotAgain())
    parts = service.parts
    parts.pipeline.constraints = constraints_of(
        parts.sync, parts.frequency_caps, notes_of(service), parts.quotas
    )
    return service


def notes_of(service: HeadlessService) -> NoteStore:
    return NoteStore(service.store.frequency_caps, service.parts.metrics)


async def texts(service: HeadlessService, bandit: Bandit, key: str) -> list[str]:
    """What the constraint has noted of a key."""
    read = await notes_of(service).read(NAME, LearnerId(bandit.uid, key), span_ms=SPAN_MS)
    return [note.text for note in read.notes]


class TestRemembering(ConstraintContract):
    @pytest.fixture
    def case(self) -> ConstraintCase:
        return ConstraintCase(
            lambda lists: max(Counter(arm for arms in lists for arm in arms).values()) == 1,
            settings={"constraints": {NAME: {}}},
            batch=2,
            counts=True,
        )


@pytest.mark.anyio
async def test_notes_are_of_one_key_and_are_forgotten_with_it(service: HeadlessService):
    bandit = await service.bandit(constraints={NAME: {}})
    first, second = [ids(await service.choose(bandit, k=1)) for _ in range(2)]
    assert await texts(service, bandit, "ann") == [*first, *second]
    assert first != second
    assert await texts(service, bandit, "bob") == []
    assert ids(await service.choose(bandit, "bob", k=1)) == first
    await service.parts.forgetting.forget(bandit.learner_named("ann"))
    assert await texts(service, bandit, "ann") == []
    assert await texts(service, bandit, "bob") == first
    assert ids(await service.choose(bandit, k=1)) == first


@pytest.mark.anyio
async def test_a_global_bandit_remembers_visitors_and_nothing_without_one(service: HeadlessService):
    bandit = await service.bandit(scope="global", constraints={NAME: {}})

    async def arm(visitor: str | None) -> str:
        choice = await service.parts.choosing.choose(bandit, ChooseRequest(k=1, visitor=visitor))
        return ids(choice)[0]

    best = await arm("ann")
    assert await arm("ann") != best
    assert [await arm(None), await arm(None), await arm("bob")] == [best] * 3
    await service.parts.forgetting.forget_visitor(bandit.learner_named("_global"), "ann")
    assert await texts(service, bandit, "ann") == []
    assert await texts(service, bandit, "bob") == [best]


@pytest.mark.anyio
async def test_a_visitor_is_refused_with_the_names_of_what_takes_one(service: HeadlessService):
    bandit = await service.bandit(scope="global")
    with pytest.raises(Invalid, match=f"that has repeats or the constraint {NAME}$"):
        await service.parts.choosing.choose(bandit, ChooseRequest(k=1, visitor="ann"))


@pytest.mark.anyio
async def test_what_it_excluded_is_in_the_row_and_a_choice_is_made_again_by_it(service: HeadlessService):
    bandit = await service.bandit(constraints={NAME: {}}, log=LogRule())
    choices = [await service.choose(bandit, k=1) for _ in range(3)]
    decision = choices[-1].decision
    find = partial(service.parts.decision_log.find, bandit, decision)
    logged = await wait_until(find, what="the row is in the log")
    assert logged.row.barred is not None
    assert sorted(logged.row.barred.arms) == sorted([*ids(choices[0]), *ids(choices[1])])
    explanation = await service.parts.explanations.explain(bandit, decision)
    assert explanation.repeated is True


@pytest.mark.anyio
async def test_a_choice_that_is_asked_for_again_is_noted_once(service: HeadlessService):
    bandit = await service.bandit(constraints={NAME: {}})
    shown = [ids(await service.choose(bandit, k=1, event_id="event")) for _ in range(2)]
    assert shown[0] == shown[1] == await texts(service, bandit, "ann")


@pytest.mark.anyio
async def test_a_second_note_after_the_same_ones_is_refused(service: HeadlessService):
    notes, key = notes_of(service), LearnerId("b" * 16, "ann")

    async def noted(constraint: str) -> list[str]:
        return [note.text for note in (await notes.read(constraint, key, span_ms=SPAN_MS)).notes]

    before = await notes.read("one", key, span_ms=SPAN_MS)
    written = await notes.write(before, "d1", "first")
    assert written
    assert await notes.write(before, "d1", "first") == written  # sent again after a lost answer
    assert await notes.write(before, "d2", "second") is None
    assert (await noted("one"), await noted("other")) == (["first"], [])
    assert not is_of(RepeatsRule(most=1, within_s=60.0), written.counted)
    await notes.take_back(written)
    assert await noted("one") == []
    longest = "ä" * (MAX_NOTE_BYTES // 2)
    assert await notes.write(before, "d3", longest)
    assert await noted("one") == [longest]
    with pytest.raises(ValueError, match="at most"):
        await notes.write(before, "d4", f"{longest}a")


@pytest.mark.anyio
async def test_a_bandit_has_one_memory(service: HeadlessService, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(of_plugins.PLUGIN_CONSTRAINTS, "other", NotAgain())
    one = bandit_record(constraints={NAME: {}})
    assert list(of_plugins.check_constraints(one)) == []
    for record in (
        msgspec.structs.replace(one, repeats=RepeatsRule(most=1, within_s=60.0)),
        msgspec.structs.replace(one, constraints={NAME: {}, "other": {}}),
    ):
        ((path, rule),) = of_plugins.check_constraints(record)
        assert (path[0], rule) == (
            "constraints",
            ONE,
        )
