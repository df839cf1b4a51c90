"""What a policy remembers of learners: it follows their rewards, is bounded, and is forgotten with them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
from msgspec.structs import replace

from app.bandits.bandit import Bandit
from app.platform.errors import Invalid
from app.policies.registry import POLICIES
from app.policies.stateful import StatefulPolicy
from app.selection.request import ChooseRequest
from app.selection.selection import Candidates, Ranking
from app.serving.choice import Choice
from shortlist.linear.ridge import Posterior
from shortlist_service.testing.headless_service import HeadlessService

pytestmark = [pytest.mark.anyio, pytest.mark.rest]


class Steps(NamedTuple):
    """``draws``: one when it was started, and one each time that it followed."""

    draws: tuple[float, ...]


class Walking(StatefulPolicy[Steps]):
    """Greedy; says by the scores of its arms how its state came about."""

    name = "walking"
    summary = "for tests"

    def start(self, posterior: Posterior, rng: np.random.Generator) -> Steps:
        return Steps((rng.random(),))

    def follow(self, state: Steps, posterior: Posterior, rng: np.random.Generator) -> Steps:
        return Steps((*state.draws, rng.random()))

    def nbytes(self, state: Steps) -> int:
        return 8 * len(state.draws)

    def rank(
        self, posterior: Posterior, candidates: Candidates, k: int, rng: Any, prepared: Steps
    ) -> Ranking:
        hits = candidates.search(posterior.theta, k)
        return Ranking(type(hits)(hits.rows, np.full(len(hits.rows), sum(prepared.draws)), hits.exact))


@pytest.fixture
async def bandit(service: HeadlessService, monkeypatch: pytest.MonkeyPatch) -> Bandit:
    monkeypatch.setitem(POLICIES, "walking", Walking())
    return await service.bandit(policy="walking")


def states(service: HeadlessService) -> dict[str, tuple[int, int]]:
    """For each learner that is remembered: the version of its state, and how many draws made it."""
    cache = service.parts.elimination.states
    entries = {key[1].name: cache.peek(key) for key in cache if isinstance(key, tuple) and key[0] == "state"}
    return {name: (entry.version, len(entry.state.draws)) for name, entry in entries.items()}


def score(choice: Choice) -> float:
    return float(choice.arms[0].score)


async def test_a_state_follows_the_rewards_of_its_learner(service: HeadlessService, bandit: Bandit):
    first = await service.choose(bandit)
    assert states(service) == {"ann": (0, 1)}
    assert score(await service.choose(bandit)) == score(first)
    await service.observe(bandit, "one", "two")
    await service.choose(bandit, key="bob")
    second = await service.choose(bandit)
    assert states(service) == {"ann": (2, 2), "bob": (0, 1)}
    assert score(second) > score(first)


async def test_a_dry_run_is_the_choice_and_keeps_nothing(service: HeadlessService, bandit: Bandit):
    dry = await service.parts.dry_runs.run(bandit, ChooseRequest(key="ann"))
    assert states(service) == {}
    assert dry.arms[0].score == score(await service.choose(bandit))


async def test_it_is_started_again_once_the_bandit_changed(service: HeadlessService, bandit: Bandit):
    await service.observe(bandit, "one")
    await service.choose(bandit)
    changed = await service.parts.bandits.change(
        "b", lambda _, version: replace(version.record, exploration=2.0)
    )
    await service.observe(changed, "two")
    await service.choose(changed)
    assert states(service) == {"ann": (2, 1)}


async def test_a_forgotten_learner_has_no_state(service: HeadlessService, bandit: Bandit):
    for key in ("ann", "bob"):
        await service.observe(bandit, f"one-{key}", key=key)
        await service.choose(bandit, key=key)
    await service.parts.erasure.forget(bandit.learner_for("ann"))
    assert states(service) == {"bob": (1, 1)}
    await service.choose(bandit)
    assert states(service)["ann"] == (0, 1)


async def test_what_is_made_while_a_learner_is_forgotten_is_not_kept(
    service: HeadlessService, bandit: Bandit, monkeypatch: pytest.MonkeyPatch
):
    learner = bandit.learner_for("ann")

    def start(self: Walking, posterior: Posterior, rng: np.random.Generator) -> Steps:
        service.parts.policy_states.forget(learner)
        return Steps((rng.random(),))

    monkeypatch.setattr(Walking, "start", start)
    await service.choose(bandit)
    assert states(service) == {}


async def test_states_are_bounded(service: HeadlessService, bandit: Bandit):
    cache = service.parts.elimination.states
    cache.capacity = 1_200
    for key in ("ann", "bob", "cem", "ann"):
        await service.choose(bandit, key=key)
    assert set(states(service)) == {"cem", "ann"}
    assert cache.bytes <= cache.capacity


async def test_forgetting_all_drops_all(service: HeadlessService, bandit: Bandit):
    await service.choose(bandit)
    service.parts.policy_states.forget_all()
    assert states(service) == {}


@pytest.mark.parametrize("setting", [{"half_life_s": 60.0}, {"prior": "learned", "ridge": "auto"}])
async def test_settings_that_change_a_posterior_without_rewards_are_refused(
    service: HeadlessService, bandit: Bandit, setting: dict[str, Any]
):
    with pytest.raises(Invalid, match=f"{next(iter(setting))} cannot be combined with the policy walking"):
        await service.bandit("other", policy="walking", **setting)


def test_a_policy_cannot_ask_for_them():
    with pytest.raises(TypeError, match="cannot have the options context, prior"):
        type("Wrong", (Walking,), {"options": frozenset({"context", "prior", "epsilon"})})
