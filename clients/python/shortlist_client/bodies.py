"""What requests carry. Every class has the fields of its schema in /openapi.json, under the same names.

They are the keyword arguments of the calls: a new field of a request is one line here; the settings of a
bandit are in ``settings``. A field that is absent has the service's default.
"""

from __future__ import annotations

import time
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


class IndexBody(TypedDict, total=False):
    kind: Literal["auto", "exact", "hnsw", "milvus"]
    m: int
    ef_construction: int
    ef_search: int | None
    shortlist: int
    target_recall: float


class DisplayBody(TypedDict):
    title: str


class ReduceRule(TypedDict, total=False):
    """``basis``: its rows; without it, one is fitted to the arms."""

    to: Required[int]
    basis: Vectors | None


class EmbeddingRule(TypedDict, total=False):
    """``dim``: how many features of an arm are given; ``reduce``: to how many."""

    dim: Required[int]
    reduce: int | ReduceRule | None


class FeaturesRule(TypedDict, total=False):
    """What the features are made from: ``fields`` of the metadata, an ``embedding``, or both."""

    fields: Sequence[EncodedField] | None
    embedding: EmbeddingRule | None


class CatalogueBody(TypedDict, total=False):
    """``dim`` features are given, or they are made as ``features`` says."""

    dim: int | None
    index: IndexBody
    features: FeaturesRule | None
    display: DisplayBody | None


class CatalogueQuery(TypedDict, total=False):
    include: Literal["basis"] | None


class DisplayPatch(TypedDict, total=False):
    title: str | None


class CataloguePatch(TypedDict, total=False):
    display: DisplayPatch | None


class ArmBody(TypedDict, total=False):
    id: Required[str]
    features: Vector
    tags: Sequence[str]
    metadata: Mapping[str, Any]


class ArmsBody(TypedDict):
    arms: Sequence[ArmBody]


class ArmIdsBody(TypedDict):
    ids: Sequence[str]


Estimator = Literal["ips", "snips", "dr"]


class PolicyBody(BanditPatch, total=False):
    """``weights`` of signals, or a list of such."""

    weights: Mapping[str, float] | Sequence[Mapping[str, float]] | None


LearnersThen = Literal["before", "now"]

# "from" cannot be the name of a field of a class.
EvaluationBody = TypedDict(
    "EvaluationBody",
    {
        "policy": Required[PolicyBody],
        "from": str | None,
        "to": str | None,
        "estimators": Sequence[Estimator],
        "learners": LearnersThen,
        "signal_places": bool,
    },
    total=False,
)


class PinBody(TypedDict):
    """``place`` is counted from 1."""

    arm: str
    place: int


class AtMostBody(TypedDict):
    """At most ``count`` arms of one choice share a value of ``field``."""

    field: str
    count: int


class DiverseBody(TypedDict, total=False):
    """``over``: "features", or a field of the metadata."""

    weight: Required[float]
    over: str


class RulesBody(TypedDict, total=False):
    pin: Sequence[PinBody]
    at_most: Sequence[AtMostBody]
    diverse: DiverseBody | None


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


class DryRunRequest(TypedDict, total=False):
    """``key`` is required by a bandit of scope per_key, and refused by others. ``include``: "metadata", or
    "metadata." and the name of a field.
    """

    key: str | None
    k: int
    exclude: Sequence[str]
    seed: int | None
    baseline: str | None
    filter: Filter | None
    rules: RulesBody | None
    context: Context | None
    include: Sequence[str]
    visitor: str | None
    weights: Mapping[str, float] | None


class DryRunBody(DryRunRequest, total=False):
    dry_run: bool


class ChooseBody(DryRunRequest, total=False):
    """``activate`` False: the decision counts from ``activate`` on."""

    event_id: str | None
    activate: bool


class ChooseBatchBody(TypedDict):
    requests: Sequence[ChooseBody]


class RewardItem(TypedDict, total=False):
    """``arm``: needed when the decision has more than one. ``reward_id``: for bandits that add rewards up.
    ``signal``: needed exactly by a bandit that has signals. ``at``: when it was so, in ms since 1970, now if
    absent: where the last reward counts, it is the one that is latest.
    """

    decision: Required[str]
    value: Required[float]
    arm: str | None
    reward_id: str | None
    signal: str | None
    at: int


def reward_item(
    decision: str,
    value: float,
    arm: str | None,
    *,
    reward_id: str | None,
    signal: str | None,
    at: int | None,
) -> RewardItem:
    """``signal`` is left out where there is none. ``at``: None is now."""
    item = RewardItem(decision=decision, value=value, arm=arm, reward_id=reward_id)
    if signal is not None:
        item["signal"] = signal
    return with_time(item, at)


def with_time(item: RewardItem, at: int | None = None) -> RewardItem:
    """The reward with its time; that of one without is ``at``, else now."""
    return {"at": time.time_ns() // 1_000_000 if at is None else at, **item}


class RewardsBody(TypedDict):
    rewards: Sequence[RewardItem]


class ExplainBody(TypedDict):
    decision: str


class ActivationsBody(TypedDict):
    decisions: Sequence[str]


class ObservationItem(TypedDict, total=False):
    """``at``: when it was, in ms since 1970, now if absent: ``half_life_s`` counts from then."""

    id: Required[str]
    arm: Required[str]
    value: float | None
    key: str | None
    context: Context | None
    values: Mapping[str, float] | None
    at: int | None


class ObservationsBody(TypedDict):
    observations: Sequence[ObservationItem]


class MoveBody(TypedDict, total=False):
    """``carry``: how learners come along; ``dry_run``: nothing is changed."""

    catalogue: Required[str]
    carry: Literal["auto", "log", "map", "none"]
    dry_run: bool


MipsMethod = Literal["bounded_me", "racing", "exact", "hnsw", "adaptive"]
Objective = Literal["inner_product", "nearest"]


class _MipsBody(TypedDict, total=False):
    """``epsilon`` is in units of the mean over coordinates; ``value_range`` bounds each coordinate's term."""

    k: int
    method: MipsMethod
    epsilon: float
    delta: float
    objective: Objective
    value_range: Sequence[float] | None
    seed: int | None


class CatalogueMipsBody(_MipsBody, total=False):
    """``query``, or an ``embedding`` where the catalogue has one."""

    query: Vector | None
    embedding: Vector | None
    filter: Filter | None


class VectorsMipsBody(_MipsBody, total=False):
    query: Required[Vector]
    vectors: Required[Vectors]


class VectorsMipsQuery(TypedDict, total=False):
    """``query``: numbers between commas; absent, they stand before the vectors in the body."""

    n: Required[int]
    dim: Required[int]
    k: int
    method: MipsMethod
    epsilon: float
    delta: float
    objective: Objective
    value_range: str
    seed: int
    query: str


SampleMethod = Literal["racing_normal", "racing_ebs", "lil_ucb", "exact"]


class _SampleBody(TypedDict, total=False):
    method: SampleMethod
    delta: float
    draws: int
    variance: Literal["pairwise", "marginal"]
    setting: Literal["safe", "heuristic"]
    seed: int | None


class SampleBody(_SampleBody, total=False):
    """D rows of N numbers; null is log 0."""

    log_factors: Required[Sequence[Sequence[LogFactor]] | Array]
    log_prior: Sequence[LogFactor] | Array | None


class SampleQuery(TypedDict, total=False):
    n: Required[int]
    dim: Required[int]
    method: SampleMethod
    delta: float
    draws: int
    variance: Literal["pairwise", "marginal"]
    setting: Literal["safe", "heuristic"]
    seed: int


class CatalogueSampleBody(_SampleBody, total=False):
    """``query``, or an ``embedding`` where the catalogue has one."""

    query: Vector | None
    embedding: Vector | None
    temperature: float
    filter: Filter | None


class CentersBody(TypedDict, total=False):
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


class CenterCampaignBody(TypedDict, total=False):
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


class SlateRulesBody(TypedDict):
    """One rule: how many arms of one slate may share a value of a field."""

    at_most: Sequence[AtMostBody]


class SlateBody(TypedDict, total=False):
    """Exactly one of ``noise_range`` and ``noise_std`` must be given; with ``rules`` exactly one of
    ``catalogue`` and ``metadata``, which is by arm: the fields that the rules speak of.
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
    bandit: Required[str]
    key: str | None


class LearnerCopyBody(TypedDict):
    """``state``: as ``list_learners(bandit, include="state")`` gave it, of a bandit like this one."""

    state: str


class PageQuery(TypedDict, total=False):
    cursor: str | None
    limit: int


Order = Literal["asc", "desc"]
LogQuery = TypedDict(
    "LogQuery",
    {"from": str | None, "to": str | None, "cursor": str | None, "limit": int, "order": Order | None},
    total=False,
)


class EvaluationQuery(TypedDict, total=False):
    wait: Literal["none"]


class LearnedQuery(PageQuery, total=False):
    partition: int
    include: Literal["arms"] | None


class ArmsQuery(PageQuery, total=False):
    sample_seed: int | None
    sort: str | None
    order: Order | None


class LearnersQuery(PageQuery, total=False):
    include: Literal["state"]


class WaitQuery(TypedDict, total=False):
    wait: Literal["applied"]


ReportQuery = TypedDict(
    "ReportQuery", {"from": str | None, "to": str | None, "bucket_s": int | None}, total=False
)
ExportFormat = Literal["ndjson", "parquet"]
ExportQuery = TypedDict(
    "ExportQuery", {"from": str | None, "to": str | None, "format": ExportFormat}, total=False
)


class PriorQuery(TypedDict, total=False):
    include: Literal["covariance"]


class LearnerQuery(TypedDict, total=False):
    include: Literal["precision", "directions"]
