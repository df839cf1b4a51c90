"""What every policy does, whichever it is.

Frequencies are rejected beyond the 1e-7 quantile of the chi-square distribution.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, ClassVar

import numpy as np
import pytest
from scipy import stats

from app.bandits.bandit import Bandit
from app.filters.filter import parse
from app.platform.errors import Invalid, NoArms
from app.policies.base import Policy
from app.rewards.reward_entries import Reward
from app.selection.list_limits import AtMost
from app.selection.request import ChooseRequest
from app.selection.rules import Diverse, Pin, Rules
from app.serving.choice import Choice
from shortlist_service.testing.headless_service import HeadlessService
from shortlist_service.testing.shop import ARMS, MEANS, ids, maker, number, open_shop, teach

ALARM = 1e-7
DRAWS = 2_000


@pytest.mark.anyio
class PolicyContract:
    """Give it a fixture ``policy``: a `Policy` that ``policies.registry`` lists.

    ``settings``: what its bandits need besides. ``settling``: what it needs to explore less with time.
    """

    settings: ClassVar[dict[str, Any]] = {}

    @pytest.fixture
    def settling(self) -> dict[str, Any]:
        return {}

    @pytest.fixture
    async def bandit(self, service: HeadlessService, policy: Policy) -> Bandit:
        """A bandit of the policy that has learned a little."""
        await open_shop(service)
        bandit = await self.made(service, policy, exploration=1.0)
        await teach(service, bandit, np.random.default_rng(4).choice(ARMS, 20))
        return bandit

    async def made(self, service: HeadlessService, policy: Policy, **settings: Any) -> Bandit:
        options = {"policy": policy.name, "scope": "global", **self.settings, **settings}
        return await service.bandit(f"b-{policy.name}", "shop", **options)

    async def chosen(self, service: HeadlessService, bandit: Bandit, **request: Any) -> Choice:
        return await service.parts.choosing.choose(bandit, ChooseRequest(**request))

    async def test_constraints_hold(self, service: HeadlessService, bandit: Bandit) -> None:
        for seed in range(12):
            choice = await self.chosen(
                service,
                bandit,
                k=4,
                seed=seed,
                exclude=["a1", "a5"],
                arm_filter=parse({"even": False}),
                rules=Rules([Pin("a2", 2)], [AtMost("maker", 2)]),
            )
            arms = ids(choice)
            assert (arms[1], choice.arms[1].pinned) == ("a2", True)
            assert all(number(arm) % 2 for arm in arms if arm != "a2")
            assert not {"a1", "a5"} & set(arms)
            assert len(set(arms)) == len(arms)
            assert max(Counter(map(maker, arms)).values()) <= 2

    async def test_a_list_has_every_eligible_arm_once_and_no_more(
        self, service: HeadlessService, bandit: Bandit
    ) -> None:
        for seed in range(12):
            assert sorted(ids(await self.chosen(service, bandit, k=100, seed=seed))) == sorted(ARMS)
        few = await self.chosen(service, bandit, k=5, arm_filter=parse({"maker": "m1", "even": True}))
        assert set(ids(few)) == {"a4", "a10"}
        with pytest.raises(NoArms):
            await self.chosen(service, bandit, exclude=ARMS)

    async def test_a_seed_repeats_and_a_dry_run_is_the_choice(
        self, service: HeadlessService, bandit: Bandit
    ) -> None:
        dry = await service.parts.dry_runs.run(bandit, ChooseRequest(k=3, seed=5))
        first = await self.chosen(service, bandit, k=3, seed=5)
        again = await self.chosen(service, bandit, k=3, seed=5)
        assert [arm.id for arm in dry.arms] == ids(first) == ids(again)

    async def test_arms_come_as_often_as_their_propensities_say(
        self, service: HeadlessService, policy: Policy, bandit: Bandit
    ) -> None:
        """Of each list, the product of its propensities; lists that were never drawn have the rest."""
        choice = await self.chosen(service, bandit, k=2)
        assert [arm.propensity is not None for arm in choice.arms] == [policy.has_propensities] * 2
        if not policy.has_propensities:
            return
        counts, claimed = Counter[tuple[str, ...]](), dict[tuple[str, ...], float]()
        limited = {"k": 2, "exclude": ["a3"], "rules": Rules(at_most=[AtMost("maker", 1)])}
        for seed in range(DRAWS):
            choice = await self.chosen(service, bandit, seed=seed, **limited)
            product = float(np.prod([arm.propensity or 0.0 for arm in choice.arms]))
            assert claimed.setdefault(tuple(ids(choice)), product) == pytest.approx(product)
            counts[tuple(ids(choice))] += 1
        usual = [order for order in claimed if claimed[order] * DRAWS >= 10]
        assert len(usual) > 3
        observed = [*(counts[order] for order in usual), DRAWS - sum(counts[order] for order in usual)]
        expected = [DRAWS * claimed[order] for order in usual]
        expected.append(DRAWS - sum(expected))
        if expected[-1] < 1e-6:
            observed, expected = observed[:-1], expected[:-1]
        assert stats.chisquare(observed, expected).pvalue > ALARM
        wrong = np.sqrt(expected)  # a broken variant is noticed
        assert stats.chisquare(observed, DRAWS * wrong / wrong.sum()).pvalue < ALARM

    async def test_only_lists_in_the_order_of_scores_can_be_diverse(
        self, service: HeadlessService, policy: Policy, bandit: Bandit
    ) -> None:
        diverse: dict[str, Any] = {"k": 5, "rules": Rules(diverse=Diverse(0.9, "features"))}
        if not policy.lists_by_score:
            with pytest.raises(Invalid, match="diverse cannot be combined"):
                await self.chosen(service, bandit, **diverse)
            return
        reordered = False
        for seed in range(6):
            choice = await self.chosen(service, bandit, k=5, seed=seed)
            scores = [arm.score for arm in choice.arms]
            assert scores == sorted(scores, reverse=True)
            reordered |= ids(await self.chosen(service, bandit, seed=seed, **diverse)) != ids(choice)
        assert reordered

    async def test_it_earns_more_than_chance(
        self, service: HeadlessService, policy: Policy, settling: dict[str, Any]
    ) -> None:
        """Of arms at random the mean of 60 rounds has a standard error of .076: above .4 once in 1e7."""
        await open_shop(service)
        bandit = await self.made(service, policy, exploration=1.0, horizon=120, **settling)
        rng, earned = np.random.default_rng(6), list[float]()
        for _ in range(120):
            choice = await self.chosen(service, bandit, seed=int(rng.integers(2**32)))
            mean = MEANS[ids(choice)[0]]
            earned.append(mean)
            reward = Reward(choice.decision, mean + 0.3 * float(rng.normal()))
            await service.parts.rewards.wait(await service.parts.rewards.reward([reward]))
        best, chance = max(MEANS.values()), float(np.mean(list(MEANS.values())))
        assert (np.mean(earned[-60:]) - chance) / (best - chance) > 0.4
