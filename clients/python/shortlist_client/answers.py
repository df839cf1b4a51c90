"""What the service answers. Every class has the fields of its schema in /openapi.json, under the same names.

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
    """``propensity``: the probability of this arm given those before it, where the policy knows it.
    ``pinned``: the arm stands here because of a rule. ``metadata``: where ``include`` asked for them.
    """

    id: str
    score: float
    propensity: float | None = None
    pinned: bool = False
    metadata: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Choice:
    """Arms, the best first. ``decision`` is the token to reward them with; ``eligible`` is how many arms the
    filters let in, where there is one; ``bandit_version`` is that of the settings it was made by;
    ``group`` is "policy" or "holdout", of a bandit with a holdout; ``weights`` are those of its signals;
    ``prior_version`` is of its learned prior, 0 while there is none, None of a bandit with another prior.
    """

    decision: str
    arms: tuple[ChosenArm, ...]
    policy: str
    learner_version: int
    catalogue_version: int
    exact: bool
    stale_s: float | None = None
    eligible: int | None = None
    bandit_version: int | None = None
    group: str | None = None
    weights: Mapping[str, float] | None = None
    prior_version: int | None = None


@dataclass(frozen=True, slots=True)
class DryRunArm:
    """``estimate``: the reward that the learner expects. ``width``: the standard deviation of the estimate.
    ``draw``: the value that was drawn for the arm, None where the policy chooses by none. ``prior``: the part
    of the estimate that a new key has too, by a learned prior. The rest is as in a choice.
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


@dataclass(frozen=True, slots=True)
class DryRun:
    """What a choice would be: its fields without a decision."""

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


@dataclass(frozen=True, slots=True)
class Choices:
    """In the order of the requests."""

    results: tuple[Choice, ...]


@dataclass(frozen=True, slots=True)
class Rejected:
    """The item at ``index`` of a batch was not taken; ``code`` says why."""

    index: int
    code: str


@dataclass(frozen=True, slots=True)
class Receipt:
    """``duplicate`` counts what was there before; after a lost answer that is what the first attempt sent."""

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
class UsedFilter:
    """A filter in use and how the arms that it lets in are searched, as measured; times in microseconds."""

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
    """A field of the metadata, and how it becomes numbers."""

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
    """``basis`` is not among the features that are answered: it stands beside them, if it was asked for."""

    to: int
    basis: tuple[tuple[float, ...], ...] | None = None


@dataclass(frozen=True, slots=True)
class Embedding:
    """``dim``: how many features of an arm are sent."""

    dim: int
    reduce: Reduce | None = None


@dataclass(frozen=True, slots=True)
class Features:
    """What the features of a catalogue are made from."""

    fields: tuple[EncodedField, ...] | None = None
    embedding: Embedding | None = None


@dataclass(frozen=True, slots=True)
class Reduction:
    """How embeddings are reduced ``to`` fewer numbers. ``state``: ``not_fitted``, ``given`` with the
    catalogue, or ``fitted`` to so many ``arms``: then what of their squared lengths is kept, and of the
    nearest ten.
    """

    to: int
    state: str
    arms: int = 0
    share_of_variance: float | None = None
    overlap_at_10: float | None = None


@dataclass(frozen=True, slots=True)
class Unlisted:
    """How many ``arms`` have values that a field does not list, and the most frequent of these."""

    arms: int
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Display:
    """``title``: the field of the metadata that names an arm for people."""

    title: str


@dataclass(frozen=True, slots=True)
class Catalogue:
    """``size`` is its number of arms; ``index`` says how it is searched, and whether that is ``exact``.

    ``columns``: what each number of its features means, which are made as ``features`` says. ``basis``: of
    the ``reduction`` of an embedding, if it was asked for. ``findings``: what is wrong with it; not in lists.
    """

    id: str
    dim: int
    size: int
    version: int
    index: Mapping[str, Any]
    filters: tuple[UsedFilter, ...] = ()
    features: Features | None = None
    columns: tuple[str, ...] | None = None
    reduction: Reduction | None = None
    unlisted: Mapping[str, Unlisted] | None = None
    basis: tuple[tuple[float, ...], ...] | None = None
    warnings: tuple[str, ...] | None = None
    findings: tuple[Finding, ...] | None = None
    display: Display | None = None

    @property
    def given(self) -> int:
        """How many features of an arm are sent, if any are."""
        embedding = None if self.features is None else self.features.embedding
        return self.dim if embedding is None else embedding.dim


@dataclass(frozen=True, slots=True)
class CatalogueField:
    """A field of the metadata, or ``tags``: how many ``arms`` have it, and in ``types`` how many with values
    of a type. ``values``: the most frequent of ``distinct`` ones, and in ``counts`` how often each is there.
    """

    field: str
    arms: int
    types: Mapping[str, int]
    distinct: int
    values: tuple[str | float | bool, ...]
    counts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Arm:
    id: str
    features: tuple[float, ...]
    tags: tuple[str, ...]
    metadata: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Upserted:
    """``version`` is that of the catalogue afterwards."""

    added: int
    updated: int
    version: int


@dataclass(frozen=True, slots=True)
class Deleted:
    """``missing`` names the arms that were not there."""

    deleted: int
    missing: tuple[str, ...]
    version: int


@dataclass(frozen=True, slots=True)
class Used:
    """What settings are for one learner, as numbers. ``noise`` is 1 where it is not learned."""

    ridge: float
    noise: float
    exploration: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Bandit(Settings):
    """The settings of a bandit, with all defaults filled in. ``version`` grows with every change; ``etag`` is
    for the ``if_match`` of one. ``warnings``: what cannot be done with these settings. ``used``: what they
    are for a learner without rewards; None of a bandit as it was. ``move``: while learners are being carried
    to another catalogue.
    """

    id: str
    version: int | None = None
    warnings: tuple[str, ...] = ()
    used: Used | None = None
    move: MoveStatus | None = None
    etag: str | None = field(default=None, metadata=HEADER)


@dataclass(frozen=True, slots=True)
class Quota:
    """``used``: counted in the ``window`` of now, (from, to) in ms since 1970; ``reserved``: held by
    processes; ``left``: the rest. ``ends``: when it is used up if it goes on like this.
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
    reserved: int
    left: int
    window: tuple[Any, ...] | None
    ends: str | None
    outstanding: int | None = None
    signal: str | None = None
    from_: str | None = field(default=None, metadata={"name": "from"})


@dataclass(frozen=True, slots=True)
class LoggedArm:
    """``propensity``: given the arms before it; None where the policy knows none."""

    id: str
    place: int
    score: float
    propensity: float | None
    pinned: bool


@dataclass(frozen=True, slots=True)
class LoggedReward:
    """``default``: nobody sent it, it stands for a reward that did not come in time. ``revised``: how many
    earlier ones it has taken the place of.
    """

    arm: str
    value: float
    time: int
    default: bool
    signal: str | None = None
    revised: int = 0


@dataclass(frozen=True, slots=True)
class Barred:
    """The arms that one of ``filters`` lets in, and these ``arms``."""

    filters: tuple[Mapping[str, Any], ...] = ()
    arms: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LoggedDecision:
    """A decision with its rewards, in the order in which they came. Times in ms since 1970.

    ``barred``: what quotas and repeats did not allow; None where that is not known.
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


@dataclass(frozen=True, slots=True)
class ArmRevision:
    """The features that an arm has, or had, at a revision. Revisions ascend within a catalogue."""

    id: str
    revision: int
    features: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class LearnedReward:
    """An entry of the reward log, by its ``number``. Times in ms since 1970.

    ``kind``: reward, default, observation; other (of no arm that was noted: what is learned from are its
    ``features``), forget (the learner begins anew), state (a learner without rewards takes it), move (all
    learners of the partition are carried to another catalogue). ``id``: of the decision or observation.
    ``replaces``: the value of what it takes the place of, of a default or of an earlier reward.
    ``examined``: by what the features of the arm are multiplied. ``signal``: which of several rewards, None:
    all together; ``had``: what they counted as before it. ``before``: the sum of the rewards before it.
    ``replayed``: the number that it had as a dead letter, which taught nothing. ``space``: which move of the
    bandit it is from.
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


@dataclass(frozen=True, slots=True)
class LearnedPage:
    """Entries of one partition, and the arms that they name if asked for.

    ``position``: the cursor to go on from at any time; ``next``: the same, None when there is no more now.
    ``missing``: entries, of any bandit, that were trimmed before they could be read from here, or erased with
    a learner that was forgotten.
    """

    items: tuple[LearnedReward, ...]
    arms: tuple[ArmRevision, ...]
    next: str | None
    position: str
    missing: int


@dataclass(frozen=True, slots=True)
class Revisions:
    """Arms by their revisions; ``position`` and ``next`` as in ``LearnedPage``."""

    items: tuple[ArmRevision, ...]
    next: str | None
    position: str | None


@dataclass(frozen=True, slots=True)
class LearnedMove:
    """What a move to another catalogue did to what was learned: see docs/lake.md. ``transform``: None where
    nothing came along.
    """

    space: int
    features: int
    transform: tuple[tuple[float, ...], ...] | None
    residual: tuple[tuple[float, ...], ...] | None


@dataclass(frozen=True, slots=True)
class LearningTerms:
    """What rewards become in a learner: see docs/lake.md."""

    id: str
    partitions: int
    features: int
    context: int | None
    directions: tuple[tuple[float, ...], ...] | None
    half_life_s: float | None
    pooled: bool
    shifted: bool
    constant: float | None = None
    space: int = 0
    moves: tuple[LearnedMove, ...] = ()


@dataclass(frozen=True, slots=True)
class Asked:
    """What a request asked for. ``pins``: (arm, place). ``at_most``: (field, count). ``arms``: a baseline.
    ``diverse``: (weight, over).
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
    """The part of an estimate that one number of an arm makes."""

    column: str
    value: float


@dataclass(frozen=True, slots=True)
class Candidate:
    """``width``: how uncertain the ``estimate`` is. ``place``: from 1; None: it was not chosen.
    ``prior``: the part of the estimate that a new key has too, by a learned prior. ``terms``: the largest
    parts of the estimate, where the catalogue has ``columns``.
    """

    id: str
    estimate: float
    width: float
    place: int | None
    prior: float | None = None
    terms: tuple[Term, ...] | None = None


@dataclass(frozen=True, slots=True)
class Explanation:
    """``repeated``: the choice, made again from its ``seed``, is the same; None: it cannot be made again, for
    what has ``changed``. Then there are no candidates. ``asked``: None if it was too large to be kept.
    """

    row: LoggedDecision
    asked: Asked | None
    seed: int
    seeded: bool
    changed: tuple[str, ...]
    repeated: bool | None
    candidates: tuple[Candidate, ...]


@dataclass(frozen=True, slots=True)
class GroupReport:
    """Decisions of a group, and those with a reward that somebody sent. ``mean_reward``: of all decisions.

    ``interval`` holds the mean with 95 % probability, however often one looks; None: not known yet.
    """

    group: str
    decisions: int
    rewarded: int
    mean_reward: float | None
    interval: tuple[float, ...] | None


@dataclass(frozen=True, slots=True)
class Lift:
    """The mean reward of the policy less that of the holdout."""

    value: float | None
    interval: tuple[float, ...] | None


@dataclass(frozen=True, slots=True)
class GroupCounts:
    """As ``GroupReport``, of a piece of time."""

    group: str
    decisions: int
    rewarded: int
    mean_reward: float | None


@dataclass(frozen=True, slots=True)
class Bucket:
    """A piece of time; ``from_ms``, in the service's answer ``from``: when it begins, in ms since 1970."""

    from_ms: int = field(metadata={"name": "from"})
    groups: tuple[GroupCounts, ...]


@dataclass(frozen=True, slots=True)
class PlaceReport:
    """What the arms at one place of longer lists have earned. ``examination``: how likely it is looked at,
    relative to the first place, by a holdout that is served random lists; with its ``interval``.
    """

    group: str
    place: int
    decisions: int
    mean_reward: float
    examination: float | None = None
    interval: tuple[float, ...] | None = None


@dataclass(frozen=True, slots=True)
class SignalReport:
    """What one signal came to: as the groups and the lift of a report."""

    signal: str
    groups: tuple[GroupReport, ...]
    lift: Lift
    interval_kind: str
    interval_decisions: int
    places: tuple[PlaceReport, ...] = ()


@dataclass(frozen=True, slots=True)
class Guardrail:
    """A rule of the bandit. ``state``, by the interval of the policy: "kept", "broken" or "unknown"."""

    signal: str
    state: str
    most: float | None = None
    least: float | None = None
    mean: float | None = None
    interval: tuple[float, ...] | None = None


@dataclass(frozen=True, slots=True)
class ReportedMove:
    """A move of a bandit: ``time`` in ms since 1970, and the catalogues."""

    time: int
    from_: str = field(metadata={"name": "from"})
    to: str


@dataclass(frozen=True, slots=True)
class Report:
    """``interval_kind``: "bounded" or "asymptotic". ``ungrouped``: decisions that are in neither group.

    ``unit``: "key" or "decision", what intervals take as drawn. They are of the first ``interval_decisions``
    decisions. ``warnings``: why a group has no interval.
    ``complete_from``: when it begins, in ms since 1970, since rows from before are gone; None: as asked for.
    ``moves``: of the bandit to other catalogues in this time.
    """

    groups: tuple[GroupReport, ...]
    lift: Lift
    interval_kind: str
    ungrouped: int
    buckets: tuple[Bucket, ...]
    unit: str = "decision"
    interval_decisions: int = 0
    warnings: tuple[str, ...] = ()
    complete_from: int | None = None
    weights: Mapping[str, float] | None = None
    signals: tuple[SignalReport, ...] = ()
    guardrails: tuple[Guardrail, ...] = ()
    places: tuple[PlaceReport, ...] = ()
    moves: tuple[ReportedMove, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BanditVersion(Bandit):
    """``since_ms``: when it came to be so, in ms since 1970, if that is known. ``by``: the name of the API
    key that made it so, if there was one.
    """

    since_ms: int | None = None
    by: str | None = None


@dataclass(frozen=True, slots=True)
class PlaceEstimate:
    """``value`` and ``interval`` are None where there is too little to tell."""

    value: float | None
    interval: tuple[float, float] | None
    effective_sample_size: float


@dataclass(frozen=True, slots=True)
class Estimate:
    """``value`` is of a whole decision, ``places`` of each place of its list, of a signal only where they
    were asked for. ``interval``: 95 %.
    """

    estimator: str
    value: float | None
    interval: tuple[float, float] | None
    effective_sample_size: float
    places: tuple[PlaceEstimate, ...] = ()


@dataclass(frozen=True, slots=True)
class LoggedValue:
    """What the decisions have earned that were evaluated. ``left_out``: others, which could not be used."""

    value: float | None
    decisions: int
    interval: tuple[float, float] | None = None
    left_out: int = 0


@dataclass(frozen=True, slots=True)
class Support:
    """How well the log shows what the policy would do: shares of decisions, and the weight of one.

    ``unshown_arms``: that the policy would choose and no decision shows.
    """

    unused_share: float
    missing_share: float
    largest_weight: float
    unshown_arms: int = 0
    unshown_share: float = 0.0


@dataclass(frozen=True, slots=True)
class EvaluationLearners:
    """With what decisions were weighed: what learners knew ``before`` them, in ``blocks``, or know ``now``.

    ``begin``: ``known`` where the first block has what was known then; ``log`` where learners were fitted to
    the log alone, and the first block is left out.
    """

    when: str
    begin: str | None
    blocks: int


@dataclass(frozen=True, slots=True)
class SignalEstimates:
    """What a policy would have earned of one signal. There are no predictions, so ``dr`` is ``ips``."""

    estimates: tuple[Estimate, ...]
    logged: LoggedValue


@dataclass(frozen=True, slots=True)
class WeightsEvaluation:
    """As ``Evaluation``, by some weights of signals."""

    weights: Mapping[str, float]
    estimates: tuple[Estimate, ...]
    logged: LoggedValue
    signals: Mapping[str, SignalEstimates]
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Evaluation:
    """``warnings``: what one must know before one believes it, as sentences. Where they say that too much of
    what the policy does was never done, ``value`` and ``interval`` of estimates are None.

    ``complete_from``: as of a report. ``results``: by each of several weights; the rest is by the first.
    """

    estimates: tuple[Estimate, ...]
    logged: LoggedValue
    warnings: tuple[str, ...]
    support: Support | None = None
    learners: EvaluationLearners | None = None
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
    """How many decisions were evaluated, ``of`` how many; None while that is not known."""

    decisions: int
    of: int | None


@dataclass(frozen=True, slots=True)
class EvaluationJob:
    """``state``: ``waiting``, ``running``, ``done``, ``failed`` (``error`` says why), or ``lost`` where the
    process that ran it has died. ``created``: in ms since 1970.
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
class Encoding:
    """``dim`` is how many numbers a context becomes; ``columns`` what each means, of ``fields``, if named."""

    dim: int
    fields: tuple[Mapping[str, Any], ...] | None = None
    columns: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Signal:
    """``theta``, ``weights`` and ``offset`` of a learner, for one of several rewards."""

    theta: tuple[float, ...]
    weights: tuple[tuple[float, ...], ...] | None = None
    offset: float | None = None


@dataclass(frozen=True, slots=True)
class Learner:
    """x.theta predicts a reward, plus ``offset`` where there is one, plus (P x)^T ``weights`` u in a context
    u, where P are the ``directions``. ``precision`` and ``directions``: if they were asked for.
    With ``signals`` theta and weights are those of their weighted sum. ``columns``: what the numbers of theta
    are of, where the catalogue says it.
    """

    key: str
    version: int
    observations: int
    theta: tuple[float, ...]
    used: Used | None = None
    offset: float | None = None
    weights: tuple[tuple[float, ...], ...] | None = None
    context: Encoding | None = None
    directions: tuple[tuple[float, ...], ...] | None = None
    precision: tuple[tuple[float, ...], ...] | None = None
    signals: Mapping[str, Signal] | None = None
    prior_version: int | None = None
    columns: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class LearnerCopy:
    """``state``: all that is stored of a learner, base64, if it was asked for. ``prior_version``: of the
    learned prior that its bandit has, which is not in the state.
    """

    key: str
    version: int
    observations: int
    state: str | None = None
    prior_version: int | None = None


@dataclass(frozen=True, slots=True)
class PolicyNeeds:
    """``max_work``: of the number of arms times the square of their dimension. None: any."""

    arms_in_memory: bool
    max_dim: int | None
    max_work: float | None
    max_signals: int | None


@dataclass(frozen=True, slots=True)
class Policy:
    """``options``: JSON schema of the settings that change what the policy does. ``propensities``: whether
    each arm of a choice comes with its exact probability.
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
class SignalPrior:
    """As of a whole prior, for one signal."""

    noise: float
    offset: float | None = None
    mean: tuple[float, ...] | None = None
    sd: tuple[float, ...] | None = None
    weights: tuple[tuple[float, ...], ...] | None = None


@dataclass(frozen=True, slots=True)
class Prior:
    """What the keys of a bandit have in common, ``mean``, and by how much they differ from it, ``sd``; both
    None of fewer than ten keys. ``version`` 0: nothing is known yet.
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


@dataclass(frozen=True, slots=True)
class MovedArms:
    """How many arms both catalogues have, and only one of them."""

    common: int
    only_from: int
    only_to: int


@dataclass(frozen=True, slots=True)
class ArmMap:
    """``r2``: how much of the new features the map explains. ``shown``: by what arms were weighed."""

    r2: float
    shown: str


@dataclass(frozen=True, slots=True)
class Move:
    """What a move does, or would do. ``agreement``: the correlation of what learners expect, before and
    after. ``from_`` and ``to``: the catalogues. ``map``: None where nothing is carried.
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
class MoveStatus:
    """A move whose learners are being carried. ``carried``: which share of them is."""

    from_: str = field(metadata={"name": "from"})
    to: str
    carry: str
    learners: int
    carried: float


@dataclass(frozen=True, slots=True)
class PriorVersion:
    """A version of a learned prior as rows of the log name it: see docs/lake.md."""

    version: int
    since_ms: int
    keys: int
    observations: float
    mean: tuple[tuple[float, ...], ...] | None
    precision: tuple[float, ...] | None
    residuals: tuple[tuple[float, ...], ...] | None
    variation: float | None = None


@dataclass(frozen=True, slots=True)
class PriorVersions:
    """The oldest first; ``position`` and ``next`` as in ``LearnedPage``."""

    items: tuple[PriorVersion, ...]
    next: str | None
    position: str | None


@dataclass(frozen=True, slots=True)
class Stage:
    stage: int
    size: int


@dataclass(frozen=True, slots=True)
class Exposure:
    """An ``arm``, or a ``value`` where the cap counts by a field, that a key has had ``count`` times;
    ``left``: how often it may have it until ``until_ms``.
    """

    arm: str | None
    value: str | float | bool | None
    count: int
    left: int
    last_ms: int
    until_ms: int


@dataclass(frozen=True, slots=True)
class Exposures:
    """``repeats``: the setting of the bandit. What the key had last is first."""

    key: str
    repeats: RepeatsRule
    items: tuple[Exposure, ...]


@dataclass(frozen=True, slots=True)
class Sets:
    """What elimination has left of the arms; ``threshold`` is None without arms."""

    stages: tuple[Stage, ...]
    eliminated: int
    threshold: float | None


@dataclass(frozen=True, slots=True)
class Cost:
    """Coordinates that were read, None where nobody counts them, and what reading all of them would be."""

    reads: int | None
    exhaustive_reads: int


@dataclass(frozen=True, slots=True)
class MipsGuarantee:
    """``pac``: with probability at least 1 - delta the k-th arm is within epsilon of the k-th best."""

    kind: str
    epsilon: float | None
    delta: float | None
    reason: str | None


@dataclass(frozen=True, slots=True)
class MipsArm:
    """``value``: the inner product, or the squared distance."""

    id: str
    value: float


@dataclass(frozen=True, slots=True)
class MipsVector:
    """``index`` is the row of the request; ``value`` as for an arm."""

    index: int
    value: float


@dataclass(frozen=True, slots=True)
class MipsAnswer:
    """The best arm first. ``eligible``: how many a filter lets in; None without one, and in Milvus."""

    arms: tuple[MipsArm, ...]
    method: str
    guarantee: MipsGuarantee
    cost: Cost
    catalogue_version: int
    elapsed_ms: float
    eligible: int | None = None


@dataclass(frozen=True, slots=True)
class VectorsAnswer:
    """The best vector first."""

    arms: tuple[MipsVector, ...]
    method: str
    guarantee: MipsGuarantee
    cost: Cost
    elapsed_ms: float


@dataclass(frozen=True, slots=True)
class SampleGuarantee:
    """``pac``: each draw is within ``delta`` in total variation; ``assumes`` says under what."""

    kind: str
    delta: float
    assumes: str | None
    reason: str | None


@dataclass(frozen=True, slots=True)
class Draws:
    """Rows of the request, each an independent draw."""

    draws: tuple[int, ...]
    method: str
    guarantee: SampleGuarantee
    cost: Cost
    elapsed_ms: float


@dataclass(frozen=True, slots=True)
class ArmDraws:
    """Ids of arms, each an independent draw: an arm may appear more than once."""

    draws: tuple[str, ...]
    method: str
    guarantee: SampleGuarantee
    cost: Cost
    catalogue_version: int
    elapsed_ms: float


@dataclass(frozen=True, slots=True)
class Guarantee:
    kind: str
    epsilon: float
    delta: float


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
class CenterCampaign:
    """Where a campaign stands. ``radius`` is estimated, for all centres but the last."""

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
    observed: int
    duplicate: int
    done: bool


@dataclass(frozen=True, slots=True)
class Bounds:
    """The mean total of the best slate lies between these."""

    lower: float | None
    upper: float | None


@dataclass(frozen=True, slots=True)
class Progress:
    """``more_pulls``: about how many results are wanted until the campaign ends."""

    asked: int
    looked_at: int
    next_look: int | None
    excess: float | None
    more_pulls: int | None


@dataclass(frozen=True, slots=True)
class AtMost:
    """At most ``count`` arms of one slate share a value of ``field``."""

    field: str
    count: int


@dataclass(frozen=True, slots=True)
class SlateRules:
    at_most: tuple[AtMost, ...]


@dataclass(frozen=True, slots=True)
class SlateCampaign:
    """Where a campaign stands: what the last look at its results saw.

    ``rules`` say which slates are allowed, None: all; ``metadata`` has what they need of the arms, as it was
    when the campaign was made.
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
    metadata: Mapping[str, Mapping[str, Any]] | None = None


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
    """``outside`` counts totals of the campaign that were beyond the stated noise."""

    observed: int
    duplicate: int
    done: bool
    outside: int


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
    at: str
    what: str


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is well (``good``), or not, or neither (None), in words."""

    name: str
    good: bool | None
    text: str


@dataclass(frozen=True, slots=True)
class Status:
    """What is running, and how much of it there is. ``loss``: what the store has lost, if anything.

    ``findings``: what `shortlist doctor` says of it; empty where an older service answers.
    """

    version: str
    python: str
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
    findings: tuple[Finding, ...] = ()


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
