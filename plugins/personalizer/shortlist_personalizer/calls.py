"""Personalizer's calls: each is translated into one call of the service's own API."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from typing import Any, TypeVar

from shortlist_personalizer.bodies import (
    ActionBody,
    Features,
    RankAnswer,
    RankBody,
    RankedAction,
    RankSlotsAnswer,
    RankSlotsBody,
    RewardBody,
    SlotAnswer,
    SlotRewardsBody,
)
from shortlist_personalizer.features import hashed
from shortlist_personalizer.personalizer_errors import refuse, response_of
from shortlist_personalizer.personalizer_settings import PersonalizerSettings
from shortlist_personalizer.slots import SlotIds
from shortlist_service.errors import Invalid, NotFound, within
from shortlist_service.routes import (
    Bandit,
    Bandits,
    Provided,
    Request,
    Response,
    RouteDependencies,
    Routes,
    check_bandit,
    inner_call,
    is_identifier,
    json_router,
    key_of,
    reply,
)

PREFIX = "/personalizer"
Endpoint = TypeVar("Endpoint", bound=Callable[..., Any])
_HASH_PREFIX = "h:"  # of an id that stands for one that is no identifier of ours
NO_CONTENT = 204
NO_EVENT = "there is no event with this id, or its time is over"
NO_SLOTS = "no slots wait to be activated: none were ranked with deferActivation"
VERSIONS = ("", "/v1.0", "/v1.1-preview.1", "/v1.1-preview.2", "/v1.1-preview.3")  # as paths may begin

router = json_router(prefix=PREFIX, tags=["personalizer"], refuse=refuse)


def post(path: str) -> Callable[[Endpoint], Endpoint]:
    """Have an endpoint answer ``path`` of all versions. Personalizer's own documents describe them."""

    def register(endpoint: Endpoint) -> Endpoint:
        for version in VERSIONS:
            router.post(f"{version}{path}", include_in_schema=False)(endpoint)
        return endpoint

    return register


class ServedBandit:
    """The bandit of a request: that of its API key, if the key is of one alone, else that of the settings."""

    def __init__(self, bandits: Bandits, settings: PersonalizerSettings) -> None:
        self._bandits = bandits
        self._name = settings.personalizer_bandit

    async def of(self, request: Request) -> Bandit:
        """Raises NotFound: with what makes one."""
        key = key_of(request)
        name = self._name
        if key is not None and key.bandits is not None and len(key.bandits) == 1:
            (name,) = key.bandits
        try:
            check_bandit(request, name)
            return await self._bandits.get(name)
        except NotFound:
            raise NotFound(f"there is no bandit {name}: run `shortlist personalizer init {name}`") from None


def identifier(text: str) -> str:
    """An identifier of ours for an id of Personalizer's, which may be any text: the same id if it is one."""
    if is_identifier(text) and not text.startswith(_HASH_PREFIX):
        return text
    return _HASH_PREFIX + blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def slot_event(event_id: str, slot_id: str) -> str:
    """The event of one slot of an event: a choice of its own."""
    return identifier(f"{event_id}\0{slot_id}")


@post("/rank")
async def rank(body: RankBody, request: Request, personalizer_bandit: Provided[ServedBandit]) -> Response:
    """The action to show, and the probability of each."""
    bandit = await personalizer_bandit.of(request)
    event_id = body.event_id or secrets.token_hex(16)
    excluded = _excluded(body.excluded_actions, body.actions, "excludedActions")
    choice = {
        **_choice(_candidates(bandit, body.actions), excluded, _context(bandit, body.context_features)),
        "event_id": identifier(event_id),
        "activate": not body.defer_activation,
        "include": ["ranking"],
    }
    answer = await inner_call(request, f"/v1/bandits/{bandit.name}/choose", choice)
    if answer.is_problem:
        return response_of(answer.problem)
    chosen = answer.json()
    names = {identifier(action.id): action.id for action in body.actions}
    top = chosen["arms"][0]
    # An event that is ranked again has the probability of its arm alone: a ranking is not kept.
    ranked = chosen.get("ranking") or [{"id": top["id"], "first": top.get("propensity")}]
    propensities = {one["id"]: one.get("first") for one in ranked}
    order = [top["id"], *(id_ for id_ in propensities if id_ != top["id"])]
    order += [id_ for id_ in names if id_ not in propensities and names[id_] not in excluded]
    remaining = iter(order)
    ranking = [
        # An excluded action keeps its place, as clients of Personalizer expect.
        RankedAction(action.id, 0.0)
        if action.id in excluded
        else RankedAction(names[id_ := next(remaining)], propensities.get(id_))
        for action in body.actions
    ]
    return reply(RankAnswer(ranking, event_id, names[top["id"]]), 201)


@post("/multislot/rank")
async def rank_slots(
    body: RankSlotsBody,
    request: Request,
    personalizer_bandit: Provided[ServedBandit],
    personalizer_slots: Provided[SlotIds],
) -> Response:
    """An action for each slot, none of them twice."""
    bandit = await personalizer_bandit.of(request)
    event_id = body.event_id or secrets.token_hex(16)
    _each_once([slot.id for slot in body.slots], "slots")
    # Once for all slots: to hash all features again for each of 50 would keep other requests waiting.
    candidates, context = _candidates(bandit, body.actions), _context(bandit, body.context_features)
    if len(body.slots) > len(body.actions):
        raise Invalid("must not be more than the actions", path=("slots",))
    requests = []
    for number, slot in enumerate(body.slots):
        if slot.baseline_action not in candidates:
            raise Invalid("must be the id of an action", path=("slots", number, "baselineAction"))
        excluded = _excluded(slot.excluded_actions, body.actions, "slots", number, "excludedActions")
        # First, since a holdout that serves the caller's candidates serves the first.
        ordered = {slot.baseline_action: candidates[slot.baseline_action], **candidates}
        # In a namespace of its own, so that a field of a slot is none of the context.
        features = [{"slot": each} for each in slot.features or []]
        slot_context = _context(bandit, features, "slots", number, "features")
        requests.append(
            {
                **_choice(ordered, excluded, [a + b for a, b in zip(context, slot_context, strict=True)]),
                "event_id": slot_event(event_id, slot.id),
                "activate": not body.defer_activation,
            }
        )
    if body.defer_activation:
        await personalizer_slots.add(bandit.name, [slot.id for slot in body.slots])
    path = f"/v1/bandits/{bandit.name}/choose/batch"
    answer = await inner_call(request, path, {"requests": requests, "distinct": True})
    if answer.is_problem:
        return response_of(answer.problem)
    names = {identifier(action.id): action.id for action in body.actions}
    slots = [
        SlotAnswer(slot.id, names[choice["arms"][0]["id"]])
        for slot, choice in zip(body.slots, answer.json()["results"], strict=True)
    ]
    return reply(RankSlotsAnswer(slots, event_id), 201)


@post("/events/{event_id:path}/reward")
async def reward(
    event_id: str, body: RewardBody, request: Request, personalizer_bandit: Provided[ServedBandit]
) -> Response:
    """Reward the action of an event."""
    bandit = await personalizer_bandit.of(request)
    return await _reward(request, bandit, {identifier(event_id): body.value})


@post("/multislot/events/{event_id:path}/reward")
async def reward_slots(
    event_id: str, body: SlotRewardsBody, request: Request, personalizer_bandit: Provided[ServedBandit]
) -> Response:
    """Reward the actions of slots."""
    bandit = await personalizer_bandit.of(request)
    values = {slot_event(event_id, slot.slot_id): slot.value for slot in body.reward}
    return await _reward(request, bandit, values)


@post("/events/{event_id:path}/activate")
async def activate(event_id: str, request: Request, personalizer_bandit: Provided[ServedBandit]) -> Response:
    """Say that the action of an event was shown."""
    bandit = await personalizer_bandit.of(request)
    return await _activate(request, bandit, [identifier(event_id)])


@post("/multislot/events/{event_id:path}/activate")
async def activate_slots(
    event_id: str,
    request: Request,
    personalizer_bandit: Provided[ServedBandit],
    personalizer_slots: Provided[SlotIds],
) -> Response:
    """Say that the actions of all slots of an event were shown."""
    bandit = await personalizer_bandit.of(request)
    slot_ids = await personalizer_slots.of(bandit.name)
    return await _activate(request, bandit, [slot_event(event_id, slot_id) for slot_id in slot_ids])


async def _reward(request: Request, bandit: Bandit, values: Mapping[str, float]) -> Response:
    """``values`` by the event of a choice."""
    rewards = [{"bandit": bandit.name, "event_id": event, "value": value} for event, value in values.items()]
    answer = await inner_call(request, "/v1/rewards", {"rewards": rewards})
    return response_of(answer.problem) if answer.is_problem else _of_receipt(answer.json())


async def _activate(request: Request, bandit: Bandit, events: Sequence[str]) -> Response:
    """Activate the events that there are. Raises NotFound where there is none."""
    if not events:
        raise NotFound(NO_SLOTS)
    decisions = [{"bandit": bandit.name, "event_id": event} for event in events]
    answer = await inner_call(request, "/v1/decisions/activate", {"decisions": decisions})
    if answer.is_problem:
        return response_of(answer.problem)
    outcome = answer.json()
    # Slots of other events than this one have no event here: one that there is, is enough.
    if outcome["activated"] or outcome["duplicate"]:
        return Response(status_code=NO_CONTENT)
    return _of_receipt(outcome)


def _of_receipt(receipt: Any) -> Response:
    """204, also for what came before, or if some of several were taken. Raises NotFound, Invalid."""
    if receipt.get("accepted") or receipt["duplicate"]:
        return Response(status_code=NO_CONTENT)
    for rejected in receipt["rejected"]:
        if rejected["code"] == "unknown_event":
            raise NotFound(NO_EVENT)
        raise Invalid(f"the event does not take this: {rejected['code']}")
    return Response(status_code=NO_CONTENT)


def _candidates(bandit: Bandit, actions: Sequence[ActionBody]) -> Mapping[str, Mapping[str, Any]]:
    """The actions as candidates of a choice, by their ids, in order. Raises Invalid: two have one id."""
    _each_once([action.id for action in actions], "actions")
    candidates = {}
    for number, action in enumerate(actions):
        with within(("actions", number, "features")):
            features = hashed(action.features, bandit.catalogue.dim)
        candidates[action.id] = {"id": identifier(action.id), "features": features}
    return candidates


def _context(bandit: Bandit, features: Features | None, *path: str | int) -> list[float]:
    """The numbers of a context; none of a bandit without one."""
    with within(path or ("contextFeatures",)):
        return [] if bandit.context is None else hashed(features or [], bandit.context.encoding.dim)


def _choice(
    candidates: Mapping[str, Mapping[str, Any]], excluded: frozenset[str], context: list[float]
) -> dict[str, Any]:
    """The candidates and the context of a choice. Raises Invalid: all are excluded."""
    eligible = [candidate for action_id, candidate in candidates.items() if action_id not in excluded]
    if not eligible:
        raise Invalid("all actions are excluded", path=("excludedActions",))
    return {"candidates": eligible} | ({"context": context} if context else {})


def _excluded(
    excluded: Sequence[str] | None, actions: Sequence[ActionBody], *path: str | int
) -> frozenset[str]:
    """Raises Invalid for what is no action."""
    action_ids = {action.id for action in actions}
    for number, action_id in enumerate(excluded or ()):
        if action_id not in action_ids:
            raise Invalid("must be the id of an action", path=(*path, number))
    return frozenset(excluded or ())


def _each_once(ids: Sequence[str], field: str) -> None:
    """Raise Invalid at the first id that was there before."""
    ids_so_far = set[str]()
    for number, one in enumerate(ids):
        if one in ids_so_far:
            raise Invalid("must not have the id of another", path=(field, number, "id"))
        ids_so_far.add(one)


class PersonalizerCalls(Routes):
    """/personalizer/…: each call needs the scope of the call that it is translated into."""

    router = router
    key_header = "Ocp-Apim-Subscription-Key"
    scopes = {  # noqa: RUF012 - nobody changes it
        f"POST {version}{path}": scope
        for version in VERSIONS
        for path, scope in (
            ("/rank", "choose"),
            ("/multislot/rank", "choose"),
            ("/events/{event_id:path}/reward", "reward"),
            ("/events/{event_id:path}/activate", "reward"),
            ("/multislot/events/{event_id:path}/reward", "reward"),
            ("/multislot/events/{event_id:path}/activate", "reward"),
        )
    }

    def services(self, dependencies: RouteDependencies) -> Mapping[str, object]:
        """The ranking bandit, and the ids of slots."""
        served = ServedBandit(dependencies.bandits, PersonalizerSettings())
        return {"personalizer_bandit": served, "personalizer_slots": SlotIds(dependencies.event_logs)}
