"""Learners of a bandit that was moved are carried little by little, each once, so that others are served."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from api_client import Api, running
from app.bandits.spaces import SpaceMap, Spaces
from app.fold.fold_batches import CheckpointedLearner, batches, fold_stored
from app.learners.prior_fits import FitLimits
from app.platform.background import Pace
from app.records.log_entries import MOVED, ForgetEntry, MoveEntry, RewardEntry, StateEntry
from app.records.records import LearnerState, state_bytes, state_to_bytes, vector_to_bytes
from app.storage.learner_states import LearnerStates
from app.storage.moves import MoveStore
from app.storage.types import CarriedWrite, FoldedCounts, LearnerId, StoredLearner
from log_entries import entry_of
from shortlist.linear import ridge_sums
from waiting import wait_until
from workers import bandit_moves

pytestmark = pytest.mark.anyio

D, ARMS, KEYS = 64, 100, 96  # 6 keys in a partition, and 36 kB for each
RNG = np.random.default_rng(4)
OLD = RNG.normal(size=(ARMS, D))
NEW = OLD @ RNG.normal(size=(D, D)) / 8.0
STATE = state_bytes(D, discounted=False)
MOST_SYNCED = 1 << 17
UID = "0123456789abcdef"


def by_id(features: np.ndarray) -> dict[str, list[float]]:
    return {f"a{place}": row.tolist() for place, row in enumerate(features)}


@pytest.fixture
async def api(store_url: str, tmp_path: Path) -> AsyncIterator[Api]:
    async with running(store_url, tmp_path) as api:
        await api.catalogue("old", by_id(OLD))
        await api.catalogue("new", by_id(NEW))
        await api.bandit("b", "old", scope="per_key")
        await observe(api, "b")
        yield api


async def observe(api: Api, bandit: str) -> None:
    """A reward of each key."""
    rewards = ({"key": f"u{n}", "arm": f"a{n % ARMS}", "value": n % 7} for n in range(KEYS))
    await api.observe(bandit, *({"id": f"o{n}", **each} for n, each in enumerate(rewards)))


async def move(api: Api, catalogue: str) -> None:
    await api.ok("POST", "/v1/bandits/b/move", {"catalogue": catalogue})

    async def is_done() -> bool:
        return "move" not in await api.ok("GET", "/v1/bandits/b")

    await wait_until(is_done, what="all learners are carried")


class Steps:
    """What is asked of the store while it is watched: bytes of carried states, and rests."""

    def __init__(self) -> None:
        self.order: list[tuple[str, int]] = []

    def sizes(self, what: str) -> list[int]:
        return [size for name, size in self.order if name == what]


@contextmanager
def watched(monkeypatch: pytest.MonkeyPatch) -> Iterator[Steps]:
    steps = Steps()
    carry, rest = MoveStore.carry, Pace.rest

    async def carried(self: MoveStore, partition: int, uid: str, writes: Sequence[CarriedWrite]) -> int:
        steps.order.append(("carry", sum(len(each.state or b"") for each in writes)))
        return await carry(self, partition, uid, writes)

    async def rested(self: Pace) -> None:
        steps.order.append(("rest", 0))
        await rest(self)

    with monkeypatch.context() as patched:
        patched.setattr(MoveStore, "carry", carried)
        patched.setattr(Pace, "rest", rested)
        yield steps


@pytest.mark.rest
async def test_little_is_synced_in_one_step_and_each_step_is_followed_by_a_rest(
    api: Api, monkeypatch: pytest.MonkeyPatch
):
    with watched(monkeypatch) as steps:
        await move(api, "new")
    carried = steps.sizes("carry")
    assert sum(carried) == KEYS * STATE
    assert max(carried) <= MOST_SYNCED
    names = [name for name, _ in steps.order if name in {"carry", "rest"}]
    after = [names[place + 1] for place, name in enumerate(names) if name == "carry"]
    assert set(after) == {"rest"}


@pytest.mark.rest
async def test_a_plan_carries_only_those_keys_of_which_it_fits_a_prior(
    api: Api, monkeypatch: pytest.MonkeyPatch
):
    seen, carry = list[int](), Spaces.carried_each

    def carried(spaces: Spaces, uid: str, states: Sequence[LearnerState | None], to: int) -> Any:
        seen.append(len(states) if to else 0)  # a fit of the bandit as it is may go on meanwhile
        return carry(spaces, uid, states, to)

    monkeypatch.setattr(Spaces, "carried_each", carried)
    api.app.service.prior_fits.limits = FitLimits(keys=12)
    automatic = {"prior": "learned", "ridge": "auto", "exploration": "auto"}
    await api.bandit("c", "old", scope="per_key", **automatic)
    await observe(api, "c")
    answer = await api.ok("POST", "/v1/bandits/c/move", {"catalogue": "new", "dry_run": True})
    assert answer["learners"] == KEYS
    assert sum(seen) == 12


async def test_a_partition_is_carried_only_once_the_entry_of_the_move_is_folded(
    api: Api, monkeypatch: pytest.MonkeyPatch
):
    """Until then rewards of the earlier space still come: the fold waits here for a round of the carrying."""
    apply, all_carried = LearnerStates.apply, MoveStore.all_carried
    carry_out = bandit_moves.Carrying._carry_out  # private: where the process is killed
    had_round, was_folded = asyncio.Event(), list[bool]()

    async def applied(self: LearnerStates, partition: int, **words: Any) -> bool:
        if words.get("moved"):
            await had_round.wait()
        return await apply(self, partition, **words)

    async def carried_out(self: bandit_moves.Carrying, uid: str, number: int) -> None:
        await carry_out(self, uid, number)
        had_round.set()

    async def noted(self: MoveStore, partition: int, uid: str, number: int) -> None:
        was_folded.append((await self.progress(uid))[partition].folded >= number)
        await all_carried(self, partition, uid, number)

    monkeypatch.setattr(LearnerStates, "apply", applied)
    monkeypatch.setattr(bandit_moves.Carrying, "_carry_out", carried_out)
    monkeypatch.setattr(MoveStore, "all_carried", noted)
    await move(api, "new")
    assert was_folded
    assert all(was_folded)


def a_state(seed: int, dim: int = 3) -> LearnerState:
    rng = np.random.default_rng(seed)
    rows, values = rng.normal(size=(4, dim)), rng.normal(size=4)
    return LearnerState(4, ridge_sums.of(rows, values, np.ones(4, dtype=bool)))


@pytest.mark.rest
def test_a_learner_that_cannot_be_read_or_carried_keeps_no_other_from_it(caplog: pytest.LogCaptureFixture):
    spaces = Spaces({}, {UID: {1: SpaceMap(1, np.eye(2, 3))}})
    good = [state_to_bytes(a_state(seed)) for seed in (1, 2)]
    stored = [StoredLearner(data) for data in (good[0], b"\xff" * 90, state_to_bytes(a_state(3, 9)), good[1])]
    # private: states that no fold makes
    writes = bandit_moves._writes(UID, ["a", "broken", "large", "d"], stored, spaces, 1)
    assert [write.name for write in writes] == ["a", "d"]
    assert caplog.text.count("cannot be carried") == 2


@pytest.mark.rest
def test_entries_that_hold_a_state_are_folded_as_many_at_a_time_as_their_dimension_allows():
    content = StateEntry(state_to_bytes(a_state(1, 32)))
    log = [entry_of(n, LearnerId(UID, f"u{n}"), content) for n in range(500)]
    assert [len(each) for each in batches(log)] == [500]


@pytest.mark.rest
def test_entries_of_a_move_make_no_prior_due():
    """A fit for each partition would make every process read every learner again."""
    terms = Spaces({}, {UID: {1: SpaceMap(1, np.eye(3))}})
    reward = RewardEntry(vector_to_bytes(np.ones(3)), 1.0)
    contents = [(MOVED, MoveEntry(1)), ("u", reward), ("u", ForgetEntry())]
    log = [entry_of(n, LearnerId(UID, name), content) for n, (name, content) in enumerate(contents)]
    before = {LearnerId(UID, f"u{n}"): CheckpointedLearner(a_state(n)) for n in range(3)}
    assert fold_stored(before, log, terms).counts == {UID: FoldedCounts(2, 1)}
    assert UID not in fold_stored(before, log[:1], terms).counts
