"""/v1/bandits/{b}/log/rewards, …/arms, …/priors, …/terms: the rewards, arms and terms of learners, read as
they grow.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from fastapi import Query, Response
from pydantic import Field

from app.api.fields import INTEGER, Cursor, Limit
from app.api.streamed_answers import Streamed, with_rows
from app.api.strict_json import JSON, Provided, json_router
from app.bandits.prior_version import PriorVersionView, exported
from app.bandits.served_bandits import Bandits
from app.bandits.spaces import Moves, SpaceMap
from app.catalogues.arm_pages import NUMBER_BYTES
from app.catalogues.catalogues import Catalogues
from app.learners.learned_priors import LearnedPriors
from app.platform.answer_memory import hold
from app.platform.cursors import decode_cursor, decode_number, encode_cursor
from app.platform.documents import Answer
from app.rewards.learned_log import PAGE_NUMBERS, ArmRevision, LearnedLog, LearnedReward

router = json_router(prefix="/v1/bandits", tags=["measuring"])

Partition = Annotated[int, INTEGER, Field(ge=0, lt=1_024)]


class LearnedPageView(Answer, frozen=True):
    """Entries of one partition, and their arms if asked for.

    ``position``: the cursor to go on from at any time; ``next``: the same, null when there is no more now.

    ``missing``: entries, of any bandit, trimmed before they could be read from here, or erased with a
    forgotten learner.
    """

    items: list[LearnedReward]
    arms: list[ArmRevision]
    next: str | None
    position: str
    missing: int


class RevisionsView(Answer, frozen=True):
    """Arms by their revisions. ``position``, ``next``: as with rewards."""

    items: list[ArmRevision]
    next: str | None
    position: str | None


class LearnedMoveView(Answer, frozen=True):
    """A move of a bandit to another catalogue. Of what was learned before, with features of length
    ``features``: G' = T G T^T + t R and m' = T m, where T is ``transform`` (null: nothing came along), R is
    ``residual``, and t the sum of the first ``features`` numbers of the diagonal of G.
    """

    space: int
    features: int
    transform: list[list[float]] | None
    residual: list[list[float]] | None


class LearningTermsView(Answer, frozen=True):
    """The terms by which rewards become sums of a learner. ``features``: of an arm; ``context``: numbers of
    an encoded one. ``constant``: the number after them, of a bandit with an intercept, once it has learned
    anything. ``space``: how often the bandit was moved to another catalogue. ``moves``: one of them a page,
    the first one first; ``next``: null at the end.

    ``directions``: the ones which interact with the context, row by row; null: all coordinates do.
    ``match``: how many numbers stand before the constant, 0 where a reward does not bring its ``features``.
    """

    id: str
    partitions: int
    features: int
    context: int | None
    directions: list[list[float]] | None
    half_life_s: float | None
    constant: float | None
    match: int
    space: int = 0
    moves: list[LearnedMoveView] = msgspec.field(default_factory=list)
    next: str | None = None
    arm_half_life_s: float | None = None


class PriorVersionsView(Answer, frozen=True):
    """The oldest first. ``position``, ``next``: as with rewards."""

    items: list[PriorVersionView]
    next: str | None
    position: str | None


@router.get("/{bandit}/log/priors", response_model=PriorVersionsView)
async def priors(
    bandit: str,
    bandits: Provided[Bandits],
    priors: Provided[LearnedPriors],
    *,
    cursor: Cursor = None,
    limit: Limit = 100,
) -> PriorVersionsView:
    """The kept versions of the learned prior, the oldest first; none of a bandit without."""
    owner = await bandits.get(bandit)
    after = 0 if cursor is None else decode_number(cursor)
    most = max(1, min(limit, PAGE_NUMBERS // owner.learner_dim**2))
    numbers = [number for number in await priors.kept(owner) if number > after]
    versions = [await priors.version(owner.uid, number) for number in numbers[:most]]
    items = [exported(version) for version in versions if version is not None]
    position = encode_cursor(str(numbers[:most][-1])) if numbers else cursor
    return PriorVersionsView(items, position if len(numbers) > most else None, position)


@router.get("/{bandit}/log/rewards", response_model=LearnedPageView)
async def rewards(
    bandit: str,
    bandits: Provided[Bandits],
    learned_log: Provided[LearnedLog],
    *,
    partition: Annotated[Partition, Query()] = 0,
    cursor: Cursor = None,
    limit: Limit = 100,
    include: Annotated[Literal["arms"] | None, Query()] = None,
) -> LearnedPageView:
    """All rewards of the bandit's learners, logged or not, in the order of learning.

    Of one partition; with ``include=arms`` also their arms, with the features of then. SHORTLIST_REWARD_LOG_S
    says how long rewards stay at least.
    """
    owner = await bandits.get(bandit)
    page = await learned_log.page(owner, partition, cursor, limit, with_arms=include is not None)
    following = page.position if page.more else None
    return LearnedPageView(page.items, [*page.arms.values()], following, page.position, page.missing)


@router.get("/{bandit}/log/arms", response_model=RevisionsView)
async def arms(
    bandit: str,
    bandits: Provided[Bandits],
    catalogues: Provided[Catalogues],
    *,
    cursor: Cursor = None,
    limit: Limit = 100,
) -> RevisionsView:
    """The arms of the bandit's catalogue by their revisions: new and changed ones come last."""
    catalogue = (await bandits.get(bandit)).catalogue
    after = None if cursor is None else decode_cursor(cursor)
    most = max(1, min(limit, PAGE_NUMBERS // catalogue.dim))
    hold(most * catalogue.dim * NUMBER_BYTES)
    revisions = await catalogues.revisions(catalogue, after, most + 1)
    columns = revisions.ids[:most], revisions.revisions[:most], revisions.features[:most].tolist()
    items = list(map(ArmRevision, *columns))
    position = encode_cursor(revisions.places[len(items) - 1]) if items else cursor
    return RevisionsView(items, position if len(revisions.ids) > most else None, position)


@router.get("/{bandit}/log/terms", response_model=LearningTermsView)
async def terms(
    bandit: str,
    bandits: Provided[Bandits],
    learned_log: Provided[LearnedLog],
    moves: Provided[Moves],
    *,
    cursor: Cursor = None,
) -> Response:
    """The terms by which rewards become sums of a learner. They change only in a move: a bandit made again
    has another id.
    """
    owner = await bandits.get(bandit)
    context, record = owner.context, owner.record
    number = 1 if cursor is None else decode_number(cursor) + 1
    page = list[SpaceMap]()
    if number <= record.space:
        page.append((await moves.maps({owner.uid: record.space}))[owner.uid][number])
        hold(page[0].bytes)
    answer = {
        "id": owner.uid,
        "partitions": learned_log.partitions,
        "features": owner.catalogue.dim,
        "context": None if context is None else context.encoding.dim,
        "directions": None if context is None else context.directions,
        "half_life_s": record.key_half_life_s,
        "arm_half_life_s": record.arm_half_life_s,
        "constant": record.constant,
        "match": owner.match_dim,
        "space": record.space,
        "moves": [
            {
                "space": space_map.number,
                "features": space_map.left_dim,
                "transform": space_map.transform,
                "residual": space_map.residual,
            }
            for space_map in page
        ],
        "next": encode_cursor(str(number)) if number < record.space else None,
    }
    return await Streamed.of(with_rows(answer), media_type=JSON)
