"""What stateful policies remember of learners: when a state goes on, and when it is started again."""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import pytest

from app.platform.cache import BoundedCache
from app.policies.policy_states import PolicyStates
from app.storage.types import LearnerId

pytestmark = pytest.mark.anyio

LEARNER = LearnerId("bandit", "ann")


@dataclass(frozen=True)
class Ask:
    """``bandit``: as it is stored. ``version``: of the learner."""

    bandit: bytes = b"stored"
    version: int = 0
    dry_run: bool = False


async def state_of(states: PolicyStates, ask: Ask, start: Any = lambda *_: ("started",)) -> Any:
    """How the state came about: started, and followed so often."""
    bandit = SimpleNamespace(stored=ask.bandit)
    request: Any = SimpleNamespace(
        learner=LEARNER, bandit=bandit, dry_run=ask.dry_run, limits=(), diverse=None
    )
    arms = SimpleNamespace(plain=SimpleNamespace(waiting=None))
    snapshot: Any = SimpleNamespace(learner_version=ask.version, posterior=None, arms=arms)
    follow: Any = lambda state, *_: (*state, "followed")  # noqa: E731
    return await states.of(request, snapshot, start=start, follow=follow, nbytes=len, us=0.0)


async def test_a_state_follows_its_learner_and_is_started_again_where_the_bandit_changed() -> None:
    states, ask = PolicyStates(BoundedCache(10_000)), Ask()
    assert await state_of(states, replace(ask, dry_run=True)) == ("started",)
    assert await state_of(states, replace(ask, version=1, dry_run=True)) == ("started",), "it was not kept"
    assert await state_of(states, ask) == ("started",)
    assert await state_of(states, replace(ask, version=2)) == ("started", "followed")
    assert await state_of(states, replace(ask, version=1)) == ("started",)
    assert await state_of(states, replace(ask, version=3, bandit=b"changed")) == ("started",)


async def test_what_is_made_while_its_learner_is_forgotten_is_not_kept() -> None:
    states = PolicyStates(BoundedCache(10_000))

    def start(*_: Any) -> Any:
        states.forget(LEARNER)
        return ("forgotten",)

    assert await state_of(states, Ask(), start) == ("forgotten",)
    assert await state_of(states, Ask(version=1)) == ("started",)
