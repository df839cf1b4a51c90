"""What requests carry, as /openapi.json says: written by ``make client-types``.

They are the keyword arguments of the calls; the settings of a bandit are in ``settings``. A field that is
absent has the service's default.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol, Required, TypedDict

from shortlist_client.settings import BanditPatch, EncodedField


class Array(Protocol):
    """A numpy array, or whatever else can become a list."""

    def tolist(self) -> Any: ...


Vector = Sequence[float] | Array
Vectors = Sequence[Vector] | Array
Filter = Mapping[str, Any]
LogFactor = float | Literal["-Infinity"] | None
Context = Sequence[float] | Array | Mapping[str, float | str | Sequence[str] | None]


Estimator = Literal["ips", "snips", "dr"]


ExportFormat = Literal["ndjson", "parquet"]


LearnersThen = Literal["before", "now"]


MipsMethod = Literal["bounded_me", "racing", "exact", "hnsw", "adaptive"]


Objective = Literal["inner_product", "nearest"]


Order = Literal["asc", "desc"]


Propensities = Literal["logged", "draws"]


SampleMethod = Literal["racing_normal", "racing_ebs", "lil_ucb", "exact"]


class DryRunRequest(TypedDict, total=False):
    """``baseline`` names a finished slate campaign, whose slate is served instead of a draw. ``filter``:
    which arms are eligible. ``rules``: arms that stand at given places, and how many may share a value.
    ``context``: needed exactly when the bandit has one. ``include``: what comes with each arm: its
    metadata, or fields of them; and ``ranking``, all candidates. ``visitor``: whom a global bandit shows
    it to that has ``repeats``, or a constraint that remembers keys. ``weights``: of signals, over those
    of the bandit. ``candidates``: the only arms that may be chosen: ids of the catalogue, or arms of
    this request alone.
    """

    key: str | None
    k: int
    exclude: Sequence[str]
    seed: int | None
    baseline: str | None
    filter: Filter | None
    rules: RulesBody | None
    context: Context | None
    visitor: str | None
    include: Sequence[str]
    weights: Mapping[str, float] | None
    candidates: Sequence[str | CandidateBody] | None


class ChooseBody(DryRunRequest, total=False):
    event_id: str | None
    activate: bool


class PinBody(TypedDict):
    """``place`` is counted from 1."""

    arm: str
    place: int


class AtMostBody(TypedDict):
    """At most ``count`` arms of one choice share a value of ``field``."""

    field: str
    count: int


class DiverseBody(TypedDict, total=False):
    """Each place takes the arm of largest (1 - weight) x score, scaled to [0, 1] over the best arms, less
    weight x its largest likeness to those above: the cosine of their features, or 1 if they share a
    value of the field ``over``.
    """

    weight: Required[float]
    over: str


class RulesBody(TypedDict, total=False):
    pin: Sequence[PinBody]
    at_most: Sequence[AtMostBody]
    diverse: DiverseBody | None


class CandidateBody(TypedDict, total=False):
    """With ``features`` or ``metadata`` an arm of this request alone, written as an arm of the catalogue
    is; else the arm of the catalogue with this ``id``. ``match``: what this request says of the arm, by
    the fields of the bandit's ``match``.
    """

    id: Required[str]
    features: Vector
    metadata: Mapping[str, Any]
    tags: Sequence[str]
    match: Mapping[str, Any] | None


class DryRunBody(DryRunRequest, total=False):
    """``dry_run``: what would be chosen now, and why; then without ``event_id`` and ``activate``. The other
    fields are those of one choice of a batch.
    """

    dry_run: bool


class ChooseBatchBody(TypedDict, total=False):
    """``k`` of all requests together is at most 20,000.

    ``partial``: each request is answered by itself, with a choice or with its error, also for a wrong
    field. Without it an error of one is the error of all. ``distinct``: the requests are answered one
    after the other, and none shows an arm id shown by an earlier one.
    """

    partial: bool
    distinct: bool
    requests: Required[Sequence[ChooseBody]]


class PageItem(ChooseBody, total=False):
    """A choice of ``bandit``."""

    bandit: Required[str]


class ChoosePageBody(TypedDict, total=False):
    """Requests of several bandits, such as of the rows of a page. The other fields are those of a batch of
    one bandit.
    """

    partial: bool
    distinct: bool
    requests: Required[Sequence[PageItem]]


class RewardItem(TypedDict, total=False):
    """The reward of a decision, named by its token or its event: see DecisionItem. ``arm``: needed of a
    token of several arms; of an event the first is meant if it is absent. ``signal``: which of several
    rewards it is; needed exactly when the bandit has signals.

    ``at``: when it was so, in ms since 1970; needed where the last reward counts, elsewhere of no use.
    """

    event_id: str | None
    decision: str | None
    bandit: str | None
    key: str | None
    visitor: str | None
    value: Required[float]
    arm: str | None
    reward_id: str | None
    signal: str | None
    at: int | None


class RewardsBody(TypedDict):
    rewards: Sequence[RewardItem]


class DecisionItem(TypedDict, total=False):
    """A decision: its token ``decision``, or ``event_id`` and ``bandit`` of the event that it was made for;
    then ``key`` of a bandit of scope per_key, and ``visitor`` where it was chosen with a pass. A pass
    gives key and visitor by itself.
    """

    event_id: str | None
    decision: str | None
    bandit: str | None
    key: str | None
    visitor: str | None


class ActivationsBody(TypedDict):
    """Tokens, or events that decisions were made for."""

    decisions: Sequence[str | DecisionItem]


class IndexBody(TypedDict, total=False):
    """``target_recall``: the fastest structure that finds this share of the best arms serves. ``kind``:
    also one that a plug-in provides.
    """

    kind: Literal["auto", "exact", "hnsw", "milvus"]
    m: int
    ef_construction: int
    ef_search: int | None
    shortlist: int
    target_recall: float


class ReduceRule(TypedDict, total=False):
    """To how many numbers an embedding is reduced. ``basis``: by these rows; absent: by the rows of best
    fit to the arms, once there are enough.
    """

    to: Required[int]
    basis: Vectors | None


class EmbeddingRule(TypedDict, total=False):
    """``dim``: how many numbers the features of an arm have when they are given. ``reduce``: a number, or
    an object.
    """

    dim: Required[int]
    reduce: int | ReduceRule | None


class FeaturesRule(TypedDict, total=False):
    """The source of a catalogue's features: ``fields`` of the metadata, an ``embedding``, or both, the
    fields first.
    """

    fields: Sequence[EncodedField] | None
    embedding: EmbeddingRule | None


class DisplayBody(TypedDict, total=False):
    """``title``: the field of the metadata that names an arm for people. ``picture``: one with the address
    of its picture.
    """

    title: str | None
    picture: str | None


class CatalogueBody(TypedDict, total=False):
    """``dim`` numbers are given as the features of each arm, or ``features`` says what they are made from:
    then ``dim`` follows. ``display`` may differ from that of the catalogue which exists: it is changed;
    absent: it stays.
    """

    dim: int | None
    index: IndexBody
    features: FeaturesRule | None
    display: DisplayBody | None


class DisplayPatch(TypedDict, total=False):
    title: str | None
    picture: str | None


class CataloguePatch(TypedDict, total=False):
    display: DisplayPatch | None


class ArmBody(TypedDict, total=False):
    """``features`` may be absent where the catalogue encodes them from ``metadata`` alone."""

    id: Required[str]
    features: Vector
    tags: Sequence[str]
    metadata: Mapping[str, Any]


class ArmsBody(TypedDict):
    arms: Sequence[ArmBody]


class ArmIdsBody(TypedDict):
    ids: Sequence[str]


class CentersBody(TypedDict, total=False):
    """``epsilon`` is in units of |u - v|^2 / dimension; ``mix`` is used by ds_ts alone."""

    k: Required[int]
    method: Literal["ds_ucb", "ds_ts", "naive", "random"]
    delta: float
    ci: Literal["kl", "lil", "experiment"]
    c_alpha: float
    mix: float
    epsilon: float
    first: str | None
    seed: int | None
    filter: Filter | None


class CatalogueSampleBody(TypedDict, total=False):
    """``query`` or ``embedding``: one of them."""

    query: Vector | None
    embedding: Vector | None
    method: SampleMethod
    delta: float
    draws: int
    variance: Literal["pairwise", "marginal"]
    setting: Literal["safe", "heuristic"]
    seed: int | None
    temperature: float
    filter: Filter | None


class CenterCampaignBody(TypedDict, total=False):
    """``noise_std`` absent: estimated; ``epsilon`` absent: a tenth of the noise's standard deviation.

    ``epsilon`` is on the scale of the distances. ``mix`` is used by ns_ts, ``threshold`` by ns_tands.
    """

    id: Required[str]
    points: Required[Sequence[str]]
    k: Required[int]
    method: Literal["ns_ts", "ns_ucb", "ns_tands"]
    noise: Literal["gaussian", "bernoulli"]
    noise_std: float | None
    delta: float
    epsilon: float | None
    mix: float
    threshold: Literal["proven", "heuristic"]
    first: str | None
    seed: int | None


class AskQueriesBody(TypedDict, total=False):
    count: int


class DistanceItem(TypedDict):
    query: str
    distance: float


class TellDistancesBody(TypedDict):
    results: Sequence[DistanceItem]


class SampleBody(TypedDict, total=False):
    """D rows of N numbers. None and "-Infinity" are log 0: a row that has one is never drawn."""

    method: SampleMethod
    delta: float
    draws: int
    variance: Literal["pairwise", "marginal"]
    setting: Literal["safe", "heuristic"]
    seed: int | None
    log_factors: Required[Sequence[Sequence[LogFactor]] | Array]
    log_prior: Sequence[LogFactor] | Array | None


class SlateRulesBody(TypedDict):
    """``at_most`` limits how many arms of one slate share a value of a field, as in a choice."""

    at_most: Sequence[AtMostBody]


class SlateBody(TypedDict, total=False):
    """``noise_range`` R: the noise of each arm lies in [-R, R]. ``noise_std``: sub-Gaussian parameter of
    the noise of a total. One of the two must be given; ``independent_noise`` says that the arms of a
    slate err independently, and goes with ``noise_range``.

    ``rules`` say which slates are allowed, by a field of the arms: that of ``metadata``, by arm, or that
    of the arms of ``catalogue`` as they are when the campaign is made. With rules ``method`` is icb when
    absent.
    """

    id: Required[str]
    arms: Required[Sequence[str]]
    k: Required[int]
    method: Literal["saqm", "sa_foa", "icb", "exhaustive"]
    epsilon: float
    delta: float
    noise_range: float | None
    noise_std: float | None
    independent_noise: bool
    allocation: Literal["uniform", "g", "xy"]
    bound: Literal["certified", "paper"]
    rules: SlateRulesBody | None
    catalogue: str | None
    metadata: Mapping[str, Mapping[str, Any]] | None
    seed: int | None


class AskBody(TypedDict, total=False):
    count: int


class ResultItem(TypedDict):
    pull: str
    total: float


class TellBody(TypedDict):
    results: Sequence[ResultItem]


class TeachBody(TypedDict, total=False):
    """``key`` is required by a bandit of scope per_key, and refused by others."""

    bandit: Required[str]
    key: str | None


class LogEmbeddingBody(TypedDict, total=False):
    """``catalogue``: the name of the catalogue that is made if the log gains by it. ``dim``: how many
    coordinates. ``every``: judge again after this time until it gains, from "1h" to "90d"; None: once.
    ``signal``: of a bandit with signals, the one whose values are judged; None: their weighted sum.
    """

    catalogue: Required[str]
    dim: int
    every: str | None
    signal: str | None


class PolicyBody(BanditPatch, total=False):
    """As a patch, and ``weights`` of signals over those of the bandit, or a list of up to 50 such."""

    weights: Mapping[str, float] | Sequence[Mapping[str, float]] | None


class CatalogueMipsBody(TypedDict, total=False):
    """``filter``: which arms are searched. ``query`` or ``embedding``: one of them."""

    query: Vector | None
    embedding: Vector | None
    k: int
    method: MipsMethod
    epsilon: float
    delta: float
    objective: Objective
    value_range: Vector | None
    seed: int | None
    filter: Filter | None


class VectorsMipsBody(TypedDict, total=False):
    """Without ``value_range`` finding the range reads everything, so the answer is exact."""

    k: int
    method: MipsMethod
    epsilon: float
    delta: float
    objective: Objective
    value_range: Vector | None
    seed: int | None
    query: Required[Vector]
    vectors: Required[Vectors]


class MoveBody(TypedDict, total=False):
    """``carry``: how learners come along. ``map``: by the least-squares map between the features of the
    common arms of both catalogues, and not at all where the map explains less than a tenth of the new
    ones; ``none``: they begin from nothing. ``dry_run``: nothing is changed.
    """

    catalogue: Required[str]
    carry: Literal["map", "none"]
    dry_run: bool


class ObservationItem(TypedDict, total=False):
    """``values``: of the signals, instead of ``value``, exactly when the bandit has some. Signals without a
    name here are at their default. ``at``: when it was, in ms since 1970, now if absent; ``half_life_s``
    counts from then.
    """

    id: Required[str]
    arm: Required[str]
    value: float | None
    key: str | None
    context: Context | None
    values: Mapping[str, float] | None
    at: int | None


class ObservationsBody(TypedDict):
    observations: Sequence[ObservationItem]


class LearnerCopyBody(TypedDict):
    """``state``: as ``GET /v1/bandits/{b}/learners?include=state`` of a bandit like this one gave it."""

    state: str


class ExplainBody(TypedDict):
    """``decision``: its token."""

    decision: str


# ``policy``: what would be changed, as in PATCH; nothing is. ``from`` and ``to``: which decisions.
#
# ``learners``: whether decisions are weighed with learners as they were before them, or as they are
# now. ``propensities``: of decisions that have none in the log, left out or, with ``draws``,
# estimated. ``signal_places``: whether estimates of signals have their places too.
# "from" cannot be the name of a field of a class.
EvaluationBody = TypedDict(
    "EvaluationBody",
    {
        "policy": Required[PolicyBody],
        "from": str | None,
        "to": str | None,
        "learners": LearnersThen,
        "propensities": Propensities,
        "signal_places": bool,
        "estimators": Sequence[Estimator],
    },
    total=False,
)


# The arms with the one value of one field that ``filter`` asks for, or one ``arm``, are shown (or
# rewarded) at most ``most`` times in a window. Windows are multiples of ``per_s`` since ``from``, else
# since 1970; without it there is one. The quota holds from ``from`` until ``to``. ``pace`` even:
# spread evenly over the window. ``signal``: the one whose rewards count, of a bandit that has some;
# absent: those of all.
# "from" cannot be the name of a field of a class.
QuotaBody = TypedDict(
    "QuotaBody",
    {
        "most": Required[int],
        "filter": Filter | None,
        "arm": str | None,
        "per_s": float | None,
        "counts": Literal["shown", "rewarded"],
        "pace": Literal["none", "even"],
        "from": str | None,
        "to": str | None,
        "signal": str | None,
    },
    total=False,
)


class CatalogueQuery(TypedDict, total=False):
    include: Literal["basis"] | None


class PageQuery(TypedDict, total=False):
    cursor: str | None
    limit: int | None


class ArmsQuery(TypedDict, total=False):
    cursor: str | None
    limit: int | None
    sample_seed: int | None
    sort: str | None
    order: Order | None


# "from" cannot be the name of a field of a class.
LogQuery = TypedDict(
    "LogQuery",
    {
        "from": str | None,
        "to": str | None,
        "cursor": str | None,
        "limit": int | None,
        "order": Order | None,
    },
    total=False,
)


class LearnedQuery(TypedDict, total=False):
    partition: int | None
    cursor: str | None
    limit: int | None
    include: Literal["arms"] | None


class TermsQuery(TypedDict, total=False):
    cursor: str | None


class LearnersQuery(TypedDict, total=False):
    cursor: str | None
    limit: int | None
    include: Literal["state"] | None


class LearnerQuery(TypedDict, total=False):
    include: Literal["precision", "directions"] | None


class PriorQuery(TypedDict, total=False):
    include: Literal["covariance"] | None


class ArmEffectsQuery(TypedDict, total=False):
    order: Literal["largest", "smallest", "newest", "surest"] | None
    cursor: str | None
    limit: int | None


class EvaluationQuery(TypedDict, total=False):
    wait: Literal["none"] | None


# "from" cannot be the name of a field of a class.
ReportQuery = TypedDict(
    "ReportQuery",
    {
        "from": str | None,
        "to": str | None,
        "bucket_s": int | None,
    },
    total=False,
)


# "from" cannot be the name of a field of a class.
ExportQuery = TypedDict(
    "ExportQuery",
    {
        "format": ExportFormat | None,
        "from": str | None,
        "to": str | None,
    },
    total=False,
)


class WaitQuery(TypedDict, total=False):
    wait: Literal["applied"] | None


class VectorsMipsQuery(TypedDict, total=False):
    n: Required[int]
    dim: Required[int]
    k: int | None
    method: MipsMethod | None
    epsilon: float | None
    delta: float | None
    objective: Objective | None
    value_range: str | None
    seed: int | None
    query: str | None


class SampleQuery(TypedDict, total=False):
    n: Required[int]
    dim: Required[int]
    method: SampleMethod | None
    delta: float | None
    draws: int | None
    variance: Literal["pairwise", "marginal"] | None
    setting: Literal["safe", "heuristic"] | None
    seed: int | None
