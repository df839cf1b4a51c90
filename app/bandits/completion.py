"""From requested settings to the record of a bandit: defaults, and the needs of its policy.

Three things depend on the arms and are fixed when a bandit is made: the unit of the features, the constant of
an intercept, and the directions of a context. A later request for the same bandit gets the same one, whatever
the arms are by then.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Literal, Protocol

import numpy as np
from msgspec.structs import replace

from app.bandits import context as contexts
from app.bandits import signals
from app.bandits.record_settings import FIXED
from app.bandits.settings import AUTO, BanditRecord, HalfLives, no_learned_places
from app.catalogues.catalogue import Catalogue
from app.indexes.snapshot import Snapshot
from app.platform.documents import Answer
from app.platform.errors import Invalid
from app.records.arm_sums import ArmClock
from app.records.encoding import completed_match
from app.records.features import REDUCE_CURE
from app.records.records import differing
from shortlist.linear.scales import Scales
from shortlist.types import Rows

MAX_LEARNER_BYTES = 16 << 20
MAX_KEY_LEARNER_BYTES = 4 << 20
MOST_MEASURED = 1 << 20  # numbers of features
# Settings whose default follows from others: a PUT without them asks for the present values.
NEW_WHERE_ABSENT = "ridge", "exploration", "prior", "intercept", "arm_effects", "position"


class PolicyNeeds(Answer, frozen=True):
    """``arms_in_memory``: not where the arms are in an engine. ``max_dim``: of the arms. ``max_work``: of
    their number times the square of their dimension. ``max_signals``: of the bandit. null: any.
    """

    schema_name = "PolicyNeeds"

    arms_in_memory: bool = True
    max_dim: int | None = None
    max_work: float | None = None
    max_signals: int | None = None


class PolicyTerms(Protocol):
    """The part of a policy used by bandits: ``Policy`` in a folder above defines each property."""

    @property
    def needs(self) -> PolicyNeeds: ...

    @property
    def begins_again(self) -> str | None: ...

    def completed(self, record: BanditRecord, stored: BanditRecord | None = None) -> BanditRecord: ...

    def check_arms(self, record: BanditRecord, catalogue: Catalogue) -> None: ...

    def exploration(self, record: BanditRecord, dim: int, numbers: float) -> float: ...

    def eta(self, record: BanditRecord) -> float: ...

    def scales(self, record: BanditRecord, numbers: float) -> Scales: ...


def completed(
    record: BanditRecord, policies: Mapping[str, PolicyTerms], stored: BanditRecord | None = None
) -> BanditRecord:
    """The record with the defaults of its policy and of its context. Raises Invalid.

    ``stored``: the present record; None: a new bandit.
    """
    if record.prior == "learned" and (missing := _no_learned_prior(record)):
        raise Invalid(f"prior: learned {missing}", path=("prior",))
    if record.arm_effects == "auto" and (refusal := no_arm_effects(record)):
        raise Invalid(f"arm_effects: auto {refusal}", path=("arm_effects",))
    if isinstance(record.half_life_s, HalfLives) and record.half_life_s.arms and record.arm_effects == "off":
        raise Invalid("needs arm_effects: auto, else no arm learns anything", path=("half_life_s", "arms"))
    if record.position == AUTO and (refusal := no_learned_places(record)):
        raise Invalid(f"position: auto {refusal}", path=("position",))
    signals.check(record, most=policies[record.policy].needs.max_signals)
    record = contexts.completed(policies[record.policy].completed(record, stored))
    if stored is None:
        record = replace(record, weighs_places=no_learned_places(record) is None)
    return record if record.match is None else replace(record, match=completed_match(record.match))


def with_else(
    record: BanditRecord, stored: BanditRecord | None, catalogue: Catalogue | None = None
) -> BanditRecord:
    """The record with its holdout's answer where no arm of the list is eligible.

    ``stored``: the present record, whose list keeps its answer; None: a new bandit. ``catalogue``: of a new
    list, which then serves random arms, if they can be drawn here.
    """
    rule, before = record.holdout, None if stored is None else stored.holdout
    if rule is None:
        return record
    or_else = rule.or_else
    if or_else is None and rule.is_list:
        if before is not None and before.is_list:
            or_else = before.or_else
        elif catalogue is not None and catalogue.resident is not None:
            or_else = "random"
    return replace(record, holdout=replace(rule, or_else=or_else))


def with_arm_clock(record: BanditRecord, before: BanditRecord, now_ms: int) -> BanditRecord:
    """The record with the clock of arms after a change of their half-life."""
    half_life_s, clock = record.arm_half_life_s, before.clock_of_arms
    if half_life_s == before.arm_half_life_s:
        return record
    if clock is not None:
        return replace(record, arm_clock=clock.of_half_life(half_life_s, now_ms))
    # The clock begins at 0, the time of sums which have never faded: they count whole until now.
    return replace(record, arm_clock=ArmClock(half_life_s, now_ms)) if half_life_s else record


def default_prior(record: BanditRecord, *, takes_prior: bool) -> Literal["learned", "plain"]:
    """The default of ``prior``. ``takes_prior``: the policy has a prior which changes."""
    return "learned" if takes_prior and not _no_learned_prior(record) else "plain"


def no_arm_effects(record: BanditRecord) -> str | None:
    """The reason why the bandit cannot have arm effects; None: it can."""
    if record.prior == "learned":
        return None
    if record.scope == "global":
        return "needs scope: per_key; one learner cannot tell an arm from who saw it"
    return (
        "needs prior: learned; without one the effect of an arm would be what those like who were shown it, "
        "and policies of elimination have none"
    )


def _no_learned_prior(record: BanditRecord) -> str | None:
    """The reason why the bandit cannot have a learned prior; None: it can, if its policy takes one."""
    if record.scope == "global":
        return "needs scope: per_key; a global bandit has one learner"
    if record.exploration == "theory":
        return "cannot be combined with exploration: theory, which is proved for the plain prior"
    if record.ridge != AUTO:
        return 'needs ridge: "auto": the prior has a precision of its own'
    return None


def check_size(record: BanditRecord, dim: int, most_global: int = MAX_LEARNER_BYTES) -> None:
    """Raise Invalid for too large learners. ``most_global``: bytes of one for all keys."""
    size = record.state_bytes(dim)
    per_key = record.scope == "per_key"
    most = MAX_KEY_LEARNER_BYTES if per_key else most_global
    if size > most:
        raise Invalid(
            f"a learner of dimension {dim} takes {size:,} bytes: at most {most:,} with scope {record.scope}; "
            f"{REDUCE_CURE}",
            path=("scope" if per_key and size <= most_global else "catalogue",),
        )


def differences(record: BanditRecord, stored: BanditRecord, absent: Collection[str]) -> Sequence[str]:
    """The requested settings which differ from the stored bandit's.

    ``absent``: settings missing in the request; those of ``NEW_WHERE_ABSENT`` then stay as stored.
    """
    of_stored = {name: getattr(stored, name) for name in NEW_WHERE_ABSENT if name in absent}
    return differing(_asked(stored), _asked(with_else(replace(record, **of_stored), stored)))


def ways_to_change(record: BanditRecord, stored: BanditRecord, different: Sequence[str]) -> str:
    """The way from the stored bandit to the requested one: by PATCH, by a move, or none."""
    stays = {name for name in different if name in FIXED}
    if record.key_half_life_s == stored.key_half_life_s:
        stays.discard("half_life_s")
    if set(stored.signals or ()) - set(record.signals or ()) or stored.signals is None:
        stays |= {"signals"} & {*different}
    if not stays:
        return "PATCH changes it"
    ways = []
    if changeable := [name for name in different if name not in stays]:
        ways.append(f"PATCH changes {', '.join(changeable)}")
    if "catalogue" in stays:
        ways.append("POST …/move moves it to another catalogue")
    if others := [name for name in different if name in stays - {"catalogue"}]:
        ways.append(f"{', '.join(others)} cannot be changed: take another name")
    return "; ".join(ways)


def _asked(record: BanditRecord) -> BanditRecord:
    """The caller's part of a record: the same for any arms which the catalogue had at the creation."""
    derived = {"directions": None, "mean_square": None, "constant": None, "filled": None, "arm_clock": None}
    return replace(record, **derived, space=0, catalogue_uid=None, moved_ms=0, weighs_places=False)


def with_unit(record: BanditRecord, before: BanditRecord, arms: Snapshot) -> BanditRecord:
    """The record with facts of the arms from now on: their unit, and their number of filled coordinates."""
    # A patch without a difference changes nothing, also where arms have come since the bandit was made.
    if record == before:
        return record
    if record.mean_square is None and record.ridge == AUTO != before.ridge:
        record = replace(record, mean_square=mean_square_of(arms))
    return _with_filled(record, arms)


def measured(record: BanditRecord, arms: Snapshot) -> BanditRecord:
    """The record with the unit of the features, if the unit is missing and the arms are there."""
    if not needs_arms(record):
        return record
    square = mean_square_of(arms)
    if _needs_constant(record) and arms.size:
        record = replace(record, constant=1.0 if square is None else math.sqrt(square / arms.table.dim))
    record = record if record.mean_square is not None else replace(record, mean_square=square)
    return _with_filled(record, arms)


def of_unit_one(record: BanditRecord) -> BanditRecord:
    """The record of a bandit whose catalogue has no arms, at the first choice from arms of a request."""
    square = 1.0 if record.mean_square is None else record.mean_square
    return replace(record, constant=1.0, mean_square=square)


def needs_arms(record: BanditRecord) -> bool:
    """True if the record lacks a value that the arms decide."""
    return _needs_constant(record) or record.mean_square is None


def _needs_constant(record: BanditRecord) -> bool:
    return record.intercept and record.constant is None


def _with_filled(record: BanditRecord, arms: Snapshot) -> BanditRecord:
    needs_filled = record.context is not None and record.filled is None
    return replace(record, filled=filled_of(arms)) if needs_filled else record


def constant_of(record: BanditRecord) -> float | None:
    """The learners' coordinate besides those of an arm; 0 until ``constant`` is known."""
    return (record.constant or 0.0) if record.intercept else None


def mean_square_of(arms: Snapshot) -> float | None:
    """The mean squared length of the arms, or of an even sample of them; None for 0."""
    rows = _sample(arms)
    if not len(rows):
        return None
    features = arms.features_of(rows).astype(np.float64, copy=False)
    square = float(np.einsum("ij,ij->", features, features)) / len(rows)
    return square if 0.0 < square < math.inf else None


def filled_of(arms: Snapshot) -> float | None:
    """The mean number of coordinates of an arm other than 0, over the arms or an even sample; None without
    arms.
    """
    rows = _sample(arms)
    return float(np.count_nonzero(arms.features_of(rows))) / len(rows) if len(rows) else None


def _sample(arms: Snapshot) -> Rows:
    rows = arms.eligible()
    return rows[:: max(1, -(-len(rows) * arms.table.dim // MOST_MEASURED))]
