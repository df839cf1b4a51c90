"""Choosing arms: draw a parameter from the learner's posterior, search the catalogue, sign the decision.

For a learner in memory nothing is awaited, except that a search known to be long goes to a thread.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import msgspec
import numpy as np

from app.algorithms.linear import sub_ts
from app.algorithms.linear.ridge import Posterior
from app.algorithms.types import NO_ROWS, MipsSolver, Rows, TopK, Vector
from app.errors import NoArms
from app.services.bandits.bandits import Bandit, partition_of
from app.services.bandits.shifted import observed, observed_theta
from app.services.catalogues.adaptive_solver import COPIES, ExactSolver, IndependentSolvers, NeverNull, ladder
from app.services.catalogues.learner_view import LearnerView
from app.services.choosing import softmax
from app.services.choosing.elimination import Decided, Eliminating
from app.services.choosing.softmax import Drawn
from app.services.choosing.warm_up import CentersFirst, Exploring
from app.services.learning.decisions import Decisions
from app.services.learning.learners import Learners
from app.services.learning.tokens import Decision, TokenSigner, new_decision_id
from app.services.replicas.sync import Following
from app.storage.protocol import Store

LONG_SEARCH_US = 2_000.0
LONG_DRAW_DIM = 1_024
LOGGED_TOGETHER = 100
LONG_SCAN = 200_000  # numbers: a millisecond, with what is drawn for every arm


@dataclass(frozen=True, slots=True)
class ChooseRequest:
    """What a caller asks of a bandit."""

    key: str | None = None
    k: int = 1
    exclude: Sequence[str] = ()
    event_id: str | None = None
    seed: int | None = None
    activate: bool = True
    arms: Sequence[str] | None = None  # these, in this order, instead of a search: a baseline


class ChosenArm(msgspec.Struct, frozen=True, omit_defaults=True):
    """``propensity`` where it is known: of softmax, given the arms before this one."""

    id: str
    score: float
    propensity: float | None = None


class Choice(msgspec.Struct, frozen=True, omit_defaults=True):
    """The answer to a ChooseRequest; the best arm first, of softmax in the order drawn.

    ``stale_s`` is left out unless nothing was heard of the store for so long: what it holds may be newer.
    """

    decision: str
    arms: list[ChosenArm]
    policy: str
    learner_version: int
    catalogue_version: int
    exact: bool
    stale_s: float | None = None


@dataclass(frozen=True, slots=True)
class ShortlistSolver:
    """The solver of Sub-TS: a graph proposes at least ``shortlist`` arms, which are scored again exactly."""

    view: LearnerView
    shortlist: int

    def search(self, query: Vector, k: int, exclude: Rows = NO_ROWS) -> TopK:
        if self.view.kind != "hnsw" or self.shortlist <= k:
            return self.view.search(query, k, exclude)
        found = self.view.search(query, self.shortlist, exclude)
        return TopK(found.rows[:k], found.scores[:k], found.exact)


def solver_for(bandit: Bandit, view: LearnerView, independent: IndependentSolvers) -> MipsSolver:
    record = bandit.record
    if record.policy == "linear_ts":
        return ExactSolver(view)
    if record.solver == "adaptive":
        return _adaptive(bandit, view, independent)
    if record.shortlist > bandit.catalogue.shortlist:
        return ShortlistSolver(view, record.shortlist)
    return view


def _adaptive(bandit: Bandit, view: LearnerView, independent: IndependentSolvers) -> MipsSolver:
    solvers = [bandit.seen(solver) for solver in independent.of(bandit.catalogue, view.plain)]
    return NeverNull(ladder(solvers, view.features_of, largest_norm=view.largest_norm, eta=bandit.eta), view)


class Choosing:
    """The decisions of all bandits."""

    def __init__(
        self,
        store: Store,
        learners: Learners,
        eliminating: Eliminating,
        signer: TokenSigner,
        decisions: Decisions,
        *,
        following: Following,
        independent: IndependentSolvers,
        token_ttl_ms: int,
    ) -> None:
        self._store = store
        self._learners = learners
        self._eliminating = eliminating
        self._signer = signer
        self._decisions = decisions
        self._following = following
        self._independent = independent
        self._token_ttl_ms = token_ttl_ms
        self._exploring = Exploring(store, ttl_ms=token_ttl_ms)
        self._rng = np.random.default_rng()

    async def choose(self, bandit: Bandit, request: ChooseRequest) -> Choice:
        """Choose. Raises NoArms, Invalid (key against scope), Unavailable (a learner not in memory)."""
        choice = await self.decide(bandit, request)
        if bandit.record.reward.wait_s is not None:
            await self._decisions.log(bandit, choice.decision)
        return choice

    async def decide(self, bandit: Bandit, request: ChooseRequest) -> Choice:
        """``choose``, but who waits for rewards has yet to ``log`` it before anybody sees it."""
        name = bandit.learner_for(request.key)
        if request.event_id is None:
            return await self._choose(bandit, name, request)
        return await self._choose_once(bandit, name, request, request.event_id)

    async def log(self, bandit: Bandit, choices: Sequence[Choice]) -> None:
        """Log decisions of a bandit that waits for rewards, side by side; nothing for other bandits."""
        if bandit.record.reward.wait_s is not None:
            for start in range(0, len(choices), LOGGED_TOGETHER):
                batch = choices[start : start + LOGGED_TOGETHER]
                await asyncio.gather(*(self._decisions.log(bandit, choice.decision) for choice in batch))

    async def _choose_once(self, bandit: Bandit, name: str, request: ChooseRequest, event_id: str) -> Choice:
        """The choice that was first made for this event, whoever asks again, and with whatever else."""
        partition = partition_of(bandit.uid, name, self._store.partitions)
        learner = f"{bandit.uid}/{name}"
        made = await self._store.get_event(partition, learner, event_id)
        if made is None:
            choice = msgspec.msgpack.encode(await self._choose(bandit, name, request))
            made = await self._store.put_event(
                partition, learner, event_id, choice, ttl_ms=self._token_ttl_ms
            )
        return msgspec.msgpack.decode(made, type=Choice)

    async def _choose(self, bandit: Bandit, name: str, request: ChooseRequest) -> Choice:
        stale_s = self._following.stale_s() and await self._following.confirm()
        made = await self._decide(bandit, name, request)
        found, view = made.found, made.view
        if not len(found.rows):
            raise NoArms("no arm of the catalogue is eligible")
        rows = found.rows.tolist()
        ids = [view.id_of(row) for row in rows]
        now_ms = time.time_ns() // 1_000_000
        token = self._signer.sign(
            Decision(
                bandit.uid,
                name,
                new_decision_id(),
                now_ms,
                now_ms + self._token_ttl_ms,
                ids,
                [view.revision_of(row) for row in rows],
                not request.activate,
            )
        )
        scores = found.scores.tolist()
        if made.propensities is None:
            arms = list(map(ChosenArm, ids, scores))
        else:
            arms = list(map(ChosenArm, ids, scores, made.propensities))
        versions = made.learner_version, made.catalogue_version
        return Choice(token, arms, bandit.record.policy, *versions, found.exact, round(stale_s, 3) or None)

    async def _decide(self, bandit: Bandit, name: str, request: ChooseRequest) -> Decided:
        if bandit.eliminates and request.arms is None:
            rng = self._generator(bandit, request)
            return await self._eliminating.choose(bandit, name, k=request.k, exclude=request.exclude, rng=rng)
        learner = self._learners.cached(bandit, name) or await self._learners.get(bandit, name)
        posterior = learner.posterior or await self._learners.posterior(bandit, learner)
        catalogue_version = bandit.catalogue.version
        view = bandit.snapshot()
        if bandit.record.policy == "softmax" and request.arms is None:
            drawn = await self._draw(bandit, posterior, view, request)
            propensities = drawn.propensities.tolist()
            return Decided(drawn.found, view, learner.version, catalogue_version, propensities)
        solver = solver_for(bandit, view, self._independent)
        if bandit.record.explore is not None and request.arms is None:
            centers = await self._exploring.turn(
                bandit, name, learner.version, view, count=request.k, claim=request.event_id
            )
            solver = CentersFirst(view, solver, centers)
        found = await self._search(bandit, posterior, solver, view, request)
        if bandit.record.shift_rewards:
            found = observed(found)
        return Decided(found, view, learner.version, catalogue_version)

    async def _draw(
        self, bandit: Bandit, posterior: Posterior, view: LearnerView, request: ChooseRequest
    ) -> Drawn:
        """Temperature and scores are in the scale of rewards, also when these are shifted."""
        theta, offset = posterior.theta, 0.0
        if bandit.record.shift_rewards:
            theta, offset = observed_theta(theta)
        draw = partial(
            softmax.draw,
            view.plain,
            theta,
            k=request.k,
            temperature=bandit.record.temperature or 1.0,
            rng=self._generator(bandit, request),
            exclude=view.rows_of(request.exclude) if request.exclude else NO_ROWS,
        )
        drawn = await asyncio.to_thread(draw) if view.size * view.view.dim > LONG_SCAN else draw()
        found = TopK(drawn.found.rows, drawn.found.scores + offset, exact=True)
        return Drawn(found, drawn.propensities)

    async def forget(self, bandit: Bandit, name: str) -> None:
        """Forget what a learner was shown; what it has learned is for ``Rewards.forget``."""
        await self._exploring.forget(bandit, name)

    async def _search(
        self,
        bandit: Bandit,
        posterior: Posterior,
        solver: MipsSolver,
        view: LearnerView,
        request: ChooseRequest,
    ) -> TopK:
        exclude = view.rows_of(request.exclude) if request.exclude else NO_ROWS
        if request.arms is not None:
            return _given(posterior, view, request, exclude)
        rng = self._generator(bandit, request)
        choose = partial(
            sub_ts.choose,
            posterior,
            solver,
            k=request.k,
            exploration=bandit.exploration,
            rng=rng,
            exclude=exclude,
        )
        searches = 1 + COPIES * (bandit.record.solver == "adaptive")
        if view.expected_us * searches > LONG_SEARCH_US or bandit.catalogue.dim > LONG_DRAW_DIM:
            return await asyncio.to_thread(choose)
        return choose()

    def _generator(self, bandit: Bandit, request: ChooseRequest) -> np.random.Generator:
        return self._rng if request.seed is None else _seeded(request.seed, bandit.name, request.key)


def _given(posterior: Posterior, view: LearnerView, request: ChooseRequest, exclude: Rows) -> TopK:
    """The arms that were asked for, as far as they are there, with their estimated rewards."""
    each = [view.rows_of([arm]) for arm in request.arms or ()]
    there = np.concatenate([NO_ROWS, *each])
    rows = there[~np.isin(there, exclude)][: request.k]
    return TopK(rows, view.features_of(rows) @ posterior.theta, exact=True)


def _seeded(seed: int, bandit: str, key: str | None) -> np.random.Generator:
    """A generator that depends on the seed and on who asks, so that keys do not share their noise."""
    digest = hashlib.blake2b(f"{seed}/{bandit}/{key}".encode(), digest_size=16).digest()
    return np.random.default_rng(int.from_bytes(digest, "little"))
