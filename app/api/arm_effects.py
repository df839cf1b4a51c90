"""/v1/bandits/{b}/arm-effects: what each arm has beyond its features, as all keys together taught it."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import msgspec
from fastapi import Query, Response
from pydantic import BaseModel

from app.api.fields import Cursor, Limit
from app.api.strict_json import JSON, Provided, json_router, reply
from app.bandits.bandit import Bandit
from app.bandits.served_bandits import Bandits
from app.catalogues.catalogues import Catalogues
from app.learners.learned_priors import LearnedPriors
from app.learners.served_effects import Order, ServedEffects, item_of, items_of, ordered, summary_of
from app.platform.cursors import decode_cursor, encode_cursor, foreign, number_in
from app.platform.errors import NotFound
from app.platform.pools import REQUESTS

LEFT_OUT = 100  # arms that a page may pass over: they were deleted

router = json_router(prefix="/v1/bandits", tags=["learners"])


class SignalEffectView(BaseModel):
    """The effect of an arm on one signal; for the fields see the whole."""

    effect: float
    sd: float


class ArmEffectView(BaseModel):
    """``effect``: how much more reward than its features say. ``sd``: the standard deviation of the effect
    about that. ``weight``: as how many rewards it has. With signals the three are of the weighted sum, and in
    ``signals`` of each.
    """

    arm: str
    effect: float
    sd: float
    weight: float
    signals: dict[str, SignalEffectView] | None = None


class SignalSpreadView(BaseModel):
    """The spread and noise of one signal; for the fields see the whole."""

    spread: float
    noise: float | None


class AgeView(BaseModel):
    """What the age of an arm adds to a reward, from so many seconds on, and how uncertain that is."""

    from_s: int
    effect: float
    sd: float


class ArmEffectsView(BaseModel):
    """The effects of arms with rewards. ``version``: 0 while nothing is found; then ``spread`` is 0, without
    items. ``spread``: the standard deviation of the effects of all arms. ``noise``: of one reward about its
    expectation; null until some arm has two. ``rewards``: number of decisions in the fit, of ``arms`` arms.
    ``places``: how likely the arm at each place of a list is looked at: learned, beside the first one, or as
    stated; null where neither. ``places_note``: why they are not learned. ``ages``: what the age of an arm
    adds, up to the oldest rewarded age; empty while no age adds anything to a choice, as after a move until
    the next fit.
    """

    version: int
    spread: float
    noise: float | None
    rewards: int
    arms: int
    signals: dict[str, SignalSpreadView] | None = None
    items: list[ArmEffectView]
    next: str | None
    places: list[float] | None
    places_note: str | None
    ages: list[AgeView]


class OneArmEffectView(ArmEffectView):
    """``version``: of the effects; 0 while nothing is found."""

    version: int


@router.get("/{bandit}/arm-effects", response_model=ArmEffectsView)
async def arm_effects(
    bandit: str,
    bandits: Provided[Bandits],
    catalogues: Provided[Catalogues],
    effects: Provided[ServedEffects],
    priors: Provided[LearnedPriors],
    *,
    order: Annotated[Order, Query()] = "largest",
    cursor: Cursor = None,
    limit: Limit = 50,
) -> Response:
    """Arms that do better than their features say, or worse, the newest ones, or those known best.

    404 of a bandit without effects. A next page is of the version of the first, if still kept. Deleted arms
    are left out: a page may have fewer items than ``limit``.
    """
    owner = await priors.serving(_with_effects(await bandits.get(bandit)))
    version = await effects.newest(owner.uid)
    start = 0
    if cursor is not None:
        number, start = _position(cursor, order)
        if version is None or version.number != number:
            version = await effects.version(owner.uid, number) or version
    summary = summary_of(owner, version)
    if version is None or not summary["version"]:
        return reply({**summary, "items": [], "next": None})
    rows = (await REQUESTS.run(partial(ordered, owner, version, order)))[start : start + limit + LEFT_OUT]
    names = [version.names[row] for row in rows.tolist()]
    arms = await catalogues.features(owner.catalogue, set(names))
    places = [index for index, name in enumerate(names) if name in arms]
    after = places[limit] if len(places) > limit else len(names)
    items = await REQUESTS.run(partial(items_of, owner, version, rows[places[:limit]].tolist()))
    more = start + after < len(version.names)
    following = encode_cursor(f"{order}/{version.number}/{start + after}") if more else None
    return Response(msgspec.json.encode({**summary, "items": items, "next": following}), media_type=JSON)


@router.get("/{bandit}/arm-effects/{arm}", response_model=OneArmEffectView)
async def arm_effect(
    bandit: str,
    arm: str,
    bandits: Provided[Bandits],
    catalogues: Provided[Catalogues],
    effects: Provided[ServedEffects],
) -> Response:
    """The effect of one arm; 0, and uncertain by the spread of all, while it has no rewards."""
    owner = _with_effects(await bandits.get(bandit))
    if arm not in await catalogues.features(owner.catalogue, {arm}):
        raise NotFound("there is no arm with this id")
    version = await effects.newest(owner.uid)
    summary = summary_of(owner, version)
    if version is None or not summary["version"]:
        return reply({"version": 0, "arm": arm, "effect": 0.0, "sd": 0.0, "weight": 0.0})
    index = int(version.names.places_of([arm])[0])
    item = item_of(owner, version, arm, index)
    return reply({"version": version.number, **item})


def _position(cursor: str, order: Order) -> tuple[int, int]:
    """The version and the place at which a page begins. Raises Invalid."""
    own_order, _, position = decode_cursor(cursor).partition("/")
    number, slash, start = position.partition("/")
    if own_order != order or not slash:
        raise foreign()
    return number_in(number), number_in(start)


def _with_effects(bandit: Bandit) -> Bandit:
    """The bandit, if it has arm effects. Raises NotFound."""
    if bandit.record.arm_effects == "off":
        raise NotFound('the arm_effects of this bandit are "off"')
    return bandit
