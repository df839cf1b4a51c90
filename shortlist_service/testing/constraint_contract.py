"""What every constraint does, whichever it is: lists of all kinds of choices keep to it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from app.bandits.bandit import Bandit
from app.exposure_limits.rules import QuotaRule
from app.selection.request import ChooseRequest
from app.serving.choosing import BatchRequest
from shortlist_service.testing.headless_service import HeadlessService
from shortlist_service.testing.shop import ids, open_shop

Lists = Sequence[Sequence[str]]


@dataclass(frozen=True)
class ConstraintCase:
    """How a request, the settings of a bandit or a quota ask for a constraint.

    ``keep``: whether all lists of one key keep to it. ``batch``: how many choices it takes for lists that do
    not. ``counts``: whether it depends on what was shown before.
    """

    keep: Callable[[Lists], bool]
    request: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    quota: QuotaRule | None = None
    batch: int = 4
    counts: bool = False


@pytest.mark.anyio
class ConstraintContract:
    """Give it a fixture ``case``: a `ConstraintCase`."""

    @pytest.fixture
    async def bandit(self, service: HeadlessService, case: ConstraintCase) -> Bandit:
        """A bandit of one policy that draws, with the constraint."""
        await open_shop(service)
        bandit = await self.made(service, "narrowed", **case.settings)
        if case.quota is not None:
            await service.parts.quotas.put(bandit, "quota", case.quota)
        return bandit

    async def made(self, service: HeadlessService, name: str, **settings: Any) -> Bandit:
        return await service.bandit(name, "shop", policy="softmax", temperature=0.5, **settings)

    def request(self, case: ConstraintCase, **fields: Any) -> ChooseRequest:
        return ChooseRequest(key="ann", k=2, **case.request, **fields)

    async def test_every_kind_of_choice_keeps_to_it(
        self, service: HeadlessService, bandit: Bandit, case: ConstraintCase
    ) -> None:
        choosing, lists = service.parts.choosing, list[list[str]]()
        lists.append(ids(await choosing.choose(bandit, self.request(case, seed=1))))
        event = await choosing.choose(bandit, self.request(case, event_id="event", seed=2))
        again = await choosing.choose(bandit, self.request(case, event_id="event", seed=2))
        assert ids(again) == ids(event)
        lists.append(ids(event))
        requests = [BatchRequest(bandit, self.request(case, seed=seed)) for seed in range(3, 3 + case.batch)]
        lists += [ids(choice) for choice in await choosing.choose_batch(requests)]
        lists.append(ids(await choosing.choose(bandit, self.request(case, activate=False, seed=99))))
        assert all(len(arms) == 2 for arms in lists)
        assert case.keep(lists)

    async def test_without_it_some_lists_would_not(
        self, service: HeadlessService, bandit: Bandit, case: ConstraintCase
    ) -> None:
        free = await self.made(service, "free")
        requests = [BatchRequest(free, ChooseRequest(key="ann", k=2, seed=seed)) for seed in range(20)]
        choices = await service.parts.choosing.choose_batch(requests)
        assert not case.keep([ids(choice) for choice in choices])

    async def test_a_dry_run_is_the_choice_and_counts_nothing(
        self, service: HeadlessService, bandit: Bandit, case: ConstraintCase
    ) -> None:
        for _ in range(5):
            dry = await service.parts.dry_runs.run(bandit, self.request(case, seed=7))
        choice = await service.parts.choosing.choose(bandit, self.request(case, seed=7))
        assert [arm.id for arm in dry.arms] == ids(choice)

    async def test_callers_at_once_keep_to_it(
        self, service: HeadlessService, bandit: Bandit, case: ConstraintCase
    ) -> None:
        calls = [service.parts.choosing.choose(bandit, self.request(case, seed=seed)) for seed in range(5)]
        assert case.keep([ids(choice) for choice in await asyncio.gather(*calls)])

    async def test_what_counts_is_over_after_enough_choices(
        self, service: HeadlessService, bandit: Bandit, case: ConstraintCase
    ) -> None:
        """The rest of a choice that counts depends on those before it; of another it does not."""
        first = await service.parts.choosing.choose(bandit, self.request(case, seed=7))
        requests = [BatchRequest(bandit, self.request(case, seed=seed)) for seed in range(case.batch)]
        await service.parts.choosing.choose_batch(requests)
        later = await service.parts.choosing.choose(bandit, self.request(case, seed=7))
        assert (ids(first) == ids(later)) is not case.counts
