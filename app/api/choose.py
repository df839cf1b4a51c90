"""POST /v1/bandits/{b}/choose and choose/batch, and /v1/choose/batch of several bandits."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Annotated, Any, ClassVar, TypeGuard, TypeVar

from fastapi import Request, Response
from pydantic import AfterValidator, BaseModel, FailFast, Field

from app.api import request_limits as limits
from app.api.api_keys import ApiKey
from app.api.arms import Tags, absent, storable
from app.api.fields import ContextBody, Feature, Identifier, Seed, Weights
from app.api.filters import FilterBody, RulesBody, parsed_filter, rules
from app.api.guard import check_bandit, check_scope, key_of
from app.api.problems import Problem, document_of, problems
from app.api.rate_limits import Rates
from app.api.strict_json import SEVERAL_CALLS, InTurn, Provided, StrictModel, json_router, reply
from app.bandits.bandit import Bandit
from app.bandits.served_bandits import Bandits
from app.catalogues.arms import Arm
from app.catalogues.candidates import WHERE, CandidateList, candidate_list
from app.platform.documents import Answer
from app.platform.errors import Forbidden, Invalid, NotFound, ShortlistError, named_by, within
from app.platform.ids import refuse_repeats
from app.selection.request import NO_RULES, ChooseRequest
from app.serving.arm_list import ArmList
from app.serving.choice import RANKING, Choice, include_name
from app.serving.choosing import BatchRequest, Choosing, Refusal
from app.serving.dry_runs import DryRun, DryRuns
from shortlist.errors import InvalidArgument

router = json_router(prefix="/v1", tags=["choices"])


Item = TypeVar("Item", bound="ChooseItem")
IncludeName = Annotated[str, AfterValidator(include_name)]


class CandidateBody(StrictModel):
    """With ``features`` or ``metadata`` an arm of this request alone, written as an arm of the catalogue is;
    else the arm of the catalogue with this ``id``. ``match``: what this request says of the arm, by the
    fields of the bandit's ``match``.
    """

    id: Identifier
    features: Annotated[list[Feature], FailFast()] = Field(default_factory=absent)
    metadata: Annotated[dict[str, Any], AfterValidator(storable)] = Field(default_factory=dict)
    tags: Tags = Field(default_factory=list, max_length=limits.MAX_TAGS, fail_fast=True)
    match: dict[str, Any] | None = None

    @property
    def is_own(self) -> bool:
        """True if the candidate is an arm of the request alone."""
        return not self.model_fields_set.isdisjoint(OF_OWN_ARMS)


OF_OWN_ARMS = ("features", "metadata")
BESIDE_IDS = (*OF_OWN_ARMS, "tags", "match")
Candidate = Annotated[Identifier | CandidateBody, InTurn('an id, or an object as {"id": "a"}')]


class ChooseItem(StrictModel):
    """``baseline`` names a finished slate campaign, whose slate is served instead of a draw. ``filter``:
    which arms are eligible. ``rules``: arms that stand at given places, and how many may share a value.
    ``context``: needed exactly when the bandit has one. ``include``: what comes with each arm: its metadata,
    or fields of them; and ``ranking``, all candidates. ``visitor``: whom a global bandit shows it to that has
    ``repeats``, or a constraint that remembers keys.
    ``weights``: of signals, over those of the bandit. ``candidates``: the only arms that may be chosen: ids
    of the catalogue, or arms of this request alone.
    """

    max_bytes: ClassVar[int] = limits.MAX_IDS_BYTES
    long_list: ClassVar[str] = "candidates"
    undivided: ClassVar[str] = "candidates"

    key: Identifier | None = None
    k: Annotated[int, Field(ge=1, le=limits.MAX_K)] = 1
    exclude: list[Identifier] = Field(default_factory=list, max_length=limits.MAX_EXCLUDE)
    event_id: Identifier | None = None
    seed: Seed | None = None
    activate: bool = True
    baseline: Identifier | None = None
    filter: FilterBody | None = None
    rules: RulesBody | None = None
    context: ContextBody = None
    visitor: Identifier | None = None
    include: list[IncludeName] = Field(default_factory=list, max_length=limits.MAX_INCLUDE)
    weights: Weights | None = None
    candidates: list[Candidate] | None = Field(default=None, min_length=1, max_length=limits.MAX_CANDIDATES)

    @property
    def brings_arms(self) -> bool:
        """True if some of its arms are of the request alone."""
        candidates = self.candidates
        if candidates is None or are_ids(candidates):
            return False
        return any(isinstance(candidate, CandidateBody) and candidate.is_own for candidate in candidates)


def are_ids(candidates: Sequence[object]) -> TypeGuard[Sequence[str]]:
    """Return whether candidates are ids alone. Cost: a fifth of a look at each by itself."""
    return {str}.issuperset(map(type, candidates))


class ChooseBody(ChooseItem):
    """``dry_run``: what would be chosen now, and why; then without ``event_id`` and ``activate``. The other
    fields are those of one choice of a batch.
    """

    dry_run: bool = False


class BatchOptions(StrictModel):
    """The common options of all batches of choices."""

    max_bytes: ClassVar[int] = limits.MAX_BODY_BYTES
    instead: ClassVar[str] = SEVERAL_CALLS
    long_list: ClassVar[str] = "requests"
    alone: ClassVar[str] = "partial"

    partial: bool = False
    distinct: bool = False


class ChooseBatchBody(BatchOptions):
    """``k`` of all requests together is at most 20,000.

    ``partial``: each request is answered by itself, with a choice or with its error, also for a wrong field.
    Without it an error of one is the error of all. ``distinct``: the requests are answered one after the
    other, and none shows an arm id shown by an earlier one.
    """

    requests: Annotated[list[ChooseItem], Field(min_length=1, max_length=limits.MAX_BATCH)]


class PageItem(ChooseItem):
    """A choice of ``bandit``."""

    bandit: Identifier


class ChoosePageBody(BatchOptions):
    """Requests of several bandits, such as of the rows of a page. The other fields are those of a batch of
    one bandit.
    """

    right_item: ClassVar[bytes] = b'{"bandit": "b"}'

    requests: Annotated[list[PageItem], Field(min_length=1, max_length=limits.MAX_BATCH)]


class RefusedChoice(Answer, frozen=True):
    """The error of one request in a batch with ``partial``."""

    error: Problem


class ChoicesView(BaseModel):
    """In the order of the requests. Errors are only in answers to ``partial``."""

    results: list[Choice | RefusedChoice]


@router.post("/bandits/{bandit}/choose", response_model=Choice | DryRun, responses=problems(409))
async def choose(
    bandit: str,
    body: ChooseBody,
    *,
    request: Request,
    bandits: Provided[Bandits],
    choosing: Provided[Choosing],
    dry_runs: Provided[DryRuns],
    arm_list: Provided[ArmList],
) -> Response:
    """Choose up to k arms, the best first, and return the token to reward them with.

    With ``dry_run`` nothing is decided: there is no token, nothing is logged, counted or reserved, and each
    arm comes with its estimate, the estimate's width, and the drawn value. A dry run needs the scope
    ``read``.
    """
    if body.dry_run:
        check_scope(request, "read")

        async def dry_run() -> DryRun:
            owner = await bandits.ready(bandit, keep=False, brings_arms=body.brings_arms)
            return await dry_runs.run(owner, await _request(body, owner, arm_list, key_of(request)))

        return reply(await bandits.again_if_moved(dry_run))
    check_scope(request, "choose")

    async def chosen() -> Choice:
        owner = await bandits.ready(bandit, brings_arms=body.brings_arms)
        return await choosing.choose(owner, await _request(body, owner, arm_list, key_of(request)))

    return reply(await bandits.again_if_moved(chosen))


@router.post("/bandits/{bandit}/choose/batch", response_model=ChoicesView, responses=problems(409, 429))
async def choose_batch(
    bandit: str,
    body: ChooseBatchBody,
    *,
    request: Request,
    bandits: Provided[Bandits],
    choosing: Provided[Choosing],
    arm_list: Provided[ArmList],
    rates: Provided[Rates],
) -> Response:
    """Choose for several requests at once; an error of one is the error of all, unless ``partial`` is set.

    Where the API key has a rate, each of them counts: 429 where others used it up while the body came.
    """
    key = key_of(request)
    items: Sequence[ChooseItem | ShortlistError] = body.requests  # errors only where it is ``partial``
    _charge(items, rates, key)

    async def chosen() -> list[Choice | RefusedChoice]:
        brings_arms = any(isinstance(item, ChooseItem) and item.brings_arms for item in items)
        owner = await bandits.ready(bandit, brings_arms=brings_arms)

        async def asked(item: ChooseItem) -> BatchRequest:
            return BatchRequest(owner, await _request(item, owner, arm_list, key))

        return await _choices(items, body, asked, choosing)

    return reply({"results": await bandits.again_if_moved(chosen)})


@router.post("/choose/batch", response_model=ChoicesView, responses=problems(404, 409, 429))
async def choose_page(
    body: ChoosePageBody,
    *,
    request: Request,
    bandits: Provided[Bandits],
    choosing: Provided[Choosing],
    arm_list: Provided[ArmList],
    rates: Provided[Rates],
) -> Response:
    """Choose for requests of several bandits at once, such as all rows of a page; else as a batch of one.

    404 names the request whose bandit there is not.
    """
    key = key_of(request)
    _charge(body.requests, rates, key)

    async def asked(item: PageItem) -> BatchRequest:
        with named_by("bandit"):
            check_bandit(request, item.bandit)
            owner = await bandits.ready(item.bandit, brings_arms=item.brings_arms)
        return BatchRequest(owner, await _request(item, owner, arm_list, key))

    async def chosen() -> list[Choice | RefusedChoice]:
        return await _choices(body.requests, body, asked, choosing)

    return reply({"results": await bandits.again_if_moved(chosen)})


def _charge(items: Sequence[ChooseItem | ShortlistError], rates: Rates, key: ApiKey | None) -> None:
    """Count each request of a batch. Raises TooManyRequests, Invalid (too many arms)."""
    rates.charge(key, len(items) - 1)
    if sum(item.k for item in items if isinstance(item, ChooseItem)) > limits.MAX_BATCH_ARMS:
        raise Invalid(
            f"k of all requests together must be at most {limits.MAX_BATCH_ARMS:,}", path=("requests",)
        )


async def _choices(
    items: Sequence[Item | ShortlistError],
    options: BatchOptions,
    asked: Callable[[Item], Awaitable[BatchRequest]],
    choosing: Choosing,
) -> list[Choice | RefusedChoice]:
    """The results of a batch. ``asked``: makes the request of an item."""
    requests: list[BatchRequest | Refusal] = []
    for number, item in enumerate(items):
        if isinstance(item, ShortlistError):
            requests.append(item)
            continue
        try:
            with within(("requests", number)):
                requests.append(await asked(item))
        except (ShortlistError, InvalidArgument) as error:
            if not options.partial:
                raise
            requests.append(error)
    results = await choosing.choose_batch(requests, partial=options.partial, distinct=options.distinct)
    return [
        result if isinstance(result, Choice) else RefusedChoice(document_of(result)) for result in results
    ]


async def _request(
    body: ChooseItem, bandit: Bandit, arm_list: ArmList, caller: ApiKey | None
) -> ChooseRequest:
    """The request of a body to a bandit. Raises NotFound, Conflict (the baseline), Forbidden, Invalid."""
    key, visitor, owner, arms = body.key, body.visitor, None, None
    if caller is not None and caller.visitor is not None:
        owner = caller.visitor
        key, visitor = _of_visitor(body, bandit, owner)
    if body.baseline is not None:
        if body.candidates is not None:
            raise Invalid("candidates cannot be combined with baseline, which names arms", path=(WHERE,))
        with named_by("baseline"):
            if caller is not None and caller.bandits is not None:
                raise NotFound("there is no campaign with this id")
            arms = await arm_list.arms_of(body.baseline)
    candidates, ranks = None, RANKING in body.include
    if body.candidates is not None:
        candidates = await _candidates(body.candidates, body.k, bandit, caller)
    elif ranks:
        reason = "ranking is of the candidates of a request: name them"
        raise Invalid(reason, path=("include", body.include.index(RANKING)))
    return ChooseRequest(
        key=key,
        k=body.k,
        exclude=body.exclude,
        event_id=body.event_id,
        seed=body.seed,
        activate=body.activate,
        arms=arms,
        arm_filter=None if body.filter is None else parsed_filter(body.filter),
        rules=NO_RULES if body.rules is None else rules(body.rules, body.k),
        context=body.context,
        include=[name for name in body.include if name != RANKING] if ranks else body.include,
        visitor=visitor,
        weights=body.weights,
        owner=owner,
        candidates=candidates,
        ranks=ranks,
    )


async def _candidates(
    candidates: Sequence[str | CandidateBody], k: int, bandit: Bandit, caller: ApiKey | None
) -> CandidateList:
    """The candidates of a request. Raises Invalid, Forbidden."""
    ids_alone = caller is not None and caller.visitor is not None and not caller.full_candidates
    match = bandit.match
    if match is None and are_ids(candidates):
        return CandidateList(_each_once(candidates), {})
    arms: list[str | Arm] = []
    match_values = dict[int, Mapping[str, object]]()
    for position, candidate in enumerate(candidates):
        if isinstance(candidate, str):
            arms.append(candidate)
            continue
        if ids_alone and len(candidate.model_fields_set) > 1:
            name = next(name for name in BESIDE_IDS if name in candidate.model_fields_set)
            reason = "a pass may send ids alone, unless the entry of its API key says candidates=full"
            raise Forbidden(reason, path=(WHERE, position, name))
        if candidate.match is not None:
            match_values[position] = candidate.match
        if candidate.is_own:
            arms.append(Arm(candidate.id, candidate.features, candidate.tags, candidate.metadata))
        elif candidate.tags:
            reason = "tags are of an arm of the request: give its features or metadata too"
            raise Invalid(reason, path=(WHERE, position, "tags"))
        else:
            arms.append(candidate.id)
    _each_once([arm if isinstance(arm, str) else arm.id for arm in arms])
    return await candidate_list(bandit.catalogue.encoding, arms, k, match_values, match)


def _each_once(ids: Sequence[Any]) -> Sequence[Any]:
    """The ids of candidates. Raises Invalid."""
    if len(set(ids)) < len(ids):
        refuse_repeats(ids, "a candidate must not be named twice", (WHERE,))
    return ids


def _of_visitor(body: ChooseItem, bandit: Bandit, visitor: str) -> tuple[str | None, str | None]:
    """Key and visitor of a request with a pass, which is for one visitor alone. Raises Forbidden."""
    for name in ("key", "visitor"):
        if getattr(body, name) not in {None, visitor}:
            raise Forbidden("the pass is of another visitor: leave it out", path=(name,))
    if body.baseline is not None:
        raise Forbidden("a pass cannot ask for a baseline", path=("baseline",))
    if bandit.record.scope == "per_key":
        return visitor, None
    return None, visitor if bandit.record.repeats is not None else None
