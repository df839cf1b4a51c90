"""What the service answers, as /openapi.json says: written by ``make client-types``.

A field that the service does not know yet has a default, and one that this client does not know is ignored:
client and service may be of different versions. ``None`` stands for null.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from shortlist_client.settings import RepeatsRule, Settings

T = TypeVar("T")

# Marks a field that is a header of the answer, of the field's name.
HEADER = {"header": True}


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """A part of a list; ``next`` is the cursor of the part after it, None at the end."""

    items: tuple[T, ...]
    next: str | None


@dataclass(frozen=True, slots=True)
class ChosenArm:
    """``propensity``: the probability of this arm given those before it, of a policy that knows it and of
    the holdout. ``pinned``: the arm stands here because of a rule. ``metadata``: where ``include`` asks
    for them.
    """

    id: str
    score: float
    propensity: float | None = None
    pinned: bool = False
    metadata: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class RankedCandidate:
    """``first``: the propensity of standing first, of a policy that knows propensities and of a random
    holdout: 0 of one that is not eligible. ``eligible``: false of one that filters, exclusions, rules,
    quotas or caps leave out; absent of the others, and of pinned ones.
    """

    id: str
    score: float
    first: float | None = None
    eligible: bool = True


@dataclass(frozen=True, slots=True)
class Choice:
    """Arms, the best first. ``decision``: the token to reward them with. ``bandit_version``: of the
    settings of the choice. ``eligible``: number of arms matched by the filters, if any. ``group``:
    "policy" or "holdout", of a bandit with a holdout. ``weights``: of the signals, of a bandit with
    some. ``prior_version``: of the learned prior, 0 while there is none; absent of a bandit with another
    prior. ``effects_version``: of the arm effects, 0 while none are found; absent of a bandit without.
    ``unknown``: number of candidates missing in the catalogue; absent for 0. ``ranking``: all existing
    candidates, the largest score first, where ``include`` asks for a ranking; absent of a choice made
    for its event before.
    """

    decision: str
    arms: tuple[ChosenArm, ...]
    policy: str
    learner_version: int
    catalogue_version: int
    exact: bool
    bandit_version: int
    stale_s: float | None = None
    eligible: int | None = None
    group: str | None = None
    weights: Mapping[str, float] | None = None
    prior_version: int | None = None
    effects_version: int | None = None
    unknown: int = 0
    ranking: tuple[RankedCandidate, ...] | None = None


@dataclass(frozen=True, slots=True)
class DryRunArm:
    """``estimate``: the reward that the learner expects of the arm. ``width``: the standard deviation of
    the estimate. ``draw``: the drawn value of the arm, of policies which choose by such values; None of
    others, of pinned arms, of a baseline and of the holdout. ``prior``: the part of the estimate shared
    by a new key, by the learned prior; the rest is from this key's rewards. ``effect``: the arm's part
    beyond its features, for all keys. ``age``: what its age adds, a part of ``effect``. All absent
    without. ``place``: how likely its place is looked at, by which the estimate is multiplied there;
    absent without ``position``.
    """

    id: str
    score: float
    estimate: float
    width: float
    draw: float | None
    propensity: float | None = None
    pinned: bool = False
    metadata: Mapping[str, Any] | None = None
    prior: float | None = None
    effect: float | None = None
    place: float | None = None
    age: float | None = None


@dataclass(frozen=True, slots=True)
class DryRun:
    """As a choice, without a decision."""

    arms: tuple[DryRunArm, ...]
    policy: str
    learner_version: int
    catalogue_version: int
    exact: bool
    bandit_version: int
    stale_s: float | None = None
    eligible: int | None = None
    group: str | None = None
    weights: Mapping[str, float] | None = None
    prior_version: int | None = None
    effects_version: int | None = None
    unknown: int = 0
    ranking: tuple[RankedCandidate, ...] | None = None


@dataclass(frozen=True, slots=True)
class Choices:
    """In the order of the requests. Errors are only in answers to ``partial``."""

    results: tuple[Choice, ...]


@dataclass(frozen=True, slots=True)
class Rejected:
    """The item at ``index`` of a batch was not taken; ``code`` says why."""

    index: int
    code: str


@dataclass(frozen=True, slots=True)
class Receipt:
    """``duplicate`` counts rewards which were there before: after a lost answer all of the first attempt."""

    accepted: int
    duplicate: int
    rejected: tuple[Rejected, ...]


@dataclass(frozen=True, slots=True)
class Activation:
    """``duplicate`` counts decisions that were activated before."""

    activated: int
    duplicate: int
    rejected: tuple[Rejected, ...]


@dataclass(frozen=True, slots=True)
class Health:
    status: str


@dataclass(frozen=True, slots=True)
class Ready:
    """``backlog``: rewards that are not applied yet, the oldest for ``lag_s`` seconds."""

    status: str
    backlog: int
    lag_s: float


@dataclass(frozen=True, slots=True)
class Loss:
    """A loss of data. ``at``: when noticed, in UTC (ISO 8601). ``what``: the lost data, for a human."""

    at: str
    what: str


@dataclass(frozen=True, slots=True)
class Finding:
    """One statement: well (``good``), or not, or neither (None). ``text``: without a full stop."""

    name: str
    good: bool | None
    text: str


@dataclass(frozen=True, slots=True)
class Plugin:
    """A loaded package. ``provides``: each thing as ``group:name``."""

    name: str
    version: str
    provides: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Status:
    """What runs, and how much of it there is.

    ``store``: when its writes reach the disk, as ``appendfsync`` says. ``loss``: what it has lost, if
    anything. ``findings``: what `shortlist doctor` says of it. ``plugins``: those that are loaded.
    """

    uptime_s: float
    ready: bool
    store: str
    worker: bool
    backlog: int
    catalogues: int
    arms: int
    bandits: int
    cached_learners: int
    cached_learner_bytes: int
    loss: Loss | None
    version: str
    python: str
    findings: tuple[Finding, ...] = ()
    store_away_since: int | None = None
    plugins: tuple[Plugin, ...] = ()


@dataclass(frozen=True, slots=True)
class UsedFilter:
    """A filter in use. ``way``: how its arms are searched; recall and ratio as measured for it,
    ``expected_us`` the typical time of a search in microseconds.
    """

    filter: Mapping[str, Any]
    eligible: int
    way: str
    uses: int
    recall_at_1: float
    ratio_mean: float
    expected_us: float
    reason: str


@dataclass(frozen=True, slots=True)
class EncodedField:
    """``category`` and ``categories`` need ``values``, ``cycle`` needs ``period``, ``hash`` needs ``size``;
    ``number`` may have ``mean`` (0 if absent) and ``scale`` (1), both of log(1 + v) with ``log``.
    """

    name: str
    kind: str
    values: tuple[str, ...] | None = None
    period: float | None = None
    mean: float | None = None
    scale: float | None = None
    size: int | None = None
    log: bool | None = None


@dataclass(frozen=True, slots=True)
class Reduce:
    """To how many numbers an embedding is reduced. ``basis``: by these rows; absent: by the rows of best
    fit to the arms, once there are enough.
    """

    to: int
    basis: tuple[tuple[float, ...], ...] | None = None


@dataclass(frozen=True, slots=True)
class Embedding:
    """``dim``: how many numbers the features of an arm have when they are given. ``reduce``: a number, or
    an object.
    """

    dim: int
    reduce: Reduce | None = None


@dataclass(frozen=True, slots=True)
class Features:
    """The source of a catalogue's features: ``fields`` of the metadata, an ``embedding``, or both, the
    fields first.
    """

    fields: tuple[EncodedField, ...] | None = None
    embedding: Embedding | None = None


@dataclass(frozen=True, slots=True)
class Reduction:
    """The reduction of the embeddings. ``state``: ``not_fitted`` until there are enough arms, ``given``
    with the catalogue, or ``fitted`` to so many ``arms``: then ``share_of_variance`` is the kept part of
    their squared lengths, and ``overlap_at_10`` the number of an arm's 10 nearest which stay among them.
    """

    to: int
    state: str
    arms: int = 0
    share_of_variance: float | None = None
    overlap_at_10: float | None = None


@dataclass(frozen=True, slots=True)
class Unlisted:
    """Arms with values which the field does not list: the number of ``arms``, and the most frequent of the
    values.
    """

    arms: int
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Display:
    """``title``: the field of the metadata that names an arm for people. ``picture``: one with the address
    of its picture.
    """

    title: str | None = None
    picture: str | None = None


@dataclass(frozen=True, slots=True)
class HeldOutErrors:
    """Mean squared errors on held-out rewards: of the catalogue ``before``, and of this one."""

    before: float
    after: float


@dataclass(frozen=True, slots=True)
class HistoryPrior:
    """The history's knowledge of a key before it has rewards: from so many ``keys``; so many of the
    ``directions`` in which they differ are real.
    """

    keys: int
    directions: int


@dataclass(frozen=True, slots=True)
class Behaviour:
    """The source of an embedding: so many ``rewards`` of so many ``keys``, of so many ``arms``; arms
    ``without`` any have features from their fields.

    ``held_out``: None where nothing was held out. ``prior``: the start of new bandits; None where
    nothing is known of keys.
    """

    rewards: int
    keys: int
    arms: int
    without: int
    held_out: HeldOutErrors | None
    prior: HistoryPrior | None = None


@dataclass(frozen=True, slots=True)
class Catalogue:
    """``size``: its number of arms. ``filters``: those that were asked most often lately; none for an API
    key that does not see all bandits of the catalogue.

    ``index``: ``kind`` is what serves, ``exact`` whether every search is exact: by ``exact``, a plain
    scan, and by ``norm_pruned``, which reads the longest arms first and stops where no other can win.
    ``recall_at_1``, ``recall_at_10`` and ``recall_at_100`` are of the best arm and of lists; the last
    two are absent where the arms are in an engine, where lists are not measured. ``arms_in_memory``:
    true if the arms can be searched exactly, sorted, and their fields counted; false for an engine.
    ``build_left_s``: for how many seconds more a structure will be built, by its own progress, before it
    is measured; None where none is built, before its first part is, and in processes that wait for
    another one to build it. Absent where the arms are in an engine.

    Of a catalogue with ``features``: what these are made from, without a basis; ``columns``, what each
    number means; ``reduction`` of its embedding; ``unlisted`` values of fields, which count as missing:
    absent in lists, and where the arms are in an engine. ``basis``: where it is asked for. ``warnings``:
    what these features cost; absent if nothing is to be said. ``findings``: what is wrong with it, as in
    `/v1/status`; absent if nothing is.

    Of a catalogue that ``follows`` another one: ``behaviour``, of which its features are an embedding;
    ``filled``: whether it has had all arms. ``state``: its index, or what has its arms, is of a plug-in
    that is not loaded here, so its bandits choose nothing; else absent.
    """

    id: str
    dim: int
    size: int
    version: int
    index: Mapping[str, Any]
    state: str | None = None
    filters: tuple[UsedFilter, ...] = ()
    features: Features | None = None
    columns: tuple[str, ...] | None = None
    reduction: Reduction | None = None
    unlisted: Mapping[str, Unlisted] | None = None
    basis: tuple[tuple[float, ...], ...] | None = None
    warnings: tuple[str, ...] | None = None
    findings: tuple[Finding, ...] | None = None
    display: Display | None = None
    follows: str | None = None
    filled: bool | None = None
    behaviour: Behaviour | None = None

    @property
    def given(self) -> int:
        """How many features of an arm are sent, if any are."""
        embedding = None if self.features is None else self.features.embedding
        return self.dim if embedding is None else embedding.dim


@dataclass(frozen=True, slots=True)
class CatalogueField:
    """A field of the metadata, or ``tags``: how many ``arms`` have it, and in ``types`` how many have a
    string, a number, a boolean, or none of these (None, an object, an empty list). ``values``: the most
    frequent of ``distinct`` ones, at most 20, and in ``counts`` how often each is there.

    ``words``: of a field that the catalogue hashes, for each of its numbers the most frequent words
    among its frequent texts; those that count as -1 begin with "-". Absent of others.
    """

    field: str
    arms: int
    types: Mapping[str, int]
    distinct: int
    values: tuple[str | float | bool, ...]
    counts: tuple[int, ...]
    words: tuple[tuple[str, ...], ...] | None = None


@dataclass(frozen=True, slots=True)
class Upserted:
    """``version`` is that of the catalogue afterwards."""

    added: int
    updated: int
    version: int


@dataclass(frozen=True, slots=True)
class Arm:
    """One arm as a user gives and gets it."""

    id: str
    features: tuple[float, ...]
    tags: tuple[str, ...]
    metadata: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Deleted:
    """``missing`` names the arms that were not there."""

    deleted: int
    missing: tuple[str, ...]
    version: int


@dataclass(frozen=True, slots=True)
class Guarantee:
    """``exact``: greedy's own centres, always. ``pac``: with probability at least 1 - delta every centre
    was, when it was chosen, within epsilon of the farthest arm. ``none``: no promise.
    """

    kind: str
    epsilon: float
    delta: float


@dataclass(frozen=True, slots=True)
class Cost:
    """Coordinates read of pairs of arms, and what reading all of them would be: arms x dimension x k."""

    reads: int | None
    exhaustive_reads: int


@dataclass(frozen=True, slots=True)
class Centers:
    """``radius`` is the distance from the centres of the arm that is farthest from them."""

    centers: tuple[str, ...]
    radius: float
    method: str
    guarantee: Guarantee
    cost: Cost
    catalogue_version: int
    elapsed_ms: float


@dataclass(frozen=True, slots=True)
class SampleGuarantee:
    """``exact``: drawn from p. ``pac``: each draw is within ``delta`` of p in total variation; ``assumes``
    names a condition of that. ``none``: no promise. ``reason`` explains a kind that was not asked for.
    """

    kind: str
    delta: float
    assumes: str | None
    reason: str | None


@dataclass(frozen=True, slots=True)
class ArmDraws:
    """``draws`` are ids of arms, each an independent draw: an arm may appear more than once."""

    draws: tuple[str, ...]
    method: str
    guarantee: SampleGuarantee
    cost: Cost
    catalogue_version: int
    elapsed_ms: float


@dataclass(frozen=True, slots=True)
class CenterCampaign:
    """The state of a campaign. ``radius`` is estimated from the answers, for all centres but the last."""

    id: str
    method: str
    k: int
    points: int
    state: str
    issued: int
    observed: int
    centers: tuple[str, ...]
    radius: float | None
    guarantee: Guarantee


@dataclass(frozen=True, slots=True)
class CampaignName:
    id: str


@dataclass(frozen=True, slots=True)
class DistanceQuery:
    """Asks how far apart the two points of ``pair`` are."""

    query: str
    pair: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Queries:
    """None, and ``done``, when the campaign has ended."""

    queries: tuple[DistanceQuery, ...]
    done: bool


@dataclass(frozen=True, slots=True)
class CenterTold:
    """New results, results that were there already, and whether all centres are found."""

    observed: int
    duplicate: int
    done: bool


@dataclass(frozen=True, slots=True)
class Draws:
    """``draws`` are rows of the request, each an independent draw."""

    draws: tuple[int, ...]
    method: str
    guarantee: SampleGuarantee
    cost: Cost
    elapsed_ms: float


@dataclass(frozen=True, slots=True)
class Bounds:
    """The mean total of ``best`` lies between these, with probability 1 - delta over the whole campaign."""

    lower: float | None
    upper: float | None


@dataclass(frozen=True, slots=True)
class Progress:
    """``asked`` pulls so far. The last look was at the first ``looked_at`` results, the next is at
    ``next_look``. No slate exceeds ``best`` by more than ``excess``, with the confidence of the
    campaign; it ends when that is at most epsilon, after about ``more_pulls`` more results.
    """

    asked: int
    looked_at: int
    next_look: int | None
    excess: float | None
    more_pulls: int | None


@dataclass(frozen=True, slots=True)
class AtMost:
    """At most ``count`` arms of one choice share a value of ``field``."""

    field: str
    count: int


@dataclass(frozen=True, slots=True)
class SlateRules:
    """``at_most`` limits how many arms of one slate share a value of a field, as in a choice."""

    at_most: tuple[AtMost, ...]


@dataclass(frozen=True, slots=True)
class SlateCampaign:
    """The state of a campaign. ``best`` and ``estimates`` are those of the last look; empty before the
    first. ``rules``: which slates are allowed, None: all. ``metadata`` has the fields of the campaign's
    rules, as of the creation.
    """

    id: str
    state: str
    observed: int
    best: tuple[str, ...]
    estimates: Mapping[str, float]
    bounds: Bounds
    progress: Progress
    outside: int
    warnings: tuple[str, ...]
    guarantee: Guarantee
    k: int
    arms: tuple[str, ...]
    method: str
    allocation: str
    bound: str
    noise_range: float | None
    noise_std: float | None
    independent_noise: bool
    rules: SlateRules | None = None
    catalogue: str | None = None
    metadata: Mapping[str, Mapping[str, str | bool | float]] | None = None


@dataclass(frozen=True, slots=True)
class Pull:
    """Show ``slate``, and tell its total under the name ``pull``."""

    pull: str
    slate: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Pulls:
    """None, and ``done``, when the campaign has ended."""

    pulls: tuple[Pull, ...]
    done: bool


@dataclass(frozen=True, slots=True)
class SlateTold:
    """``observed`` and ``duplicate`` count the results of this call, ``outside`` totals of the campaign."""

    observed: int
    duplicate: int
    done: bool
    outside: int


@dataclass(frozen=True, slots=True)
class StartedEmbedding:
    """The id of a job."""

    id: str


@dataclass(frozen=True, slots=True)
class EmbeddingJobHead:
    """``state``: ``waiting``, ``running``, ``done`` or ``failed``. ``created``: in ms since 1970.
    ``error``: why it failed.
    """

    id: str
    created: int
    state: str
    error: str | None


@dataclass(frozen=True, slots=True)
class LogEmbedding:
    """The finding of a judgement. ``taken``: whether the bandit was moved to ``catalogue``, which is None
    else; ``finding`` says so as a sentence. ``before`` and ``after``: the mean squared error on the last
    tenth of the ``rewards``, with the present features and with the coordinates; ``error``: the standard
    error of their difference.
    """

    taken: bool
    finding: str
    catalogue: str | None
    rewards: int
    keys: int
    before: float
    after: float
    error: float


@dataclass(frozen=True, slots=True)
class EmbeddingJob:
    """As in the list. ``result``: what was found last; once it is done, for an hour."""

    id: str
    created: int
    state: str
    error: str | None
    result: LogEmbedding | None


@dataclass(frozen=True, slots=True)
class PlaceEstimate:
    """``value`` and ``interval``: None where there is too little to tell."""

    value: float | None
    interval: tuple[float, float] | None
    effective_sample_size: float


@dataclass(frozen=True, slots=True)
class Estimate:
    """``value`` is of a whole decision, ``places`` of each place of its list, of a signal only where they
    were asked for. ``interval``: 95 %.

    ``effective_sample_size``: that of the place which has least.
    """

    estimator: str
    value: float | None
    interval: tuple[float, float] | None
    effective_sample_size: float
    places: tuple[PlaceEstimate, ...] = ()


@dataclass(frozen=True, slots=True)
class LoggedValue:
    """The earnings of these decisions. ``left_out``: others, which could not be used."""

    value: float | None
    decisions: int
    interval: tuple[float, float] | None = None
    left_out: int = 0


@dataclass(frozen=True, slots=True)
class Support:
    """The support of the policy in the log, at the place where it is worst: shares of decisions, and the
    weight of one. ``unshown_arms``: arms which the policy would choose and no decision shows, beyond
    chance; ``unshown_share``: their part of the policy's choices.
    """

    unused_share: float
    missing_share: float
    largest_weight: float
    unshown_arms: int = 0
    unshown_share: float = 0.0


@dataclass(frozen=True, slots=True)
class EvaluationLearners:
    """With what decisions were weighed; of ``before`` in how many ``blocks``, and how the first ``begin``s.

    ``known``: from what was known before the first decision, which earlier rows of the log say. ``log``:
    from nothing; the first block is left out.
    """

    when: str
    begin: str | None
    blocks: int


@dataclass(frozen=True, slots=True)
class EvaluationPropensities:
    """The source of propensities. ``estimated``: number of estimated decisions, each from at least so many
    ``draws``.
    """

    source: str
    estimated: int
    draws: int


@dataclass(frozen=True, slots=True)
class SignalEstimates:
    """Estimates of one signal by itself, as of the sum. There are no predictions, so ``dr`` is ``ips``."""

    estimates: tuple[Estimate, ...]
    logged: LoggedValue


@dataclass(frozen=True, slots=True)
class WeightsEvaluation:
    """The estimated earnings of the policy by these weights."""

    weights: Mapping[str, float]
    estimates: tuple[Estimate, ...]
    logged: LoggedValue
    signals: Mapping[str, SignalEstimates]
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The estimated earnings of a policy.

    ``warnings``: caveats, as sentences. Where too much of the policy's choices was never shown,
    ``value`` and ``interval`` are None. ``complete_from``: as of a report. Of a bandit with signals the
    values are of the sum by ``weights``, and in ``signals`` of each. Where several weights were asked
    for, the answer is of the first, and ``results`` of each.
    """

    estimates: tuple[Estimate, ...]
    logged: LoggedValue
    warnings: tuple[str, ...]
    support: Support | None = None
    learners: EvaluationLearners | None = None
    propensities: EvaluationPropensities | None = None
    complete_from: int | None = None
    weights: Mapping[str, float] | None = None
    signals: Mapping[str, SignalEstimates] | None = None
    results: tuple[WeightsEvaluation, ...] | None = None


@dataclass(frozen=True, slots=True)
class StartedEvaluation:
    """The id of an evaluation that goes on by itself."""

    id: str


@dataclass(frozen=True, slots=True)
class EvaluationProgress:
    """The number of evaluated decisions, ``of`` so many; None while unknown."""

    decisions: int
    of: int | None


@dataclass(frozen=True, slots=True)
class EvaluationJob:
    """``state``: ``waiting``, ``running``, ``done``, ``failed``, or ``lost`` where its process has ended.
    ``created``: in ms since 1970. ``error``: why the job failed, or is lost.
    """

    id: str
    created: int
    state: str
    progress: EvaluationProgress
    error: str | None = None


@dataclass(frozen=True, slots=True)
class EvaluationResult(EvaluationJob):
    """``result``: once it is done, for an hour."""

    result: Evaluation | None = None


@dataclass(frozen=True, slots=True)
class MipsArm:
    """``value``: the inner product, or the squared distance."""

    id: str
    value: float


@dataclass(frozen=True, slots=True)
class MipsGuarantee:
    """``exact``: the best arms. ``pac``: with probability at least 1 - delta the k-th best arm returned is
    within epsilon of the k-th best. ``none``: no promise. ``reason`` explains a kind that was not asked
    for.
    """

    kind: str
    epsilon: float | None
    delta: float | None
    reason: str | None


@dataclass(frozen=True, slots=True)
class MipsAnswer:
    """The best arm first. ``eligible``: how many the filter matches; None without one, and in an engine."""

    arms: tuple[MipsArm, ...]
    method: str
    guarantee: MipsGuarantee
    cost: Cost
    catalogue_version: int
    elapsed_ms: float
    eligible: int | None = None


@dataclass(frozen=True, slots=True)
class MipsVector:
    """``index``: the row of the request. ``value``: the inner product, or the squared distance."""

    index: int
    value: float


@dataclass(frozen=True, slots=True)
class VectorsAnswer:
    """The best vector first."""

    arms: tuple[MipsVector, ...]
    method: str
    guarantee: MipsGuarantee
    cost: Cost
    elapsed_ms: float


@dataclass(frozen=True, slots=True)
class Used:
    """``noise`` is the sigma that multiplies widths: 1 where it is not learned. Of elimination
    ``exploration`` is the radius.
    """

    ridge: float
    noise: float
    exploration: float


@dataclass(frozen=True, slots=True)
class MoveStatus:
    """A move whose learners are being carried: ``carried`` is the share of finished partitions."""

    from_: str = field(metadata={"name": "from"})
    to: str
    carry: str
    learners: int
    carried: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Bandit(Settings):
    """The settings of a bandit, with all defaults filled in.

    ``version`` counts from 1, when the bandit was made, and grows with every change. ``warnings``: what
    cannot be done with these settings, or cannot be meant, as sentences; absent if there are none.
    ``used``: the settings in numbers for a learner without rewards; in the list of all bandits without
    the lessons of other keys. ``move``: while learners are being carried to another catalogue; absent
    otherwise, and in lists. ``state``: its policy is of a plug-in that is not loaded here, so it chooses
    nothing; else absent.
    """

    id: str
    version: int | None = None
    state: str | None = None
    warnings: tuple[str, ...] = ()
    used: Used | None = None
    move: MoveStatus | None = None
    etag: str | None = field(default=None, metadata=HEADER)  # for ``if_match``


@dataclass(frozen=True, slots=True, kw_only=True)
class BanditVersion(Bandit):
    """``since_ms``: when it came to be so, in ms since 1970. ``by``: the name of the API key that made it
    so; None without keys.
    """

    since_ms: int = 0
    by: str | None = None


@dataclass(frozen=True, slots=True)
class MovedArms:
    """Numbers of arms: of both catalogues, and of only one of them."""

    common: int
    only_from: int
    only_to: int


@dataclass(frozen=True, slots=True)
class ArmMap:
    """``r2``: how much of the new features the map explains, of arms outside of the fit. ``shown``: whether
    arms count by how often the decision log shows them, or all alike.
    """

    r2: float
    shown: str


@dataclass(frozen=True, slots=True)
class Move:
    """The effects of a move, or of a dry run, ``from`` one catalogue ``to`` another.

    ``map``: None where nothing is carried. ``agreement``: the correlation of learners' estimates of arms
    before and after, in the mean of a sample of them; None without learners. ``learners``: their number.
    ``warnings``: changes, as sentences; of a dry run also reasons for a refusal.
    """

    from_: str = field(metadata={"name": "from"})
    to: str
    carry: str
    arms: MovedArms
    map: ArmMap | None
    agreement: float | None
    learners: int
    warnings: tuple[str, ...]
    bandit_version: int


@dataclass(frozen=True, slots=True)
class LearnerCopy:
    """``state``: all that is stored of the learner, base64. None unless it was asked for, and where it is
    longer than 3 MiB: then ``GET …/learners/{key}`` answers it to ``Accept: application/octet-stream``.
    ``prior_version``: of the learned prior that the bandit has now, which is not in the state; absent of
    a bandit with another prior.
    """

    key: str
    version: int
    observations: int
    state: str | None = None
    prior_version: int | None = None


@dataclass(frozen=True, slots=True)
class Encoding:
    """``dim`` is how many numbers a context becomes; ``columns`` says what each means, if named."""

    dim: int
    fields: tuple[Mapping[str, Any], ...] | None = None
    columns: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Signal:
    """``theta``, ``offset`` and ``weights`` of the context, as of the whole learner, for one signal."""

    theta: tuple[float, ...]
    weights: tuple[tuple[float, ...], ...] | None = None
    offset: float | None = None


@dataclass(frozen=True, slots=True)
class Learner:
    """With signals ``theta`` and ``weights`` are of their sum, by the weights of the bandit.

    x.theta predicts a reward; with an intercept, x.theta + ``offset``, and precision has one more
    number, the last one.

    Of a bandit with a context u, encoded as ``context`` tells: (P x)^T ``weights`` u more. P are
    ``directions``, absent where all coordinates interact. Precision is of [x ; (P x) kron u].

    ``prior_version``: of the learned prior that is in it; absent of a bandit with another prior.

    ``columns``: what each number of theta is of, where the catalogue has ``features``, or the bandit
    ``match``, whose numbers come last.
    """

    key: str
    version: int
    observations: int
    theta: tuple[float, ...]
    prior_version: int | None = None
    used: Used | None = None
    columns: tuple[str, ...] | None = None
    weights: tuple[tuple[float, ...], ...] | None = None
    context: Encoding | None = None
    offset: float | None = None
    directions: tuple[tuple[float, ...], ...] | None = None
    precision: tuple[tuple[float, ...], ...] | None = None
    signals: Mapping[str, Signal] | None = None


@dataclass(frozen=True, slots=True)
class Stage:
    """The number of arms in a stage. Stage s holds widths of at most 2^-s."""

    stage: int
    size: int


@dataclass(frozen=True, slots=True)
class Sets:
    """The stages of elimination, and the number of eliminated arms. ``threshold``: None without arms."""

    stages: tuple[Stage, ...]
    eliminated: int
    threshold: float | None


@dataclass(frozen=True, slots=True)
class Exposure:
    """``arm``, or ``value`` where the cap counts by a field, and ``count``: how often the key had it. The
    count holds until ``until_ms``, the first of several; ``left``: how often the key may have the arm
    until then.
    """

    arm: str | None
    value: str | float | bool | None
    count: int
    left: int
    last_ms: int
    until_ms: int


@dataclass(frozen=True, slots=True)
class Exposures:
    """``repeats``: the setting of the bandit, and ``items`` the counted exposures, the last first. At most
    1,000 are kept.
    """

    key: str
    repeats: RepeatsRule
    items: tuple[Exposure, ...]


@dataclass(frozen=True, slots=True)
class GroupReport:
    """As ``GroupCounts``. ``interval``: holds the mean with 95 % probability at all looks together; None:
    not known yet.
    """

    group: str
    decisions: int
    rewarded: int
    mean_reward: float | None
    interval: tuple[float, float] | None


@dataclass(frozen=True, slots=True)
class Lift:
    """The mean reward of the policy less the holdout's, compared within each stage of one share."""

    value: float | None
    interval: tuple[float, float] | None


@dataclass(frozen=True, slots=True)
class GroupCounts:
    """Decisions of a group. ``rewarded``: decisions with a reward sent by somebody. ``mean_reward``: of
    these decisions; None without any. Where several stages count, the mean of their means by their
    weights.
    """

    group: str
    decisions: int
    rewarded: int
    mean_reward: float | None


@dataclass(frozen=True, slots=True)
class Bucket:
    """Decisions of a piece of time. ``from``: its begin, in ms since 1970."""

    from_ms: int = field(metadata={"name": "from"})
    groups: tuple[GroupCounts, ...]


@dataclass(frozen=True, slots=True)
class PlaceReport:
    """The earnings of arms at one place of longer lists. ``place``: from 1.

    ``examination``: of the holdout, of random lists: how likely the place is looked at, relative to the
    first, by the position-based model. ``interval`` holds at all looks together.
    """

    group: str
    place: int
    decisions: int
    mean_reward: float
    examination: float | None = None
    interval: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True)
class AgreementReport:
    """The agreement of the policy with the lists of a holdout of candidates. ``decisions``: beside which
    the policy ranked. ``same_first``: the share of them with the same first arm. ``overlap``: the share
    of common arms, on average. Pinned arms are left out of both.
    """

    decisions: int
    same_first: float
    overlap: float


@dataclass(frozen=True, slots=True)
class ReportedStage:
    """Decisions made with one share of the holdout, so far. ``policy``, ``holdout``: their number in each
    group. ``weight``: how much the stage counts in means and lift, 0 to 1; 0 while a group has too few.
    """

    share: float | None
    policy: int
    holdout: int
    weight: float


@dataclass(frozen=True, slots=True)
class SignalReport:
    """The result of one signal: as the groups and the lift of the sum."""

    signal: str
    groups: tuple[GroupReport, ...]
    lift: Lift
    interval_kind: str
    interval_decisions: int
    places: tuple[PlaceReport, ...] = ()


@dataclass(frozen=True, slots=True)
class Guardrail:
    """A rule, and whether it is surely kept or broken by the policy, by the ``interval`` of its mean."""

    signal: str
    state: str
    most: float | None = None
    least: float | None = None
    mean: float | None = None
    interval: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True)
class ReportedMove:
    """A move of the bandit: when, in ms since 1970, ``from`` which catalogue and ``to`` which."""

    time: int
    from_: str = field(metadata={"name": "from"})
    to: str


@dataclass(frozen=True, slots=True)
class Report:
    """``unit``: drawn for the groups: the keys of a per_key bandit, the decisions of a global one.

    ``decisions``           of both groups, so far
    ``as_of_decisions``     groups and lift, with their intervals, are of the first so many of them: with keys
                            a power of two, else all. Buckets and places are of all
    ``next_look``           at how many decisions they are made anew; None: at each
    ``interval_kind``       bounded ones hold exactly, asymptotic ones the better the more there are
    ``interval_decisions``  the same as ``as_of_decisions``, as it was named first
    ``ungrouped``           decisions without comparison: made before there was a holdout, while its share
                            was 0 or 1, or for a baseline
    ``stages``              the shares of the holdout in this time, the earliest first
    ``places``              of decisions with several arms: the earnings of each place, the first hundred
    ``warnings``            why a group has no interval, whether the policy is the worse one, or why there are
                            no decisions
    ``complete_from``       when it begins, in ms since 1970, since rows from before are gone; None: as asked
    ``agreement``           of a holdout of candidates, in all of its decisions; None: none
    ``moves``               of the bandit to other catalogues in this time, the earliest first; absent: none

    Of a bandit with signals groups and lift are of the sum by its current ``weights``. All intervals, of
    the sum and of each signal, hold together: each has an equal share of the 5 % to fail.
    """

    groups: tuple[GroupReport, ...]
    lift: Lift
    interval_kind: str
    ungrouped: int
    buckets: tuple[Bucket, ...]
    unit: str = "decision"
    decisions: int = 0
    as_of_decisions: int = 0
    next_look: int | None = None
    interval_decisions: int = 0
    places: tuple[PlaceReport, ...] = ()
    warnings: tuple[str, ...] = ()
    complete_from: int | None = None
    agreement: AgreementReport | None = None
    stages: tuple[ReportedStage, ...] = ()
    weights: Mapping[str, float] | None = None
    signals: tuple[SignalReport, ...] = ()
    guardrails: tuple[Guardrail, ...] = ()
    moves: tuple[ReportedMove, ...] = ()


@dataclass(frozen=True, slots=True)
class SignalSpread:
    """The spread and noise of one signal; for the fields see the whole."""

    spread: float
    noise: float | None


@dataclass(frozen=True, slots=True)
class SignalEffect:
    """The effect of an arm on one signal; for the fields see the whole."""

    effect: float
    sd: float


@dataclass(frozen=True, slots=True)
class ArmEffect:
    """``effect``: how much more reward than its features say. ``sd``: the standard deviation of the effect
    about that. ``weight``: as how many rewards it has. With signals the three are of the weighted sum,
    and in ``signals`` of each.
    """

    arm: str
    effect: float
    sd: float
    weight: float
    signals: Mapping[str, SignalEffect] | None = None


@dataclass(frozen=True, slots=True)
class Age:
    """What the age of an arm adds to a reward, from so many seconds on, and how uncertain that is."""

    from_s: int
    effect: float
    sd: float


@dataclass(frozen=True, slots=True)
class ArmEffects:
    """The effects of arms with rewards. ``version``: 0 while nothing is found; then ``spread`` is 0,
    without items. ``spread``: the standard deviation of the effects of all arms. ``noise``: of one
    reward about its expectation; None until some arm has two. ``rewards``: number of decisions in the
    fit, of ``arms`` arms. ``places``: how likely the arm at each place of a list is looked at: learned,
    beside the first one, or as stated; None where neither. ``places_note``: why they are not learned.
    ``ages``: what the age of an arm adds, up to the oldest rewarded age; empty while no age adds
    anything to a choice, as after a move until the next fit.
    """

    version: int
    spread: float
    noise: float | None
    rewards: int
    arms: int
    items: tuple[ArmEffect, ...]
    next: str | None
    places: tuple[float, ...] | None
    places_note: str | None
    signals: Mapping[str, SignalSpread] | None = None
    ages: tuple[Age, ...] = ()


@dataclass(frozen=True, slots=True)
class OneArmEffect:
    """``version``: of the effects; 0 while nothing is found."""

    arm: str
    effect: float
    sd: float
    weight: float
    version: int
    signals: Mapping[str, SignalEffect] | None = None


@dataclass(frozen=True, slots=True)
class PriorVersion:
    """A version of the learned prior, as rows name it. ``mean``: mu, of each signal; ``precision``: S^-1,
    row by row up to the diagonal; ``residuals``: R, the covariance of the signals' noise; ``variation``:
    the mean of x^T S x over what the keys were shown; all None where the keys said nothing. A key with G
    = sum x x^T and m = sum x r^T has V = S^-1 + G and theta = V^-1 (S^-1 mu + m). ``sizes``: of each
    signal the mean squared reward that is usual of keys, and the variance of its sum for each reward; a
    key whose rewards are far larger is counted in its own unit. Null where all are counted in one unit.
    ``history``: how many of ``keys`` are of the history of the catalogue.
    """

    version: int
    since_ms: int
    keys: int
    observations: float
    mean: tuple[tuple[float, ...], ...] | None
    precision: tuple[float, ...] | None
    residuals: tuple[tuple[float, ...], ...] | None
    variation: float | None = None
    sizes: tuple[tuple[float, float], ...] | None = None
    history: int = 0


@dataclass(frozen=True, slots=True)
class PriorVersions:
    """The oldest first. ``position``, ``next``: as with rewards."""

    items: tuple[PriorVersion, ...]
    next: str | None
    position: str | None


@dataclass(frozen=True, slots=True)
class LearnedReward:
    """One entry of the reward log.

    ``number``     its place in the log of its partition: each is greater than the one before
    ``time``       when it was written, ms since 1970; ``decided``: when the arm was chosen
    ``kind``       "other": its arm was not noted; "forget": the learner starts again; "state": a learner
                   without rewards takes this one; "move": all of the partition are carried
    ``id``         of the decision, or of the observation
    ``first``      whether no reward of this decision and arm came before; ``before``: the sum of those, of a
                   bandit that sums
    ``replaces``   the replaced value, of a default or, where the last counts, of an earlier reward; None: of
                   none
    ``context``    as encoded; None: without a context
    ``logged``     whether the decision is in the decision log
    ``replayed``   its number as a dead letter: nothing was learned from the dead letter
    ``features``   the features learned from, where ``kind`` is "other", the arm was of a request alone (its
                   ``revision`` is 0) or had numbers from the request (``match``), or the entry is from before
                   a move: those of the bandit's catalogue at the time
    ``examined``   the factor of the arm's features; None: 1. ``weight``: relative to a reward of the first
                   place; None: 1
    ``signal``     of a bandit with signals, the signal of the reward, and its number among them, from 0;
                   None: of all together. ``had``: the values of the signals before the entry, in their order,
                   received ones and defaults; missing ones at the end are 0
    ``expected``   of each signal, or of the only one, what was expected of the arm, and ``effect``: what it
                   was taken to have beyond its features; the key learns the reward less the effect, times
                   ``examined``. Both None: it was chosen without arm effects; only ``expected``: the arm
                   learned nothing. ``age``: what its age added, a part of ``effect``; None: its age is not
                   known
    ``space``      which move of the bandit it is from, 0: none; of a move its own number. Revisions are of
                   the catalogue that the bandit had then
    """

    number: int
    time: int
    kind: str
    key: str | None
    id: str | None
    arm: str | None
    revision: int | None
    value: float | None
    decided: int | None
    first: bool
    before: float
    replaces: float | None
    context: tuple[float, ...] | None
    logged: bool
    replayed: int | None
    features: tuple[float, ...] | None
    state: str | None
    examined: float | None = None
    signal: str | None = None
    signal_number: int | None = None
    had: tuple[float, ...] | None = None
    space: int = 0
    expected: tuple[float, ...] | None = None
    effect: tuple[float, ...] | None = None
    weight: float | None = None
    age: float | None = None


@dataclass(frozen=True, slots=True)
class ArmRevision:
    """The features of an arm at a revision. Revisions ascend within a catalogue."""

    id: str
    revision: int
    features: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class LearnedPage:
    """Entries of one partition, and their arms if asked for.

    ``position``: the cursor to go on from at any time; ``next``: the same, None when there is no more
    now.

    ``missing``: entries, of any bandit, trimmed before they could be read from here, or erased with a
    forgotten learner.
    """

    items: tuple[LearnedReward, ...]
    arms: tuple[ArmRevision, ...]
    next: str | None
    position: str
    missing: int


@dataclass(frozen=True, slots=True)
class Revisions:
    """Arms by their revisions. ``position``, ``next``: as with rewards."""

    items: tuple[ArmRevision, ...]
    next: str | None
    position: str | None


@dataclass(frozen=True, slots=True)
class LearnedMove:
    """A move of a bandit to another catalogue. Of what was learned before, with features of length
    ``features``: G' = T G T^T + t R and m' = T m, where T is ``transform`` (None: nothing came along), R
    is ``residual``, and t the sum of the first ``features`` numbers of the diagonal of G.
    """

    space: int
    features: int
    transform: tuple[tuple[float, ...], ...] | None
    residual: tuple[tuple[float, ...], ...] | None


@dataclass(frozen=True, slots=True)
class LearningTerms:
    """The terms by which rewards become sums of a learner. ``features``: of an arm; ``context``: numbers of
    an encoded one. ``constant``: the number after them, of a bandit with an intercept, once it has
    learned anything. ``space``: how often the bandit was moved to another catalogue. ``moves``: one of
    them a page, the first one first; ``next``: None at the end.

    ``directions``: the ones which interact with the context, row by row; None: all coordinates do.
    ``match``: how many numbers stand before the constant, 0 where a reward does not bring its
    ``features``.
    """

    id: str
    partitions: int
    features: int
    context: int | None
    directions: tuple[tuple[float, ...], ...] | None
    half_life_s: float | None
    constant: float | None = None
    match: int = 0
    space: int = 0
    moves: tuple[LearnedMove, ...] = ()
    next: str | None = None
    arm_half_life_s: float | None = None


@dataclass(frozen=True, slots=True)
class LoggedArm:
    """``propensity``: the probability of this arm given those before it; None where the policy knows none.
    ``expected``: the reward expected by the learner from the features of the arm, and ``effect``: the
    arm's assumed part beyond them, of each signal where there are some; absent without arm effects.
    ``examined``: the assumed probability of a look at its place, and ``weight``: of its reward, relative
    to the first place; absent where the bandit learns nothing of places. ``age``: what its age added, a
    part of ``effect``; absent where its age is unknown.
    """

    id: str
    place: int
    score: float
    propensity: float | None
    pinned: bool
    expected: float | tuple[float | None, ...] | None = None
    effect: float | tuple[float | None, ...] | None = None
    examined: float | None = None
    weight: float | None = None
    age: float | None = None


@dataclass(frozen=True, slots=True)
class LoggedReward:
    """``default``: sent by nobody, in place of a reward which did not come in time; of all signals, where
    there are some. ``signal``: its name; absent without signals. ``revised``: number of earlier rewards
    replaced; absent for 0.
    """

    arm: str
    value: float
    time: int
    default: bool
    signal: str | None = None
    revised: int = 0


@dataclass(frozen=True, slots=True)
class Barred:
    """The arms matched by one of ``filters``, and these ``arms``."""

    filters: tuple[Mapping[str, Any], ...] = ()
    arms: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LoggedCandidate:
    """``features``: of an arm of the request alone, as float32; absent of an arm of the catalogue.
    ``match``: the request's encoded numbers of the arm; absent for 0.
    """

    id: str
    features: tuple[float, ...] | None = None
    match: tuple[float, ...] | None = None


@dataclass(frozen=True, slots=True)
class Agreement:
    """Agreement of a holdout's list, in the order of the caller, with the policy's, pinned arms left out.
    ``same_first``: both begin with the same arm. ``overlap``: the share of common arms.
    """

    same_first: bool
    overlap: float


@dataclass(frozen=True, slots=True)
class LoggedDecision:
    """A decision with its rewards. Times in ms since 1970. ``decision``: the token. ``filter``: the
    condition on all arms, the bandit's and the request's. ``rewards``: in the order in which they came.
    ``barred``: arms not allowed by quotas and repeats; left out where there are none, None where
    unknown. ``prior_version``, ``effects_version``: as of a choice. ``candidates``: of the request, in
    its order; left out without any, None where they are not kept: beyond 16 kB, or the decision was
    deferred. ``agreement``: of a holdout with candidates; left out where the policy did not rank.
    """

    decision: str
    time: int
    key: str | None
    bandit_version: int
    learner_version: int
    catalogue_version: int
    policy: str
    group: str | None
    context: tuple[float, ...] | None
    filter: Mapping[str, Any] | None
    eligible: int | None
    arms: tuple[LoggedArm, ...]
    rewards: tuple[LoggedReward, ...]
    weights: Mapping[str, float] | None = None
    barred: Barred | None = Barred()
    prior_version: int | None = None
    effects_version: int | None = None
    candidates: tuple[LoggedCandidate, ...] | None = ()
    agreement: Agreement | None = None


@dataclass(frozen=True, slots=True)
class Asked:
    """The request of a decision. ``filter``: its own, without the bandit's. ``arms``: a baseline. ``pins``:
    arm and place. ``at_most``: field and count. ``diverse``: weight and over.
    """

    k: int
    exclude: tuple[str, ...]
    event_id: str | None
    arms: tuple[str, ...] | None
    filter: Mapping[str, Any] | None
    pins: tuple[tuple[Any, ...], ...]
    at_most: tuple[tuple[Any, ...], ...]
    diverse: tuple[Any, ...] | None = None


@dataclass(frozen=True, slots=True)
class Term:
    """The part of an estimate from one number of an arm, named by ``column``."""

    column: str
    value: float


@dataclass(frozen=True, slots=True)
class Reason:
    """A reward of the same key: of the ``arm``, with this ``value``.

    ``share``: its part of the estimate.
    """

    arm: str
    value: float
    share: float


@dataclass(frozen=True, slots=True)
class Candidate:
    """``width``: how uncertain the estimate is, sigma (x^T V^-1 x)^(1/2) for the used noise sigma; with arm
    effects the root of the sum of its square and the squared deviation of the effect. ``place``: from 1;
    None if not chosen. ``prior``: the part of the estimate shared by a new key, by the learned prior;
    None without one. ``effect``: the arm's part beyond its features; None without arm effects.
    ``terms``: the largest parts of the estimate, where the catalogue says what its features are, or the
    bandit has ``match``; None elsewhere. ``because``: the arms of this key whose rewards add most to the
    estimate, of a chosen arm; None where the log does not tell. ``examined``: how likely its place is
    looked at, a factor of the estimate there; None without ``position``, and for an arm outside of the
    choice. ``age``: what its age adds, a part of ``effect``; None without.
    """

    id: str
    estimate: float
    width: float
    place: int | None
    prior: float | None = None
    effect: float | None = None
    terms: tuple[Term, ...] | None = None
    because: tuple[Reason, ...] | None = None
    examined: float | None = None
    age: float | None = None


@dataclass(frozen=True, slots=True)
class Explanation:
    """``repeated``: whether the choice, made again from its ``seed``, is the same; None: the choice cannot
    be made again, for what has ``changed``; then there are no candidates. ``asked``: None if too large
    to be kept.

    ``seeded``: the request had the seed; else it was drawn. ``candidates``: the arms of highest estimate
    and those of the decision, the highest first.
    """

    row: LoggedDecision
    asked: Asked | None
    seed: int
    seeded: bool
    changed: tuple[str, ...]
    repeated: bool | None
    candidates: tuple[Candidate, ...]


@dataclass(frozen=True, slots=True)
class SignalPrior:
    """As of the whole prior, for one signal."""

    noise: float
    offset: float | None = None
    mean: tuple[float, ...] | None = None
    sd: tuple[float, ...] | None = None
    weights: tuple[tuple[float, ...], ...] | None = None


@dataclass(frozen=True, slots=True)
class Prior:
    """The common part of a bandit's keys, and by how much they differ.

    ``version`` 0 while fewer than five keys have rewards, or where these say nothing: then all is as
    with ``plain``, and all other fields are None. In a catalogue whose ``behaviour`` has a ``prior``
    there is a version from the beginning, and ``history`` says how many of the ``keys`` are from there.

    ``keys``: how many were in the fit, and ``observations`` theirs. ``noise``: by how much rewards vary
    about their mean, for every key. ``mean``: the theta that a new key starts from, and ``sd`` by how
    much keys differ from it, in each coordinate; both None of one to nine own keys. ``offset``: of the
    mean, where learners have one. ``weights``: the mean of those of the context. ``covariance``: of all
    numbers of a learner. With signals all are of the weighted sum, and in ``signals`` of each.
    """

    version: int
    keys: int
    observations: float
    noise: float | None
    offset: float | None
    mean: tuple[float, ...] | None
    sd: tuple[float, ...] | None
    since_ms: int | None
    weights: tuple[tuple[float, ...], ...] | None = None
    signals: Mapping[str, SignalPrior] | None = None
    covariance: tuple[tuple[float, ...], ...] | None = None
    history: int | None = None


@dataclass(frozen=True, slots=True)
class PolicyNeeds:
    """``arms_in_memory``: not where the arms are in an engine. ``max_dim``: of the arms. ``max_work``: of
    their number times the square of their dimension. ``max_signals``: of the bandit. None: any.
    """

    arms_in_memory: bool
    max_dim: int | None
    max_work: float | None
    max_signals: int | None


@dataclass(frozen=True, slots=True)
class Policy:
    """``options``: JSON schema of the bandit's settings with an effect on the policy.

    ``propensities``: whether each arm of a choice comes with its exact probability.
    """

    name: str
    summary: str
    options: Mapping[str, Any]
    needs: PolicyNeeds
    propensities: bool


@dataclass(frozen=True, slots=True)
class Policies:
    items: tuple[Policy, ...]


@dataclass(frozen=True, slots=True)
class Quota:
    """``used``: counted in the current window, [from, to) in ms since 1970; ``left``: the rest. ``ends``:
    when it is used up if it goes on as since the window began, None if not in this window. ``window``
    None: it does not hold now. ``outstanding``: where rewards are counted, what was shown in the window
    and has none.
    """

    id: str
    most: int
    filter: Mapping[str, Any] | None
    arm: str | None
    per_s: float | None
    counts: str
    pace: str
    to: str | None
    used: int
    left: int
    window: tuple[int | None, ...] | None
    ends: str | None
    from_: str | None = field(default=None, metadata={"name": "from"})
    signal: str | None = None
    outstanding: int | None = None


@dataclass(frozen=True, slots=True)
class Links:
    """``console``: None while it is off."""

    docs: str
    openapi: str
    healthz: str
    readyz: str
    status: str
    metrics: str
    console: str | None = None


@dataclass(frozen=True, slots=True)
class Root:
    """Who answers at the address."""

    name: str
    version: str
    summary: str
    links: Links
