"""/v1/bandits: bandits; their learners are in ``learners``, history for them in ``observations``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from fastapi import Request, Response
from pydantic import BaseModel, ValidationError, create_model

from app.api.fields import Cursor, Identifier, Limit, Page, page_reply
from app.api.filters import parsed_filter
from app.api.guard import check_catalogue, key_name, key_of
from app.api.moves import MoveStatusView
from app.api.problems import problems
from app.api.resource_changes import as_json, check, if_match, merged, patch_model
from app.api.strict_json import Provided, StrictModel, invalid, json_router, reply
from app.bandits.bandit import Bandit, UsedScales
from app.bandits.completion import default_prior, no_arm_effects
from app.bandits.record_settings import FIXED, OF_POLICIES, settings_of
from app.bandits.served_bandits import Bandits
from app.bandits.settings import (
    AUTO,
    GONE,
    HALF_LIFE_RULE,
    POSITION_RULE,
    RIDGE_OF_THEORY,
    BanditRecord,
    BanditSettings,
    HalfLife,
    HalfLives,
    PositionRule,
    no_learned_places,
)
from app.bandits.versions import BanditVersion, etag_of
from app.filters.overview import no_arm_has
from app.moving.moving import Moving
from app.platform.documents import fields_of
from app.platform.errors import FieldPath, Invalid, NotChangeable, named_by
from app.policies.elimination import EliminationPolicy
from app.policies.log_propensities import warnings_of_log
from app.policies.registry import POLICIES
from app.serving.constraints.of_plugins import check_constraints, missing_settings

router = json_router(prefix="/v1/bandits", tags=["bandits"])
if TYPE_CHECKING:
    PolicyName = str
else:
    PolicyName = Literal[tuple(POLICIES)]
FIELDS = fields_of(BanditSettings) | {"policy": (PolicyName, ...)}


class _Settings(StrictModel):
    """Base of the bodies that have settings of a bandit."""

    gone = GONE


class _View(BaseModel):
    """The settings of a bandit, with all defaults filled in.

    ``version`` counts from 1, when the bandit was made, and grows with every change. ``warnings``: what
    cannot be done with these settings, or cannot be meant, as sentences; absent if there are none. ``used``:
    the settings in numbers for a learner without rewards; in the list of all bandits without the lessons of
    other keys. ``move``: while learners are being carried to another catalogue; absent otherwise, and in
    lists. ``state``: its policy is of a plug-in that is not loaded here, so it chooses nothing; else absent.
    """

    id: str
    version: int
    state: Literal["plugin_missing"] | None = None
    warnings: list[str] = []
    used: UsedScales | None = None
    move: MoveStatusView | None = None


if TYPE_CHECKING:
    BanditBody = StrictModel
    BanditPatch = StrictModel
    BanditView = _View
else:
    BanditBody = create_model("BanditBody", __base__=_Settings, __doc__=BanditSettings.__doc__, **FIELDS)
    HalfLivesPatch = patch_model("HalfLivesPatch", fields_of(HalfLives), HalfLives.__doc__)
    half_life_s = Annotated[HalfLife | HalfLivesPatch | None, HALF_LIFE_RULE]
    PositionPatch = patch_model("PositionRulePatch", fields_of(PositionRule), PositionRule.__doc__)
    position = Annotated[Literal["auto"] | PositionPatch | None, POSITION_RULE]
    patched = FIELDS | {"half_life_s": (half_life_s, None), "position": (position, None)}
    BanditPatch = patch_model("BanditPatch", patched, BanditSettings.__doc__, base=_Settings)
    given = {name: (hint, ...) for name, (hint, _) in FIELDS.items()}
    BanditView = create_model("BanditView", __base__=_View, __doc__=_View.__doc__, **given)


class BanditVersionView(BanditView):
    """``since_ms``: when it came to be so, in ms since 1970. ``by``: the name of the API key that made it so;
    null without keys.
    """

    since_ms: int
    by: str | None


class BanditVersionsView(BaseModel):
    items: list[BanditVersionView]
    next: str | None


@router.put(
    "/{bandit}", response_model=BanditView, responses={**problems(409, 429), 201: {"model": BanditView}}
)
async def create(
    bandit: Identifier, body: BanditBody, request: Request, bandits: Provided[Bandits]
) -> Response:
    """Make a bandit: 201 made, 200 the same one exists, 409 another one exists."""
    absent, record = FIELDS.keys() - body.model_fields_set, record_of(body)
    check_catalogue(request, record.catalogue)
    # Only a bandit that was changed to elimination has both: its learners have a number for the intercept.
    if record.intercept and isinstance(POLICIES[record.policy], EliminationPolicy):
        raise Invalid(f"intercept cannot be combined with the policy {record.policy}", path=("intercept",))
    with named_by("catalogue"):
        created, new = await bandits.create(bandit, record, absent, by=key_name(request))
    if new:  # no learner has rewards
        return _answer(created, created.begins_with, 201)
    return await _reply(request, created)


@router.patch("/{bandit}", response_model=BanditView, responses=problems(409, 412, 429))
async def change(
    bandit: Identifier, body: BanditPatch, request: Request, bandits: Provided[Bandits]
) -> Response:
    """Change a bandit by a JSON merge patch (RFC 7396); its learners are kept. null: back to the default.

    With If-Match the change is made only if the bandit still has this ETag, else 412.
    """
    patch, allowed = as_json(body), if_match(request)

    def changed(uid: str, version: BanditVersion) -> BanditRecord:
        check(etag_of(uid, version.number), allowed)
        return changed_record(version.record, patch)

    return await _reply(request, await bandits.change(bandit, changed, by=key_name(request)))


@router.get("/{bandit}/versions", response_model=BanditVersionsView)
async def versions(
    bandit: str, bandits: Provided[Bandits], cursor: Cursor = None, limit: Limit = 100
) -> Response:
    """All versions of a bandit, the newest first."""
    owner = await bandits.get(bandit)
    page, following = await bandits.versions.page(owner.uid, owner.version, cursor, limit)
    items = (
        (str(version.number), {**_view(bandit, version), "since_ms": version.since_ms, "by": version.by})
        for version in page
    )
    return await page_reply(items, following)


@router.get("", response_model=Page[BanditView])
async def list_all(
    request: Request, bandits: Provided[Bandits], cursor: Cursor = None, limit: Limit = 100
) -> Response:
    """All bandits by name; for a restricted API key only its own."""
    key = key_of(request)
    page, following = bandits.page(cursor, limit, None if key is None else key.bandits)
    items = ((item.name, _with_used(item, item.begins_with)) for item in page)
    return await page_reply(items, following)


@router.get("/{bandit}", response_model=BanditView)
async def get(
    bandit: str, request: Request, bandits: Provided[Bandits], moving: Provided[Moving]
) -> Response:
    """One bandit as it is now."""
    owner = await bandits.get(bandit)
    return await _reply(request, owner, await moving.status(owner))


@router.delete("/{bandit}", status_code=204)
async def delete(bandit: str, bandits: Provided[Bandits]) -> None:
    """Delete a bandit and all its learners."""
    await bandits.delete(bandit)


def record_of(body: BanditBody) -> BanditRecord:
    """The record of a body. Raises Invalid."""
    record = BanditRecord(**dict(body))
    if isinstance(half_lives := record.half_life_s, HalfLives) and half_lives.arms == half_lives.keys:
        record = msgspec.structs.replace(record, half_life_s=half_lives.keys)
    if record.exploration == "theory" and "ridge" not in body.model_fields_set:
        record = msgspec.structs.replace(record, ridge=RIDGE_OF_THEORY)
    policy = POLICIES[record.policy]
    if "prior" not in body.model_fields_set:
        prior = default_prior(record, takes_prior="prior" in policy.options)
        record = msgspec.structs.replace(record, prior=prior)
    if "arm_effects" not in body.model_fields_set:
        is_possible = policy.takes_effects and not no_arm_effects(record)
        record = msgspec.structs.replace(record, arm_effects="auto" if is_possible else "off")
    if "position" not in body.model_fields_set and not no_learned_places(record):
        record = msgspec.structs.replace(record, position=AUTO)
    if "intercept" not in body.model_fields_set:
        intercept = not isinstance(policy, EliminationPolicy)
        record = msgspec.structs.replace(record, intercept=intercept)
    if (rule := record.holdout) is not None and rule.or_else is not None and not rule.is_list:
        message = "needs serve with a list of arms: it says what is served where none of them is eligible"
        raise Invalid(message, path=("holdout", "else"))
    parsed_filter(record.filter)
    if refused := list(check_constraints(record)):
        raise Invalid.many(refused)
    return record


def changed_record(record: BanditRecord, patch: dict[str, Any]) -> BanditRecord:
    """The record after a patch. Raises NotChangeable, Invalid."""
    current = msgspec.to_builtins(settings_of(record))
    half_lives = {"arms": record.arm_half_life_s, "keys": record.key_half_life_s}
    after = merged({**current, "half_life_s": half_lives}, patch)
    after.setdefault("position", None)  # null is a setting of its own: absent would mean that of a new bandit
    fixed: list[tuple[FieldPath, str]] = [
        ((name,), f"{name} cannot be changed: {reason}")
        for name, reason in FIXED.items()
        if name in patch and name != "half_life_s" and after.get(name, FIELDS[name][1]) != current[name]
    ]
    fixed += _fixed_half_life(record, after.get("half_life_s"))
    if fixed:
        raise NotChangeable.many(fixed)
    left = _left_behind(record.policy, after.get("policy"))
    if after.get("exploration") == "theory" and record.ridge == AUTO:
        left.add("ridge")
    if record.prior == "learned" and {"ridge", "exploration"} & patch.keys():
        left.add("prior")
    for name in left - patch.keys():
        after.pop(name, None)
    rule, asked = after.get("holdout"), patch.get("holdout")
    if isinstance(rule, dict) and not isinstance(rule.get("serve"), dict) and "else" not in (asked or {}):
        rule.pop("else", None)  # it was of the list that goes
    try:
        changed = record_of(BanditBody.model_validate(after))
    except ValidationError as error:
        raise invalid(error) from None
    takes_effects = POLICIES[changed.policy].takes_effects
    if "arm_effects" not in patch and (not takes_effects or no_arm_effects(changed)):
        changed = msgspec.structs.replace(changed, arm_effects="off")
    if "position" not in patch and changed.position == AUTO and no_learned_places(changed):
        changed = msgspec.structs.replace(changed, position=None)
    derived = BanditRecord.__struct_fields__[len(BanditSettings.__struct_fields__) :]  # nobody asks for them
    unchanged = {name: getattr(record, name) for name in ("intercept", *derived)}
    return msgspec.structs.replace(changed, **unchanged)


def _fixed_half_life(record: BanditRecord, after: Any) -> list[tuple[FieldPath, str]]:
    """Errors of ``half_life_s`` after a patch, as JSON: the half-life of keys cannot be changed."""
    is_apart = isinstance(after, dict)
    if (after.get("keys") if is_apart else after) == record.key_half_life_s:
        return []
    path = ("half_life_s", "keys") if is_apart else ("half_life_s",)
    return [(path, f"{'.'.join(path)} cannot be changed: {FIXED['half_life_s']}; that of arms can")]


def _left_behind(before: str, policy: object) -> set[str]:
    """The options dropped when another policy takes over, which lacks them.

    An option on which learners depend stays, and the change is refused.
    """
    if not isinstance(policy, str) or policy not in POLICIES or policy == before:
        return set()
    return OF_POLICIES.keys() - POLICIES[policy].all_options - FIXED.keys()


async def _reply(request: Request, bandit: Bandit, move: dict[str, Any] | None = None) -> Response:
    service = request.app.service
    served = await service.priors.serving(bandit)
    return _answer(served, await service.learners.begins_with(served), move=move)


def _answer(
    bandit: Bandit, begins_with: UsedScales, status: int = 200, *, move: dict[str, Any] | None = None
) -> Response:
    view = _with_used(bandit, begins_with)
    answer = reply(view if move is None else {**view, "move": move}, status)
    answer.headers["etag"] = bandit.etag
    return answer


def _with_used(bandit: Bandit, begins_with: UsedScales) -> dict[str, Any]:
    return {**_view(bandit.name, bandit.version, _doubts(bandit)), "used": begins_with}


def _doubts(bandit: Bandit) -> list[str]:
    """Sentences on fields which no arm has, and on arms of a holdout which the catalogue lacks.

    They may come later, or be misspelt. Where an engine has the arms, none: their fields are unknown.
    """
    arms = bandit.catalogue.resident
    if arms is None or not len(arms):
        return []
    named = bandit.named_fields.items()
    unknown = [(name, field) for name, fields in named for field in bandit.catalogue.unknown_fields(fields)]
    doubts = [f"{name}: {no_arm_has(field)}" for name, field in unknown]
    missing = sum(arm not in arms for arm in bandit.named_arms)
    if missing:
        doubts.append(f"holdout: the catalogue lacks {missing:,} of its {len(bandit.named_arms):,} arms")
    return doubts


def _view(name: str, version: BanditVersion, doubts: Sequence[str] = ()) -> dict[str, Any]:
    warnings = [*warnings_of_log(version.record), *doubts]
    view = {"id": name, **settings_of(version.record), "version": version.number}
    if missing_settings(version.record):
        view["state"] = "plugin_missing"
    return {**view, "warnings": warnings} if warnings else view
