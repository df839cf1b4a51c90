"""The table of all calls: what is asked where, what comes back, and whether it may be sent again.

A ``Route`` is one endpoint. ``Route.call`` makes a ``Call`` of it: one request, ready to be sent by anybody.
"""

from __future__ import annotations

import json
import re
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from math import isfinite
from typing import Any, Generic, Protocol, TypeVar
from urllib.parse import urlencode

from shortlist_client import answers, bodies, settings
from shortlist_client.decoding import decoder
from shortlist_client.errors import InvalidArgument

T = TypeVar("T")

IDENTIFIER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}")
GLOBAL_LEARNER = "_global"
PATCH = "PATCH"
JSON, NDJSON, RAW = "application/json", "application/x-ndjson", "application/octet-stream"
BLOCKS = "application/vnd.shortlist.arms"

Content = bytes | Iterable[bytes] | None
Fault = tuple[tuple[object, ...], str]


class Sink(Protocol):
    """What takes the bytes of a long answer: a file that is open for bytes, or anything like it."""

    def write(self, data: bytes, /) -> object:
        """Take the next bytes."""
        ...


class Repeat(Enum):
    """Whether a request may be sent again when nobody knows if the one before was done.

    ``SAFE``        done twice is as done once, or costs nothing
    ``UNTAGGED``    a change: safe without If-Match, which the change itself would have made wrong
    ``ONE_CHOICE``  a choice: safe with an event_id, or where a choice that nobody saw teaches nothing
    ``NEVER``       its body, or its answer, is a stream, which is gone once it was sent
    """

    SAFE = "safe"
    UNTAGGED = "untagged"
    ONE_CHOICE = "one choice"
    NEVER = "never"


# A new bandit without a position may learn one; null is none.
NULL_IS_A_VALUE = frozenset({"position"})
SAFE, UNTAGGED, ONE_CHOICE, NEVER = Repeat.SAFE, Repeat.UNTAGGED, Repeat.ONE_CHOICE, Repeat.NEVER


@dataclass(frozen=True, slots=True)
class Route(Generic[T]):
    """One endpoint. ``query`` and ``body`` are the fields that it takes, ``answer`` is what it gives."""

    method: str
    path: str
    answer: type[T]
    repeat: Repeat
    body: Any = None
    query: Any = None
    content_type: str = JSON

    def call(
        self,
        *names: str,
        body: Mapping[str, Any] | None = None,
        content: Content = None,
        query: Mapping[str, Any] | None = None,
        safe: bool | None = None,
        headers: Mapping[str, str] | None = None,
        into: Sink | None = None,
    ) -> Call[T]:
        """One request. ``names`` fill the path. Fields that are None are left out, for absent means the same;
        not those of a patch, nor those of ``NULL_IS_A_VALUE``.

        ``safe``: whether it may be sent again, if not as the table says. ``into``: a file for the answer.
        Raises InvalidArgument.
        """
        path = self._filled(names)
        if query and (given := given_of(query)):
            path = f"{path}?{urlencode(given)}"
        if body is not None:
            content = encoded(body if self.method == PATCH else given_of(body))
        safe = self.repeat is SAFE if safe is None else safe
        return Call(self, path, content, safe, headers or {}, into)

    def _filled(self, names: tuple[str, ...]) -> str:
        if not names:
            return self.path
        parts = re.split(r"\{(\w+)\}", self.path)
        for place, name in enumerate(names):
            field = parts[2 * place + 1]
            if not (isinstance(name, str) and (IDENTIFIER.fullmatch(name) or name == GLOBAL_LEARNER)):
                rule = "must be of letters, digits and . _ : -, begin with a letter or digit, and be short"
                raise InvalidArgument(f"{self.method} {self.path}: {field} {rule} (at most 128)")
            parts[2 * place + 1] = name
        return "".join(parts)


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """One request. ``safe``: it may be sent again. ``path`` has the query. ``into``: takes the answer."""

    route: Route[T]
    path: str
    content: Content
    safe: bool
    headers: Mapping[str, str]
    into: Sink | None = None

    def __iter__(self) -> Generator[Call[Any], Any, T]:
        """``answer = yield from call``: a step of a function that needs more than one call."""
        answer: T = yield self
        return answer

    def __str__(self) -> str:
        return f"{self.route.method} {self.path.partition('?')[0]}"

    def read(self, content: bytes, headers: Mapping[str, str]) -> T:
        """The answer. Raises ValueError, KeyError, TypeError or AttributeError if it is none of this call."""
        kind: Any = self.route.answer
        if kind is NOTHING:
            return None  # type: ignore[return-value]  # T is None
        if kind is bytes:
            return content  # type: ignore[return-value]  # T is bytes
        if kind is str:
            return content.decode()  # type: ignore[return-value]  # T is str
        document = json.loads(content)
        if kind in WITH_HEADERS:
            document |= {name: headers[name] for name in WITH_HEADERS[kind] if name in headers}
        answer: T = decoder(kind)(document)
        return answer


def given_of(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Without those that are None and mean nothing by it."""
    return {name: value for name, value in fields.items() if value is not None or name in NULL_IS_A_VALUE}


def encoded(document: Any) -> bytes:
    """JSON as the service reads it. Raises InvalidArgument that names the field."""
    try:
        return json.dumps(document, allow_nan=False, separators=(",", ":"), default=_listed).encode()
    except (ValueError, TypeError, RecursionError) as error:
        if (fault := fault_of(document)) is None:
            raise InvalidArgument(f"this cannot be sent as JSON: {error}") from None
        path, reason = fault
        raise InvalidArgument(f"{'.'.join(map(str, path)) or 'this'}: {reason}") from None


def fault_of(document: Any) -> Fault | None:
    """The first value that is none of JSON: its path, and what is wrong; None where none is found."""
    with suppress(RecursionError):
        return next(_faults(document, ()), None)
    return None


def _faults(value: Any, path: tuple[object, ...]) -> Iterator[Fault]:
    if isinstance(value, dict):
        for name, each in value.items():
            if not isinstance(name, str | int | float | None):
                yield path, f"the name of a field must be a text, not {type(name).__name__}"
            yield from _faults(each, (*path, name))
    elif isinstance(value, list | tuple):
        for place, each in enumerate(value):
            yield from _faults(each, (*path, place))
    elif isinstance(value, float):
        if not isfinite(value):
            yield path, f"{value} cannot be sent as JSON: give a finite number, or leave the field out"
    elif value is not None and not isinstance(value, str | int):
        try:
            listed = _listed(value)
        except TypeError:
            kind = type(value).__name__
            yield (
                path,
                f"{kind} cannot be sent as JSON: give a number, a text, a list or a dict, or leave it out",
            )
        else:
            yield from _faults(listed, path)


def _listed(value: Any) -> Any:
    """Arrays, and numbers of arrays. Times have a ``tolist`` too: it gives integers of some unit, or None."""
    tolist, kind = getattr(value, "tolist", None), getattr(getattr(value, "dtype", None), "kind", "")
    if tolist is None or kind in {"m", "M"}:
        raise TypeError(f"{type(value).__name__} is no JSON type")
    return tolist()


NOTHING = type(None)
WITH_HEADERS: dict[Any, tuple[str, ...]] = {answers.Bandit: ("etag",)}
_CATALOGUE, _BANDIT = "/v1/catalogues/{catalogue}", "/v1/bandits/{bandit}"
_LEARNER, _SLATES, _CENTERS = f"{_BANDIT}/learners/{{key}}", "/v1/slates/{campaign}", "/v1/centers/{campaign}"
_QUOTA = f"{_BANDIT}/quotas/{{quota}}"
_PAGE, _WAIT = bodies.PageQuery, bodies.WaitQuery

PUT_CATALOGUE = Route("PUT", _CATALOGUE, answers.Catalogue, SAFE, bodies.CatalogueBody)
GET_CATALOGUE = Route("GET", _CATALOGUE, answers.Catalogue, SAFE, query=bodies.CatalogueQuery)
FIT_FEATURES = Route("POST", f"{_CATALOGUE}/features/fit", answers.Catalogue, SAFE)
LIST_CATALOGUES = Route("GET", "/v1/catalogues", answers.Page[answers.Catalogue], SAFE, query=_PAGE)
PATCH_CATALOGUE = Route(PATCH, _CATALOGUE, answers.Catalogue, SAFE, bodies.CataloguePatch)
LIST_FIELDS = Route("GET", f"{_CATALOGUE}/fields", answers.Page[answers.CatalogueField], SAFE, query=_PAGE)
DELETE_CATALOGUE = Route("DELETE", _CATALOGUE, NOTHING, SAFE)

UPSERT_ARMS = Route("PUT", f"{_CATALOGUE}/arms", answers.Upserted, SAFE, bodies.ArmsBody)
GET_ARM = Route("GET", f"{_CATALOGUE}/arms/{{arm}}", answers.Arm, SAFE)
LIST_ARMS = Route("GET", f"{_CATALOGUE}/arms", answers.Page[answers.Arm], SAFE, query=bodies.ArmsQuery)
DELETE_ARM = Route("DELETE", f"{_CATALOGUE}/arms/{{arm}}", NOTHING, SAFE)
DELETE_ARMS = Route("POST", f"{_CATALOGUE}/arms/delete", answers.Deleted, SAFE, bodies.ArmIdsBody)
IMPORT_ARMS = Route("POST", f"{_CATALOGUE}/import", answers.Upserted, NEVER, content_type=NDJSON)
IMPORT_BLOCKS = Route("POST", f"{_CATALOGUE}/import", answers.Upserted, NEVER, content_type=BLOCKS)
MAKE_EMBEDDING = Route(
    "POST", f"{_CATALOGUE}/embeddings", answers.Catalogue, NEVER, content_type=BLOCKS
)  # fmt: skip

PUT_BANDIT = Route("PUT", _BANDIT, answers.Bandit, SAFE, settings.BanditBody)
GET_BANDIT = Route("GET", _BANDIT, answers.Bandit, SAFE)
LIST_BANDITS = Route("GET", "/v1/bandits", answers.Page[answers.Bandit], SAFE, query=_PAGE)
PATCH_BANDIT = Route(PATCH, _BANDIT, answers.Bandit, UNTAGGED, settings.BanditPatch)
LIST_LOG = Route("GET", f"{_BANDIT}/log", answers.Page[answers.LoggedDecision], SAFE, query=bodies.LogQuery)
LIST_LEARNED = Route("GET", f"{_BANDIT}/log/rewards", answers.LearnedPage, SAFE, query=bodies.LearnedQuery)
LIST_REVISIONS = Route("GET", f"{_BANDIT}/log/arms", answers.Revisions, SAFE, query=_PAGE)
LIST_PRIORS = Route("GET", f"{_BANDIT}/log/priors", answers.PriorVersions, SAFE, query=_PAGE)
GET_TERMS = Route("GET", f"{_BANDIT}/log/terms", answers.LearningTerms, SAFE, query=bodies.TermsQuery)
LIST_VERSIONS = Route("GET", f"{_BANDIT}/versions", answers.Page[answers.BanditVersion], SAFE, query=_PAGE)
REPORT = Route("GET", f"{_BANDIT}/report", answers.Report, SAFE, query=bodies.ReportQuery)
EXPORT_LOG = Route("GET", f"{_BANDIT}/log/export", NOTHING, NEVER, query=bodies.ExportQuery)
EXPLAIN = Route("POST", f"{_BANDIT}/log/explain", answers.Explanation, SAFE, bodies.ExplainBody)
EVALUATE = Route("POST", f"{_BANDIT}/evaluations", answers.Evaluation, SAFE, bodies.EvaluationBody)
START_EVALUATION = Route(
    "POST", f"{_BANDIT}/evaluations", answers.StartedEvaluation, NEVER, bodies.EvaluationBody,
    query=bodies.EvaluationQuery,
)  # fmt: skip
LIST_EVALUATIONS = Route(
    "GET", f"{_BANDIT}/evaluations", answers.Page[answers.EvaluationJob], SAFE, query=_PAGE
)
GET_EVALUATION = Route("GET", f"{_BANDIT}/evaluations/{{evaluation}}", answers.EvaluationResult, SAFE)
DELETE_EVALUATION = Route("DELETE", f"{_BANDIT}/evaluations/{{evaluation}}", NOTHING, SAFE)
START_EMBEDDING = Route(
    "POST", f"{_BANDIT}/embeddings", answers.StartedEmbedding, NEVER, bodies.LogEmbeddingBody
)  # fmt: skip
LIST_EMBEDDINGS = Route(
    "GET", f"{_BANDIT}/embeddings", answers.Page[answers.EmbeddingJobHead], SAFE, query=_PAGE
)
GET_EMBEDDING = Route("GET", f"{_BANDIT}/embeddings/{{embedding}}", answers.EmbeddingJob, SAFE)
DELETE_EMBEDDING = Route("DELETE", f"{_BANDIT}/embeddings/{{embedding}}", NOTHING, SAFE)
PUT_QUOTA = Route("PUT", _QUOTA, answers.Quota, SAFE, bodies.QuotaBody)
GET_QUOTA = Route("GET", _QUOTA, answers.Quota, SAFE)
LIST_QUOTAS = Route("GET", f"{_BANDIT}/quotas", answers.Page[answers.Quota], SAFE, query=_PAGE)
DELETE_QUOTA = Route("DELETE", _QUOTA, NOTHING, SAFE)
DELETE_BANDIT = Route("DELETE", _BANDIT, NOTHING, SAFE)

CHOOSE = Route("POST", f"{_BANDIT}/choose", answers.Choice, ONE_CHOICE, bodies.ChooseBody)
DRY_RUN = Route("POST", f"{_BANDIT}/choose", answers.DryRun, SAFE, bodies.DryRunBody)
CHOOSE_BATCH = Route("POST", f"{_BANDIT}/choose/batch", answers.Choices, ONE_CHOICE, bodies.ChooseBatchBody)
CHOOSE_PAGE = Route("POST", "/v1/choose/batch", answers.Choices, ONE_CHOICE, bodies.ChoosePageBody)
ACTIVATE = Route("POST", "/v1/decisions/activate", answers.Activation, SAFE, bodies.ActivationsBody)
REWARDS = Route("POST", "/v1/rewards", answers.Receipt, SAFE, bodies.RewardsBody, _WAIT)
OBSERVE = Route("POST", f"{_BANDIT}/observations", answers.Receipt, SAFE, bodies.ObservationsBody, _WAIT)
LIST_LEARNERS = Route(
    "GET", f"{_BANDIT}/learners", answers.Page[answers.LearnerCopy], SAFE, query=bodies.LearnersQuery
)
PUT_LEARNER = Route("PUT", _LEARNER, answers.LearnerCopy, SAFE, bodies.LearnerCopyBody)
PUT_LEARNER_STATE = Route("PUT", _LEARNER, answers.LearnerCopy, SAFE, content_type=RAW)
GET_LEARNER_STATE = Route("GET", _LEARNER, bytes, SAFE)
GET_LEARNER = Route("GET", _LEARNER, answers.Learner, SAFE, query=bodies.LearnerQuery)
DELETE_LEARNER = Route("DELETE", _LEARNER, NOTHING, SAFE)
DELETE_VISITOR = Route("DELETE", f"{_BANDIT}/visitors/{{visitor}}", NOTHING, SAFE)
GET_EXPOSURES = Route("GET", f"{_LEARNER}/exposures", answers.Exposures, SAFE)
GET_SETS = Route("GET", f"{_LEARNER}/sets", answers.Sets, SAFE)
LIST_POLICIES = Route("GET", "/v1/policies", answers.Policies, SAFE)
GET_PRIOR = Route("GET", f"{_BANDIT}/prior", answers.Prior, SAFE, query=bodies.PriorQuery)
LIST_ARM_EFFECTS = Route(
    "GET", f"{_BANDIT}/arm-effects", answers.ArmEffects, SAFE, query=bodies.ArmEffectsQuery
)
GET_ARM_EFFECT = Route("GET", f"{_BANDIT}/arm-effects/{{arm}}", answers.OneArmEffect, SAFE)
MOVE_BANDIT = Route("POST", f"{_BANDIT}/move", answers.Move, SAFE, bodies.MoveBody)
REFRESH_PRIOR = Route("POST", f"{_BANDIT}/prior/refresh", answers.Prior, SAFE)

MIPS = Route("POST", f"{_CATALOGUE}/mips", answers.MipsAnswer, SAFE, bodies.CatalogueMipsBody)
MIPS_VECTORS = Route("POST", "/v1/mips", answers.VectorsAnswer, SAFE, bodies.VectorsMipsBody)
MIPS_RAW = Route(
    "POST", "/v1/mips", answers.VectorsAnswer, SAFE, query=bodies.VectorsMipsQuery, content_type=RAW
)
SAMPLE = Route("POST", "/v1/sample", answers.Draws, SAFE, bodies.SampleBody)
SAMPLE_RAW = Route("POST", "/v1/sample", answers.Draws, SAFE, query=bodies.SampleQuery, content_type=RAW)
SAMPLE_ARMS = Route("POST", f"{_CATALOGUE}/sample", answers.ArmDraws, SAFE, bodies.CatalogueSampleBody)
FIND_CENTERS = Route("POST", f"{_CATALOGUE}/centers", answers.Centers, SAFE, bodies.CentersBody)

# An ask that is repeated hands out new questions; those of a lost answer stay without one, which is allowed.
CREATE_SLATES = Route("POST", "/v1/slates", answers.SlateCampaign, SAFE, bodies.SlateBody)
GET_SLATES = Route("GET", _SLATES, answers.SlateCampaign, SAFE)
LIST_SLATES = Route("GET", "/v1/slates", answers.Page[answers.CampaignName], SAFE, query=_PAGE)
DELETE_SLATES = Route("DELETE", _SLATES, NOTHING, SAFE)
ASK_SLATES = Route("POST", f"{_SLATES}/ask", answers.Pulls, SAFE, bodies.AskBody)
TELL_SLATES = Route("POST", f"{_SLATES}/tell", answers.SlateTold, SAFE, bodies.TellBody)
TEACH_SLATES = Route("POST", f"{_SLATES}/teach", answers.Receipt, SAFE, bodies.TeachBody, _WAIT)

CREATE_CENTERS = Route("POST", "/v1/centers", answers.CenterCampaign, SAFE, bodies.CenterCampaignBody)
GET_CENTERS = Route("GET", _CENTERS, answers.CenterCampaign, SAFE)
LIST_CENTERS = Route("GET", "/v1/centers", answers.Page[answers.CampaignName], SAFE, query=_PAGE)
DELETE_CENTERS = Route("DELETE", _CENTERS, NOTHING, SAFE)
ASK_CENTERS = Route("POST", f"{_CENTERS}/ask", answers.Queries, SAFE, bodies.AskQueriesBody)
TELL_CENTERS = Route("POST", f"{_CENTERS}/tell", answers.CenterTold, SAFE, bodies.TellDistancesBody)

HEALTH = Route("GET", "/healthz", answers.Health, SAFE)
READY = Route("GET", "/readyz", answers.Ready, SAFE)
METRICS = Route("GET", "/metrics", str, SAFE)
STATUS = Route("GET", "/v1/status", answers.Status, SAFE)
ROOT = Route("GET", "/", answers.Root, SAFE)

ROUTES: tuple[Route[Any], ...] = tuple(each for each in globals().values() if isinstance(each, Route))
