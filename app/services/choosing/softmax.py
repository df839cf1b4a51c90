"""Boltzmann exploration: every eligible arm is scored, so that propensities are exact.

Notation
    K, d        eligible arms of a snapshot, dimension
    theta^      estimate of the learner (d,)
"""

from __future__ import annotations

from functools import partial

import numpy as np

from app.indexes.snapshot import Snapshot, scores_of
from app.services.bandits.shifted import observed_theta
from app.services.choosing.computing import computed
from app.services.choosing.limits import Limits
from app.services.choosing.policy import PolicyDependencies
from app.services.choosing.selection import Drawn, ReadSnapshot, Selection, SelectionRequest
from shortlist.linear import softmax as algorithm
from shortlist.types import NO_ROWS, Rows, TopK, Vector

_NUMBER_US = 0.01  # for each number of the features, with what is drawn for every arm


async def softmax(dependencies: PolicyDependencies, request: SelectionRequest) -> Selection:
    """Draw k arms, each with p proportional to exp(score / temperature) among those that are left.

    Temperature and scores are in the scale of rewards, also when these are shifted.
    """
    snapshot = await ReadSnapshot.of(dependencies.learners, dependencies.filtered, request)
    record, theta, offset = request.bandit.record, snapshot.posterior.theta, 0.0
    if record.shift_rewards:
        theta, offset = observed_theta(theta)
    view = snapshot.view.plain
    compute = partial(
        draw,
        view,
        theta,
        k=request.k,
        temperature=record.temperature or 1.0,
        rng=request.rng,
        exclude=request.excluded(view),
        limits=request.limits(view),
    )
    drawn = await computed(compute, request, view, us=_NUMBER_US * view.size * view.view.dim)
    found = TopK(drawn.hits.rows, drawn.hits.scores + offset, exact=True)
    return Selection(found, snapshot, drawn.propensities.tolist())


def draw(
    view: Snapshot,
    theta: Vector,
    *,
    k: int,
    temperature: float,
    rng: np.random.Generator,
    exclude: Rows = NO_ROWS,
    limits: Limits | None = None,
) -> Drawn:
    """Draw min(k, K) arms. Cost: K d multiplications and O(K) more: a scan, whatever the index.

    With ``limits`` an arm that they no longer allow cannot be drawn, and the others have its share; there may
    be fewer than k arms. That takes O(1) more for every arm and each value of the limited fields that it has.
    """
    rows = view.eligible(exclude)
    scores = scores_of(view.view, rows, theta)
    if limits is None:
        drawn = algorithm.choose(scores, k=k, temperature=temperature, rng=rng)
    else:
        left = limits.over(rows)
        drawn = algorithm.choose_within(
            scores, left.take, k=k, temperature=temperature, rng=rng, barred=left.barred
        )
    found = TopK(rows[drawn.places], scores[drawn.places], exact=True)
    return Drawn(found, drawn.propensities)
