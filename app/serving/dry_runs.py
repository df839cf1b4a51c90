"""Dry runs: what a choice would be now, with estimates and reasons, without making a decision."""

from __future__ import annotations

import time
from functools import partial

import msgspec
import numpy as np

from app.bandits.bandit import Bandit
from app.learners.learned_priors import LearnedPriors
from app.learners.served_effects import ServedEffects
from app.platform.answer_memory import hold
from app.platform.documents import Answer
from app.platform.errors import Invalid
from app.platform.pools import REQUESTS
from app.replication.sync import Sync
from app.rewards.tokens import new_decision_id
from app.selection.computing import generator, generator_at
from app.selection.request import ChooseRequest
from app.selection.selection import Selection, SelectionRequest, measured
from app.serving.choice import ARM_BYTES, ChosenArm, RankedCandidate, arms_of, described
from app.serving.pipeline import Pipeline
from app.storage.arms import ArmStore


class DryRunArm(ChosenArm, frozen=True, omit_defaults=True, gc=False, kw_only=True):
    """``estimate``: the reward that the learner expects of the arm. ``width``: the standard deviation of the
    estimate. ``draw``: the drawn value of the arm, of policies which choose by such values; null of others,
    of pinned arms, of a baseline and of the holdout. ``prior``: the part of the estimate shared by a new key,
    by the learned prior; the rest is from this key's rewards. ``effect``: the arm's part beyond its features,
    for all keys. ``age``: what its age adds, a part of ``effect``. All absent without. ``place``: how
    likely its place is looked at, by which the estimate is multiplied there; absent without ``position``.
    """

    estimate: float  # x.theta^
    width: float  # sigma ||x||_{V^-1}, and the deviation of the effect
    draw: float | None  # x.theta~
    prior: float | None = None
    effect: float | None = None
    place: float | None = None
    age: float | None = None


class DryRun(Answer, frozen=True, omit_defaults=True, gc=False):
    """As a choice, without a decision."""

    arms: list[DryRunArm]
    policy: str
    learner_version: int
    catalogue_version: int
    exact: bool
    bandit_version: int
    stale_s: float | None = None
    eligible: int | None = None
    group: str | None = None
    weights: dict[str, float] | None = None
    prior_version: int | None = None
    effects_version: int | None = None
    unknown: int = 0
    ranking: list[RankedCandidate] | None = None


class DryRuns:
    """Dry runs of all bandits."""

    def __init__(
        self, arms: ArmStore, pipeline: Pipeline, sync: Sync, priors: LearnedPriors, effects: ServedEffects
    ) -> None:
        self._effects = effects
        self._arms = arms
        self._pipeline = pipeline
        self._sync = sync
        self._priors = priors
        self._rng = np.random.default_rng()

    async def run(self, bandit: Bandit, request: ChooseRequest) -> DryRun:
        """The choice which ``Choosing.choose`` would make now. Nothing is decided, kept, logged or counted.

        Cost: about as a choice, and d^2 for each arm. Raises as ``choose``, and Invalid for options of
        decisions alone.
        """
        _check(request)
        candidates = request.candidates
        hold(request.k * ARM_BYTES)
        learner, context = bandit.learner_for(request.key), bandit.encoded(request.context)
        bandit = await self._effects.serving(await self._priors.serving(bandit))
        bandit = bandit.weighed(request.weights)
        stale_s = self._sync.stale_s() and await self._sync.confirm()
        # A new id, as a decision would have one: for a global bandit without event and seed the id draws the
        # group.
        group = request.group(bandit, new_decision_id())
        rng = self._rng if request.seed is None else generator(request.seed, bandit.name, request.key)
        now_ms = time.time_ns() // 1_000_000
        asked = request.selection(bandit, learner, context, rng, time_ms=now_ms, dry_run=True)
        state = rng.bit_generator.state if request.ranks else None
        asked, selection = await self._pipeline.preview(request, asked, group)
        snapshot = selection.snapshot
        arms = await _measured(asked, selection)
        if request.include:
            (arms,) = await described(self._arms, [bandit.catalogue.uid], [arms], [request])
        return DryRun(
            arms=arms,
            policy=bandit.record.policy,
            learner_version=snapshot.learner_version,
            catalogue_version=snapshot.catalogue_version,
            exact=selection.hits.exact,
            bandit_version=bandit.version.number,
            stale_s=round(stale_s, 3) or None,
            eligible=None if asked.arm_filter is None else snapshot.arms.plain.eligible_count,
            group=group,
            weights=bandit.weights,
            prior_version=bandit.prior_version,
            effects_version=bandit.effects_version,
            unknown=0 if candidates is None else len(candidates.ids) - asked.whole.size,
            ranking=None
            if state is None
            else await self._pipeline.ranking(asked, selection, group, generator_at(state)),
        )


def _check(request: ChooseRequest) -> None:
    if request.event_id is not None:
        raise Invalid("event_id cannot be used in a dry run, which makes no decision", path=("event_id",))
    if not request.activate:
        raise Invalid("activate cannot be used in a dry run, which makes no decision", path=("activate",))


async def _measured(request: SelectionRequest, selection: Selection) -> list[DryRunArm]:
    """The arms of a dry run. Raises Unavailable (too much waits already)."""
    bandit, snapshot, rows = request.bandit, selection.snapshot, selection.hits.rows
    measure = partial(measured, request, snapshot, rows)
    measured_arms = await REQUESTS.run(measure)
    arms = arms_of(request, selection, list(map(snapshot.arms.id_of, rows.tolist())))
    return [
        DryRunArm(
            *msgspec.structs.astuple(arm),
            estimate=estimate,
            width=width,
            draw=arm.score if selection.drawn and not arm.pinned else None,
            prior=prior,
            effect=effect,
            place=None if bandit.record.position is None else bandit.examination_at(position),
            age=age,
        )
        for position, (arm, estimate, width, prior, effect, age) in enumerate(
            zip(
                arms,
                measured_arms.estimates.tolist(),
                measured_arms.widths.tolist(),
                measured_arms.priors,
                measured_arms.effects,
                measured_arms.ages,
                strict=True,
            )
        )
    ]
