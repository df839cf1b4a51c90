"""The settings of a bandit, as /openapi.json says: written by ``make client-types``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Required, TypedDict

Policy = Literal[
    "sub_ts", "linear_ts", "sub_elim", "linear_elim", "softmax", "igw", "epsilon_greedy", "linucb"
]


class RewardRule(TypedDict, total=False):
    """With ``wait_s`` a decision that gets no reward counts as ``default``; else it teaches nothing."""

    min: float | None
    max: float | None
    aggregate: Literal["first", "sum", "last"]
    wait_s: float | None
    default: float | None


class HalfLives(TypedDict, total=False):
    """After how many seconds a reward counts half: for the effect of its arm, and for the learner of its
    key. None: it counts for ever.
    """

    arms: float | None
    keys: float | None


class ServedArms(TypedDict):
    """These arms, in this order."""

    arms: Sequence[str]


# This share of the keys, or of the decisions of a global bandit, is served without the policy.
#
# ``serve``: arms at random, those of a list, or the first ones of each request's candidates, in the
# order of the caller. ``else``: what is served where no arm of a list is eligible: arms at random, or
# nothing (409). Absent, a new list has "random", but with arms in an engine; None, as bandits made by
# 1.0 have it, is "refuse".
# "else" cannot be the name of a field of a class.
HoldoutRule = TypedDict(
    "HoldoutRule",
    {
        "share": Required[float],
        "serve": Literal["random", "candidates"] | ServedArms,
        "else": Literal["random", "refuse"] | None,
    },
    total=False,
)


class LogRule(TypedDict, total=False):
    """This share of the decisions is kept with its rewards, for ``keep_s``."""

    keep_s: float
    share: float


class EncodedField(TypedDict, total=False):
    """``category`` and ``categories`` need ``values``, ``cycle`` needs ``period``, ``hash`` needs ``size``;
    ``number`` may have ``mean`` (0 if absent) and ``scale`` (1), both of log(1 + v) with ``log``.
    """

    name: Required[str]
    kind: Required[Literal["category", "categories", "cycle", "number", "hash"]]
    values: Sequence[str] | None
    period: float | None
    mean: float | None
    scale: float | None
    size: int | None
    log: bool | None


class ContextRule(TypedDict, total=False):
    """A vector of ``dim`` numbers, or named ``fields``, which the service encodes as numbers."""

    dim: int | None
    fields: Sequence[EncodedField] | None


class RepeatsRule(TypedDict, total=False):
    """A key has an arm at most ``most`` times in any ``within_s``: it is shown, or rewarded, so often.
    ``by`` a field: all arms that share a value of it, together.
    """

    most: Required[int]
    within_s: Required[float]
    counts: Literal["shown", "rewarded"]
    by: str


class SignalRule(TypedDict, total=False):
    """One of several rewards. ``weight``: in what is chosen for. ``default``: what it is taken for until it
    comes. ``noise``: by how much it varies about its mean; ``auto``: learned.
    """

    weight: float
    default: float
    noise: float | Literal["auto"]
    min: float | None
    max: float | None
    aggregate: Literal["first", "sum", "last"]


class GuardrailRule(TypedDict, total=False):
    """The mean of a signal over decisions should be at ``most``, or at ``least``, a bound."""

    signal: Required[str]
    most: float | None
    least: float | None


class PositionRule(TypedDict):
    """The probability that the arm at each place of a list is looked at; further places are as the last."""

    examination: Sequence[float]


class MatchRule(TypedDict):
    """Named ``fields`` of what a request says of an arm, encoded as those of a context are."""

    fields: Sequence[EncodedField]


ContextField = EncodedField  # its name before it was of arms too


class BanditBody(TypedDict, total=False):
    catalogue: Required[str]
    policy: Required[Policy]
    scope: Literal["global", "per_key"]
    ridge: float | Literal["auto"]
    exploration: float | Literal["auto", "theory"]
    delta: float
    horizon: int
    shortlist: int
    eta: float | None
    reward: RewardRule
    prior: Literal["learned", "plain"]
    half_life_s: float | HalfLives | None
    idle_ttl_s: float | None
    temperature: float | Literal["auto"] | None
    gamma: float | Literal["auto"] | None
    filter: Mapping[str, Any] | None
    solver: Literal["shortlist", "adaptive"]
    holdout: HoldoutRule | None
    log: LogRule | None
    context: ContextRule | None
    interactions: int | Literal["all"] | None
    repeats: RepeatsRule | None
    signals: Mapping[str, SignalRule] | None
    guardrails: Sequence[GuardrailRule] | None
    position: Literal["auto"] | PositionRule | None
    intercept: bool
    epsilon: float | None
    alpha: float | None
    arm_effects: Literal["auto", "off"]
    options: Mapping[str, Any] | None
    constraints: Mapping[str, Mapping[str, Any]] | None
    match: MatchRule | None


class RewardRulePatch(TypedDict, total=False):
    min: float | None
    max: float | None
    aggregate: Literal["first", "sum", "last"] | None
    wait_s: float | None
    default: float | None


class HalfLivesPatch(TypedDict, total=False):
    arms: float | None
    keys: float | None


# "else" cannot be the name of a field of a class.
HoldoutRulePatch = TypedDict(
    "HoldoutRulePatch",
    {
        "share": float | None,
        "serve": Literal["random", "candidates"] | ServedArms | None,
        "else": Literal["random", "refuse"] | None,
    },
    total=False,
)


class LogRulePatch(TypedDict, total=False):
    keep_s: float | None
    share: float | None


class RepeatsRulePatch(TypedDict, total=False):
    most: int | None
    within_s: float | None
    counts: Literal["shown", "rewarded"] | None
    by: str | None


class SignalRulePatch(TypedDict, total=False):
    weight: float | None
    default: float | None
    noise: float | Literal["auto"] | None
    min: float | None
    max: float | None
    aggregate: Literal["first", "sum", "last"] | None


class PositionRulePatch(TypedDict, total=False):
    examination: Sequence[float] | None


class BanditPatch(TypedDict, total=False):
    catalogue: str | None
    policy: Policy | None
    scope: Literal["global", "per_key"] | None
    ridge: float | Literal["auto"] | None
    exploration: float | Literal["auto", "theory"] | None
    delta: float | None
    horizon: int | None
    shortlist: int | None
    eta: float | None
    reward: RewardRulePatch | None
    prior: Literal["learned", "plain"] | None
    half_life_s: float | HalfLivesPatch | None
    idle_ttl_s: float | None
    temperature: float | Literal["auto"] | None
    gamma: float | Literal["auto"] | None
    filter: Mapping[str, Any] | None
    solver: Literal["shortlist", "adaptive"] | None
    holdout: HoldoutRulePatch | None
    log: LogRulePatch | None
    context: ContextRule | None
    interactions: int | Literal["all"] | None
    repeats: RepeatsRulePatch | None
    signals: Mapping[str, SignalRulePatch | None] | None
    guardrails: Sequence[GuardrailRule] | None
    position: Literal["auto"] | PositionRulePatch | None
    intercept: bool | None
    epsilon: float | None
    alpha: float | None
    arm_effects: Literal["auto", "off"] | None
    options: Mapping[str, Any] | None
    constraints: Mapping[str, Mapping[str, Any] | None] | None
    match: MatchRule | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """As they are answered. A service that lacks one acts by its default; words may be new."""

    catalogue: str
    policy: str
    scope: str = "global"
    ridge: float | str = "auto"
    exploration: float | str = "auto"
    delta: float = 0.05
    horizon: int = 20000
    shortlist: int = 30
    eta: float | None = None
    reward: RewardRule
    prior: str = "plain"
    half_life_s: float | HalfLives | None = None
    idle_ttl_s: float | None = None
    temperature: float | str | None = None
    gamma: float | str | None = None
    filter: Mapping[str, Any] | None = None
    solver: str = "shortlist"
    holdout: HoldoutRule | None = None
    log: LogRule | None = None
    context: ContextRule | None = None
    interactions: int | str | None = None
    repeats: RepeatsRule | None = None
    signals: Mapping[str, SignalRule] | None = None
    guardrails: Sequence[GuardrailRule] | None = None
    position: str | PositionRule | None = None
    intercept: bool = False
    epsilon: float | None = None
    alpha: float | None = None
    arm_effects: str = "off"
    options: Mapping[str, Any] | None = None
    constraints: Mapping[str, Mapping[str, Any]] | None = None
    match: MatchRule | None = None
