"""The settings of a bandit: types, bounds, defaults, and whether they may be changed later.

This is their only definition. The stored form, the bodies of PUT and PATCH, the answers, /openapi.json and
the types of the clients come from it. A new setting is one line, at the end of ``BanditSettings``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationError, ValidatorFunctionWrapHandler, WrapValidator
from pydantic_core import InitErrorDetails

from app.filters.fields import MAX_FIELD_CHARS
from app.platform.documents import Document
from app.platform.ids import Identifier
from app.records.arm_sums import ArmClock, ArmTime
from app.records.encoding import ContextRule, MatchRule
from app.records.place_sums import MOST_LEARNED_PLACES
from app.records.records import state_bytes
from shortlist.checks import MIN_DELTA

MAX_DIM = 4_096
MAX_K = 1_000
MAX_VALUE = 1e9
MAX_WAIT_S = 31 * 86_400
MAX_HALF_LIFE_S = 3_650 * 86_400
MAX_IDLE_TTL_S = 3_650 * 86_400
MIN_KEEP_S = 60
MAX_KEEP_S = 3_650 * 86_400
MAX_REPEATS = 100
MAX_WITHIN_S = 366 * 86_400
MAX_SIGNALS = 16
MAX_EXAMINATION = 100  # places
MAX_AHEAD_MS = 60_000  # by which the clock of a client may be ahead of this one
MIN_EXAMINATION = 0.001
MAX_GUARDRAILS = 32

Value = Annotated[float, Field(ge=-MAX_VALUE, le=MAX_VALUE)]
AUTO: Literal["auto"] = "auto"
BY_ARM = "arm"
RIDGE_OF_THEORY = 1.0  # where absent
# Settings of version 2 that are gone, and what to use instead.
GONE: Mapping[str, str] = MappingProxyType(
    {
        "auto": 'is gone: what is "auto" follows one rule now, that of "auto": 2. Leave the field out',
        "explore": 'is gone: a new key begins with what the others have in common, by "prior": "learned"',
        "shift_rewards": 'is gone: "intercept" learns what all arms have in common, also below 0',
        "prior_strength": 'is gone with the pooled prior: use "prior": "learned"',
    }
)
Temperature = Annotated[float, Field(ge=1e-9, le=1e9)]
Delta = Annotated[float, Field(ge=MIN_DELTA, lt=1)]


@dataclass(frozen=True, slots=True)
class Fixed:
    """Marks a setting which cannot be changed, with the reason."""

    reason: str


@dataclass(frozen=True, slots=True)
class OfPolicies:
    """Marks a setting of some policies only: those which name it in their ``options``."""


def must_be(text: str) -> WrapValidator:
    """One message about a field, not one about each thing that it could be; but what is wrong within an
    object or a list is told with its own path.
    """

    def check(value: Any, validate: ValidatorFunctionWrapHandler) -> Any:
        try:
            return validate(value)
        except ValidationError as error:
            # The first part of a path is the kind of the union.
            within = [
                InitErrorDetails(
                    type=item["type"], loc=item["loc"][1:], input=item["input"], ctx=item.get("ctx", {})
                )
                for item in error.errors()
                if len(item["loc"]) > 1
            ]
            if within:
                raise ValidationError.from_exception_data(error.title, within) from None
            raise ValueError(f"must be {text}") from None

    return WrapValidator(check)


def absent_is(text: str) -> Any:
    """The description of a setting's default where others decide: the stored default is another one."""

    def describe(schema: dict[str, Any]) -> None:
        schema.pop("default", None)

    return Field(description=f"Of a bandit that is made without it: {text}.", json_schema_extra=describe)


class RewardRule(Document, frozen=True):
    """With ``wait_s`` a decision that gets no reward counts as ``default``; else it teaches nothing."""

    min: Value | None = None
    max: Value | None = None
    aggregate: Literal["first", "sum", "last"] = "first"
    wait_s: Annotated[float, Field(gt=0, le=MAX_WAIT_S)] | None = None
    default: Value | None = None

    def checked(self) -> Self:
        if self.min is not None and self.max is not None and self.min >= self.max:
            raise ValueError("min must be less than max")
        if self.default is not None and self.wait_s is None:
            raise ValueError("default needs wait_s: how long a reward is waited for")
        default = 0.0 if self.default is None else self.default
        low = self.min is not None and default < self.min
        if self.wait_s is not None and (low or (self.max is not None and default > self.max)):
            raise ValueError("default (0 if absent) must be a reward from min to max")
        return self

    @property
    def allows_negative(self) -> bool:
        """True if ``min`` says that rewards may be less than 0; without one only rewards tell."""
        return self.min is not None and self.min < 0.0


class SignalRule(Document, frozen=True):
    """One of several rewards. ``weight``: in what is chosen for. ``default``: what it is taken for until it
    comes.
    ``noise``: by how much it varies about its mean; ``auto``: learned.
    """

    weight: Value = 1.0
    default: Value = 0.0
    noise: Annotated[
        Annotated[float, Field(gt=0, le=MAX_VALUE)] | Literal["auto"],
        must_be(f'a number above 0 and at most {MAX_VALUE:g}, or "auto"'),
    ] = AUTO
    min: Value | None = None
    max: Value | None = None
    aggregate: Literal["first", "sum", "last"] = "first"

    def checked(self) -> Self:
        if self.min is not None and self.max is not None and self.min >= self.max:
            raise ValueError("min must be less than max")
        low = self.min is not None and self.default < self.min
        if low or (self.max is not None and self.default > self.max):
            raise ValueError("default (0 if absent) must be from min to max")
        return self


class GuardrailRule(Document, frozen=True):
    """The mean of a signal over decisions should be at ``most``, or at ``least``, a bound."""

    signal: Identifier
    most: Value | None = None
    least: Value | None = None

    def checked(self) -> Self:
        if (self.most is None) == (self.least is None):
            raise ValueError("must have either most or least")
        return self


class ServedArms(Document, frozen=True):
    """These arms, in this order."""

    arms: Annotated[list[Identifier], Field(min_length=1, max_length=MAX_K)]

    def checked(self) -> Self:
        if len(set(self.arms)) < len(self.arms):
            raise ValueError("an arm must not be listed twice")
        return self


class HoldoutRule(Document, frozen=True, rename={"or_else": "else"}):
    """This share of the keys, or of the decisions of a global bandit, is served without the policy.

    ``serve``: arms at random, those of a list, or the first ones of each request's candidates, in the order
    of the caller.
    ``else``: what is served where no arm of a list is eligible: arms at random, or nothing (409). Absent, a
    new list has "random", but with arms in an engine; null, as bandits made by 1.0 have it, is "refuse".
    """

    share: Annotated[float, Field(ge=0, le=1)]
    serve: Annotated[
        Literal["random", "candidates"] | ServedArms,
        must_be(
            f'"random", "candidates", or an object as {{"arms": ["a"]}} with 1 to {MAX_K} ids, each once'
        ),
    ] = "random"
    or_else: Literal["random", "refuse"] | None = None

    @property
    def is_list(self) -> bool:
        return isinstance(self.serve, ServedArms)

    @property
    def is_of_caller(self) -> bool:
        """True if the holdout is served the caller's own list: the first candidates."""
        return self.serve == "candidates"


class LogRule(Document, frozen=True):
    """This share of the decisions is kept with its rewards, for ``keep_s``."""

    keep_s: Annotated[float, Field(ge=MIN_KEEP_S, le=MAX_KEEP_S)] = 604_800.0
    share: Annotated[float, Field(gt=0, le=1)] = 1.0

    @property
    def keep_ms(self) -> int:
        return round(1_000 * self.keep_s)


class PositionRule(Document, frozen=True):
    """The probability that the arm at each place of a list is looked at; further places are as the last."""

    examination: Annotated[
        list[Annotated[float, Field(ge=MIN_EXAMINATION, le=1)]],
        Field(min_length=1, max_length=MAX_EXAMINATION),
    ]

    def at(self, position: int) -> float:
        """The probability at a place, from 0."""
        return self.examination[min(position, len(self.examination) - 1)]


class RepeatsRule(Document, frozen=True):
    """A key has an arm at most ``most`` times in any ``within_s``: it is shown, or rewarded, so often.
    ``by`` a field: all arms that share a value of it, together.
    """

    most: Annotated[int, Field(ge=1, le=MAX_REPEATS)]
    within_s: Annotated[float, Field(ge=1, le=MAX_WITHIN_S)]
    counts: Literal["shown", "rewarded"] = "shown"
    by: Annotated[str, Field(min_length=1, max_length=MAX_FIELD_CHARS)] = BY_ARM

    @property
    def within_ms(self) -> int:
        return round(1_000 * self.within_s)


HalfLife = Annotated[float, Field(ge=1, le=MAX_HALF_LIFE_S)]
HALF_LIFE_RULE = must_be(
    f"a number from 1 to {MAX_HALF_LIFE_S}, null, or an object with such arms and keys, as "
    '{"arms": 32400, "keys": null}'
)
HALF_LIFE_OF_ONE = must_be(f"a number from 1 to {MAX_HALF_LIFE_S}, or null")
POSITION_RULE = must_be(
    f'"auto", null, or an object as {{"examination": [1.0, 0.6]}}, with 1 to {MAX_EXAMINATION} numbers from '
    f"{MIN_EXAMINATION} to 1"
)


class HalfLives(Document, frozen=True):
    """After how many seconds a reward counts half: for the effect of its arm, and for the learner of its key.
    null: it counts for ever.
    """

    arms: Annotated[HalfLife | None, HALF_LIFE_OF_ONE] = None
    keys: Annotated[HalfLife | None, HALF_LIFE_OF_ONE] = None


class BanditSettings(Document, frozen=True):
    """A number that can be ``auto`` follows from the features and from what a learner has seen.

    ``catalogue``       whose arms are chosen from
    ``policy``          how they are chosen, by its name
    ``scope``           whether each key has a learner, or one learns from all
    ``ridge``           of the prior of parameters; 1 if absent where ``exploration`` is ``theory``
    ``exploration``     how much is explored: the larger, the more; ``theory``: the paper's radius, proved for
                        features of norm at most 1 (with a context those of arm and context together), for the
                        plain prior and without a half-life
    ``delta``           with what probability the radius may be too small
    ``horizon``         how many choices the radius is for
    ``shortlist``       how many arms of highest estimate sub_ts and igw compare
    ``eta``             ratio of the paper's ladder; horizon^-1/2 if absent
    ``reward``          what counts as the reward of a decision
    ``prior``           what a new key starts from. ``learned``: what the keys of the bandit have in common,
                        and how they differ; where absent of a ``per_key`` bandit whose ``ridge`` is ``auto``
                        and whose policy takes it, else ``plain``
    ``half_life_s``     after which a reward counts half, for keys and arms alike, or for each apart; that of
                        arms may be changed
    ``idle_ttl_s``      after which a learner without rewards is forgotten
    ``temperature``     of softmax, in the unit of rewards
    ``gamma``           of igw: the larger, the more often the best arm is drawn
    ``filter``          which arms are eligible
    ``solver``          how sub_ts searches; ``adaptive`` is the paper's ladder
    ``holdout``         who is served without the policy, to compare with
    ``log``             which decisions are kept, and for how long
    ``context``         what every choice is told besides
    ``interactions``    how many directions of the arms the context acts on, all if absent
    ``repeats``         how often a key, or a visitor of a global bandit, has the same arm
    ``signals``         several rewards, by name; a choice weighs them
    ``guardrails``      what a report and the metrics watch
    ``position``        what a reward says of an arm depends on where it stood; ``auto``: by what is learned
                        of the places of lists, which needs ``arm_effects``; null: it does not
    ``intercept``       learners have a number for what all arms have in common, their ``offset``; a new
                        bandit has it where this is absent, but with elimination
    ``epsilon``         with this probability epsilon_greedy draws an arm at random
    ``alpha``           how many standard deviations linucb adds to an estimate
    ``arm_effects``     ``auto`` learns from all keys what each arm has beyond its features; it needs
                        ``prior: learned``, where a new bandit has it
    ``options``         of a policy that a plug-in adds; ``GET /v1/policies`` has their schema
    ``constraints``     of plug-ins that every choice keeps to, each with its options
    ``match``           what a request may say of each of its candidates besides
    """

    catalogue: Annotated[Identifier, Fixed("learners learn from its arms: POST …/move moves the bandit")]
    policy: str
    scope: Annotated[Literal["global", "per_key"], Fixed("it says whose rewards a learner learns from")] = (
        "global"
    )
    ridge: Annotated[
        Annotated[float, Field(ge=1e-9, le=1e9)] | Literal["auto"],
        must_be('a number from 1e-9 to 1e9, or "auto"'),
    ] = AUTO
    exploration: Annotated[
        Annotated[float, Field(ge=0, le=1e6)] | Literal["auto", "theory"],
        must_be('a number from 0 to 1000000, "auto" or "theory"'),
    ] = AUTO
    delta: Delta = 0.05
    horizon: Annotated[int, Field(ge=1, le=10**12)] = 20_000
    shortlist: Annotated[int, Field(ge=1, le=MAX_K)] = 30
    eta: Annotated[float, Field(gt=0, lt=1)] | None = None
    reward: RewardRule = RewardRule()
    prior: Annotated[
        Literal["learned", "plain"],
        must_be('"learned" or "plain"; in place of "pooled", which is gone, use "learned"'),
        absent_is('"learned" where scope is "per_key" and no other setting refuses it, else "plain"'),
        OfPolicies(),
    ] = "plain"
    half_life_s: Annotated[
        HalfLife | HalfLives | None,
        HALF_LIFE_RULE,
        Fixed("the sums of learners are discounted by that of keys"),
        OfPolicies(),
    ] = None
    idle_ttl_s: Annotated[float, Field(ge=1, le=MAX_IDLE_TTL_S)] | None = None
    temperature: Annotated[
        Temperature | Literal["auto"] | None,
        must_be('a number from 1e-9 to 1e9, "auto" or null'),
        OfPolicies(),
    ] = None
    gamma: Annotated[
        Annotated[float, Field(ge=0, le=1e9)] | Literal["auto"] | None,
        must_be('a number from 0 to 1e9, "auto" or null'),
        OfPolicies(),
    ] = None
    filter: Annotated[dict[str, Any], Field(description="conditions on the metadata of arms")] | None = None
    solver: Annotated[Literal["shortlist", "adaptive"], OfPolicies()] = "shortlist"
    holdout: HoldoutRule | None = None
    log: LogRule | None = None
    # The following settings are stored only where they differ from their default, which therefore never
    # changes.
    context: Annotated[
        ContextRule | None, Fixed("a learner has parameters for each number of the context"), OfPolicies()
    ] = None
    interactions: Annotated[
        Annotated[int, Field(ge=1, le=MAX_DIM)] | Literal["all"] | None,
        must_be(f'a whole number from 1 to {MAX_DIM}, "all" or null'),
        Fixed("a learner has parameters for each direction"),
    ] = None
    repeats: RepeatsRule | None = None
    signals: Annotated[dict[Identifier, SignalRule], Field(min_length=1)] | None = None
    guardrails: Annotated[list[GuardrailRule], Field(max_length=MAX_GUARDRAILS)] | None = None
    position: Annotated[
        Literal["auto"] | PositionRule | None,
        POSITION_RULE,
        absent_is('"auto" where arm_effects is "auto" and there are no signals, else null'),
    ] = None
    intercept: Annotated[
        bool,
        Fixed("a learner has a parameter for it"),
        absent_is("true, but with policies of elimination"),
    ] = False
    epsilon: Annotated[Annotated[float, Field(ge=0, le=1)] | None, OfPolicies()] = None
    alpha: Annotated[Annotated[float, Field(ge=0, le=1e6)] | None, OfPolicies()] = None
    arm_effects: Annotated[
        Literal["auto", "off"],
        absent_is('"auto" where prior is "learned" and the policy takes it, else "off"'),
    ] = "off"
    options: Annotated[dict[str, Any] | None, OfPolicies()] = None
    constraints: dict[Identifier, dict[str, Any]] | None = None
    match: Annotated[
        MatchRule | None, Fixed("a learner has a parameter for each of its numbers"), OfPolicies()
    ] = None


def no_learned_places(settings: BanditSettings) -> str | None:
    """The reason why the bandit cannot learn the places of lists; None: it can."""
    if settings.arm_effects == "off":
        return "needs arm_effects: auto, which say what is expected of an arm"
    if settings.signals is not None:
        return "does not go with signals: state the examination"
    return None


class BanditRecord(BanditSettings, frozen=True):
    """The record of a bandit: its settings, and values fixed when it was made.

    ``directions``     those of the catalogue when the bandit was made, float64 row by row; None without a
                       context, and with interactions "all"
    ``mean_square``    the mean squared length of its arms then: the unit of ``auto`` before there are
                       rewards; None of a catalogue without arms
    ``constant``       of the ``intercept``: the root mean square of the coordinates of the arms then; None
                       without one, and until the catalogue has arms and a choice or a reward comes
    ``space``          how often the bandit was moved to another catalogue
    ``catalogue_uid``  of the catalogue after a move
    ``moved_ms``       when it was moved, since 1970
    ``filled``         how many numbers of an arm were not 0 then, on average; None where nothing depends on
                       it
    ``arm_clock``      by which arms fade, once their half-life was changed
    ``weighs_places``  stated places have weights, as learned ones have; not of bandits made before version 3
    """

    directions: bytes | None = None
    mean_square: float | None = None
    constant: float | None = None
    space: int = 0
    catalogue_uid: str | None = None
    moved_ms: int = 0
    filled: float | None = None
    arm_clock: ArmClock | None = None
    weighs_places: bool = False

    @property
    def learns_places(self) -> bool:
        """True if lists teach what rewards at their places weigh; stated places are held."""
        rule = self.position
        if not isinstance(rule, PositionRule):
            return rule == AUTO
        # A token has numbers of so many places, and none of the first.
        fits_token = rule.examination[0] == 1.0 and len(rule.examination) <= MOST_LEARNED_PLACES
        return self.weighs_places and fits_token and no_learned_places(self) is None

    @property
    def key_half_life_s(self) -> float | None:
        """After which a reward counts half for the learner of its key."""
        half_life = self.half_life_s
        return half_life.keys if isinstance(half_life, HalfLives) else half_life

    @property
    def arm_half_life_s(self) -> float | None:
        """After which a reward counts half for the effect of its arm."""
        half_life = self.half_life_s
        return half_life.arms if isinstance(half_life, HalfLives) else half_life

    @property
    def clock_of_arms(self) -> ArmClock | None:
        """The clock by which sums of arms fade; None: no reward has ever faded."""
        if self.arm_clock is not None or self.arm_half_life_s is None:
            return self.arm_clock
        return ArmClock(self.arm_half_life_s)

    def arm_time(self, decided_ms: int) -> ArmTime | None:
        """The time of an arm's reward, for the log's entry."""
        if self.arm_clock is None and self.arm_half_life_s == self.key_half_life_s:
            return None
        clock = self.clock_of_arms
        return ArmTime(0.0, 0) if clock is None else ArmTime(clock.half_life_s, clock.at(decided_ms))

    @property
    def signal_count(self) -> int:
        """The number of separately learned rewards: one without names."""
        return len(self.signals or (0,))

    def defaults(self, values: Mapping[str, float] = MappingProxyType({})) -> tuple[float, ...]:
        """The values of each signal, or of the only reward, while none comes; ``values`` replace them.

        Zeros at the end are left out.
        """
        numbers = [self.reward.default or 0.0]
        if self.signals is not None:
            numbers = [values.get(name, rule.default) for name, rule in self.signals.items()]
        while numbers and not numbers[-1]:
            numbers.pop()
        return tuple(numbers)

    def state_bytes(self, dim: int) -> int:
        """Size of the state of a learner of this dimension."""
        return state_bytes(dim, discounted=self.key_half_life_s is not None, signals=self.signal_count)


@dataclass(frozen=True, slots=True)
class SignalRef:
    """The signal of a reward: its place among those of the bandit, and its rule."""

    place: int
    rule: SignalRule

    @classmethod
    def of(cls, signals: Mapping[str, SignalRule], name: str | None) -> SignalRef | None:
        """None where no signal of this name is."""
        return None if name is None or name not in signals else cls(list(signals).index(name), signals[name])
