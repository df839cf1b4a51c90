"""Explanations of decisions: the log row, and the choice made again from its seed.

A choice can be made again while all of its inputs are unchanged:

    bandit      the version of the decision is still kept, and of the same catalogue
    request     not too large to be logged
    prior       the version of the learned prior is kept
    effects     the version of the arm effects is kept
    learner     no reward came since
    catalogue   no arm came, went or changed since
    barred      the arms barred by quotas and frequency caps are known
    candidates  those of its request are kept
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np

from app.bandits.bandit import Bandit
from app.bandits.served_bandits import Bandits
from app.bandits.settings import PositionRule
from app.catalogues.candidates import CandidateList
from app.catalogues.catalogues import Catalogues
from app.decision_log.reading import DecisionLog, LoggedChoice
from app.decision_log.rows import NO_LOG, NOTHING_BARRED, LoggedArm, Row
from app.filters.filter import none_of, parse
from app.learners.learned_priors import LearnedPriors
from app.learners.served_effects import ServedEffects
from app.measuring.reasons import MOST_ROWS, KeyRewards, Reason, has_reasons, rewards_of
from app.platform.errors import Invalid, NoArms, NotFound
from app.platform.pools import REQUESTS
from app.records.logged import LoggedRequest
from app.selection.computing import generator
from app.selection.request import ChooseRequest
from app.selection.selection import Selection, SelectionRequest, measured
from app.serving.constraints.base import View
from app.serving.pipeline import Pipeline
from shortlist.types import Matrix, Vector

MOST_CANDIDATES = 100
MOST_TERMS = 10
NOT_LOGGED = (
    "the decision is not in the log of this bandit; a new one is there about half a second after its choice"
)

ChangedInput = Literal[
    "bandit", "request", "prior", "effects", "learner", "catalogue", "barred", "candidates"
]


@dataclass(frozen=True, slots=True)
class Term:
    """The part of an estimate from one number of an arm, named by ``column``."""

    column: str
    value: float


@dataclass(frozen=True, slots=True)
class Candidate:
    """``width``: how uncertain the estimate is, sigma (x^T V^-1 x)^(1/2) for the used noise sigma; with arm
    effects the root of the sum of its square and the squared deviation of the effect. ``place``: from 1; null
    if not chosen. ``prior``: the part of the estimate shared by a new key, by the learned prior; null without
    one. ``effect``: the arm's part beyond its features; null without arm effects. ``terms``: the largest
    parts of the estimate, where the catalogue says what its features are, or the bandit has ``match``; null
    elsewhere. ``because``: the arms of this key whose rewards add most to the estimate, of a chosen arm; null
    where the log does not tell. ``examined``: how likely its place is looked at, a factor of the estimate
    there; null without ``position``, and for an arm outside of the choice. ``age``: what its age adds, a part
    of ``effect``; null without.
    """

    id: str
    estimate: float
    width: float
    place: int | None
    prior: float | None = None
    effect: float | None = None
    terms: list[Term] | None = None
    because: list[Reason] | None = None
    examined: float | None = None
    age: float | None = None


@dataclass(frozen=True, slots=True)
class Explanation:
    """``repeated``: whether the choice, made again from its ``seed``, is the same; null: the choice cannot be
    made again, for what has ``changed``; then there are no candidates. ``asked``: null if too large to be
    kept.

    ``seeded``: the request had the seed; else it was drawn. ``candidates``: the arms of highest estimate and
    those of the decision, the highest first.
    """

    row: Row
    asked: LoggedRequest | None
    seed: int
    seeded: bool
    changed: list[ChangedInput]
    repeated: bool | None
    candidates: list[Candidate]


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanations:
    """Explains logged decisions."""

    bandits: Bandits
    catalogues: Catalogues
    log: DecisionLog
    pipeline: Pipeline
    priors: LearnedPriors
    effects: ServedEffects

    async def explain(self, bandit: Bandit, token: str) -> Explanation:
        """Explain the decision of this token. Cost: about as a choice, and two reads of the store.

        Raises NotFound (a decision outside of the bandit's log), Unavailable.
        """
        logged = await self.log.find(bandit, token)
        if logged is None:
            raise NotFound(NO_LOG if bandit.record.log is None else NOT_LOGGED)
        changed, again, candidates = await self._again(bandit, logged)
        return Explanation(
            row=logged.row,
            asked=logged.asked,
            seed=logged.part.seed,
            seeded=logged.part.seeded,
            changed=changed,
            repeated=None if changed else again == [arm.id for arm in logged.row.arms],
            candidates=candidates,
        )

    async def _again(
        self, bandit: Bandit, logged: LoggedChoice
    ) -> tuple[list[ChangedInput], Sequence[str], list[Candidate]]:
        """The changed inputs; without any, the arms of the choice made again, and the candidates."""
        row, part = logged.row, logged.part
        bandit_then = await self.bandits.find(bandit.uid, row.bandit_version)
        if bandit_then is None or bandit_then.former is not None:  # it was moved since
            return ["bandit"], [], []
        reasons: dict[ChangedInput, bool] = {
            "request": logged.asked is None,
            "barred": row.barred is None,
            "candidates": row.candidates is None,
        }
        changed = [name for name, holds in reasons.items() if holds]
        with_prior = await self.priors.then(bandit_then, part.prior_version)
        with_both = with_prior and await self.effects.then(with_prior, part.effects_version)
        if with_both is None:
            changed.append("prior" if with_prior is None else "effects")
        bandit_then = with_both or bandit_then
        if changed or logged.asked is None:
            return changed, [], []
        try:
            request, selection = await selected_again(self.pipeline, bandit_then, logged, logged.asked)
        except (NoArms, Invalid):
            return ["catalogue"], [], []
        snapshot = selection.snapshot
        if snapshot.learner_version != row.learner_version:
            changed.append("learner")
        if snapshot.catalogue_version != row.catalogue_version:
            changed.append("catalogue")
        if changed:
            return changed, [], []
        again = [snapshot.arms.id_of(position) for position in selection.hits.rows.tolist()]
        rewards = None
        if has_reasons(bandit_then):
            rows = await self.log.of_learner(bandit_then, logged.decision.identity.learner, MOST_ROWS)
            rewards = await rewards_of(self.catalogues, bandit_then, rows)
        find = partial(_candidates, request, selection, row.arms, rewards)
        return [], again, await REQUESTS.run(find)


async def selected_again(
    pipeline: Pipeline, bandit: Bandit, logged: LoggedChoice, asked: LoggedRequest
) -> tuple[SelectionRequest, Selection]:
    """The request of a logged choice, and its selection now. Nothing is decided.

    ``bandit``: as it was then. It must not warm up new keys, which takes a slot. ``asked``: the request in
    the log. Raises NoArms, Invalid (a pinned arm is gone), Unavailable.
    """
    decision, part = logged.decision, logged.part
    key = decision.learner if bandit.record.scope == "per_key" else None
    arm_filter = None if asked.filter is None else parse(asked.filter)
    choice = ChooseRequest.of(
        asked,
        arm_filter,
        key=key,
        seed=part.seed if part.seeded else None,
        candidates=None if logged.candidates is None else CandidateList.of_logged(logged.candidates),
    )
    request = choice.selection(
        bandit.weighed(decision.weights),
        decision.identity.learner,
        decision.encoded_context,
        generator(part.seed, bandit.name, key),
        time_ms=decision.issued_ms,
        dry_run=True,
    )
    # What quotas and frequency caps left then.
    barred = logged.row.barred or NOTHING_BARRED
    filters = [parse(dict(document)) for document in barred.filters]
    stood = {arm.id for arm in logged.row.arms if arm.pinned}
    left = View(
        arm_filter=none_of(filters) if filters else None,
        exclude=barred.arms,
        unpinned=set(choice.rules.pinned) - stood,
    )
    return await pipeline.remade(choice, request, part.group, left)


def _candidates(
    request: SelectionRequest, selection: Selection, shown: Sequence[LoggedArm], rewards: KeyRewards | None
) -> list[Candidate]:
    """Arms with their estimates and widths. Cost: one search, and d^2 for each arm."""
    chosen = [arm.id for arm in shown]
    snapshot = selection.snapshot
    arms = snapshot.arms
    count = min(max(request.bandit.record.shortlist, len(chosen)), MOST_CANDIDATES)
    rows = arms.search(snapshot.posterior.theta, count, request.excluded(arms)).rows
    rows = np.unique(np.concatenate((rows, arms.rows_of(chosen))))
    measures = measured(request, snapshot, rows)
    places = {arm: number for number, arm in enumerate(chosen, start=1)}
    examined = {arm.id: arm.examined for arm in shown}  # as the token has it: learned of then
    if isinstance(request.bandit.record.position, PositionRule):
        examined = {arm: request.bandit.examination_at(place - 1) for arm, place in places.items()}
    order = np.argsort(-measures.estimates, kind="stable").tolist()
    ids = [arms.id_of(row) for row in rows.tolist()]
    theta = arms.catalogue_query(snapshot.posterior.theta)
    terms = _terms(request.bandit.columns, theta, arms.plain.features_of(rows))
    because = dict[str, list[Reason]]()
    if rewards is not None:
        own = arms.rows_of(chosen)
        reasons = rewards.reasons(snapshot.posterior, arms.features_of(own))
        because = dict(zip(map(arms.id_of, own.tolist()), reasons, strict=True))
    return [
        Candidate(
            ids[position],
            float(measures.estimates[position]),
            float(measures.widths[position]),
            places.get(ids[position]),
            measures.priors[position],
            measures.effects[position],
            terms[position],
            because.get(ids[position]),
            examined.get(ids[position]),
            measures.ages[position],
        )
        for position in order
    ]


def _terms(columns: Sequence[str] | None, theta: Vector, features: Matrix) -> Sequence[list[Term] | None]:
    """The largest terms of each arm. Shapes: theta (d,), features (n, d)."""
    if columns is None:
        return [None] * len(features)
    result = list[list[Term] | None]()
    for parts in features * theta:
        largest = np.argsort(-np.abs(parts), kind="stable")[:MOST_TERMS].tolist()
        result.append([Term(columns[column], float(parts[column])) for column in largest if parts[column]])
    return result
