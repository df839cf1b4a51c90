"""What a policy is: one row of the table in ``policies``."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field

import msgspec

from app.errors import FieldPath, Invalid, NotPossibleHere
from app.services.bandits.bandit import Bandit
from app.services.bandits.completion import constant_of
from app.services.bandits.settings import AUTO, BY_ARM, BanditRecord
from app.services.bandits.signals import weighing_of
from app.services.catalogues.adaptive_solver import IndependentSolvers
from app.services.catalogues.catalogues import Catalogue
from app.services.catalogues.filtered_snapshots import FilteredSnapshots
from app.services.choosing.covers import Covers
from app.services.choosing.elimination_cache import EliminationCache
from app.services.choosing.elimination_state import Sets
from app.services.choosing.selection import Selection, SelectionRequest
from app.services.choosing.target import Targets
from app.services.choosing.warm_up import WarmUp
from app.services.learning.learners import Learners
from app.storage.protocol import LearnerId
from shortlist import confidence
from shortlist.linear import scales
from shortlist.linear.scales import Scales

# The options of a bandit that only some policies have, and what each is where nobody asked for it.
SPECIAL_OPTIONS: Mapping[str, object] = {
    "temperature": None,
    "gamma": None,
    "explore": None,
    "solver": "shortlist",
    "prior": "plain",
    "half_life_s": None,
    "context": None,
}
# Why some policies do not have an option.
REASONS: Mapping[str, str] = {
    "context": "an arm that is eliminated in one context may be the best one in another",
}


@dataclass(frozen=True, slots=True, eq=False)
class PolicyDependencies:
    """What policies choose with."""

    learners: Learners
    filtered: FilteredSnapshots
    independent: IndependentSolvers
    elimination: EliminationCache
    warm_up: WarmUp
    covers: Covers


Select = Callable[[PolicyDependencies, SelectionRequest], Awaitable[Selection]]


def _refusal(option: str, policy: str) -> str:
    reason = f": {REASONS[option]}" if option in REASONS else ""
    return f"{option} does not go with the policy {policy}{reason}"


def delta_of_a_round(record: BanditRecord) -> float:
    """Yang et al. 2022, Algorithm 4, line 2."""
    return record.delta / (4 * record.horizon)


@dataclass(frozen=True, slots=True)
class Policy:
    """One row of the table.

    ``name``           as in the API
    ``choose``         how it chooses
    ``theory_delta``   the delta of the paper's confidence radius, where ``exploration`` is "theory"
    ``options``        which of ``SPECIAL_OPTIONS`` it has
    ``defaults``       what an option of a bandit becomes where it is None
    ``needs_exploration``  whether ``exploration`` must not be 0
    ``fixed``          whether ridge and radius stay as they are while a learner learns
    ``most_dim``       largest dimension of the arms; None: any
    ``propensities``   whether it gives each arm its propensity
    ``diverse``        whether its lists can be made diverse: they are of largest score, without propensities
    ``most_signals``   how many signals it takes; None: any, weighed anew by each request
    ``proposed``       whether it chooses among the arms that an index proposes, and needs no others
    ``sets``           what it has eliminated, if it eliminates arms: (dependencies, bandit, learner)
    ``targets``        how it is evaluated on a log; None: it cannot be
    """

    name: str
    choose: Select
    theory_delta: Callable[[BanditRecord], float] = delta_of_a_round
    options: frozenset[str] = frozenset()
    defaults: Mapping[str, object] = field(default_factory=dict)
    needs_exploration: bool = False
    fixed: bool = False
    most_dim: int | None = None
    propensities: bool = False
    diverse: bool = False
    most_signals: int | None = None
    proposed: bool = False
    sets: Callable[[PolicyDependencies, Bandit, LearnerId], Awaitable[Sets]] | None = None
    targets: Targets | None = None

    def completed(self, record: BanditRecord) -> BanditRecord:
        """The record with this policy's defaults. Raises Invalid, naming every field that it refuses."""
        refused: list[tuple[FieldPath, str]] = [
            ((option,), _refusal(option, self.name))
            for option, absent in SPECIAL_OPTIONS.items()
            if option not in self.options and getattr(record, option) != absent
        ]
        if self.needs_exploration and record.exploration == 0:
            refused.append((("exploration",), f"exploration must be > 0 for the policy {self.name}"))
        if record.exploration == "theory" and record.ridge == AUTO:
            refused.append((("ridge",), 'ridge must be a number where exploration is "theory"'))
        if refused:
            raise Invalid.many(refused)
        absent = {name: value for name, value in self.defaults.items() if getattr(record, name) is None}
        return msgspec.structs.replace(record, **absent)

    def check_arms(self, record: BanditRecord, catalogue: Catalogue) -> None:
        """Raise Invalid when the arms have more dimensions than this policy can serve; NotPossibleHere where
        it needs all of them in memory, and they are not.
        """
        if not catalogue.holds_arms:
            refused = [(path, f"{what} needs all arms in memory") for path, what in self._needs_all(record)]
            if refused:
                raise NotPossibleHere.many(refused)
        if self.most_dim is not None and catalogue.dim > self.most_dim:
            message = f"the policy {self.name} needs a catalogue of dimension {self.most_dim} at most"
            raise Invalid(message, path=("policy",))

    def _needs_all(self, record: BanditRecord) -> Iterator[tuple[FieldPath, str]]:
        """What looks at every arm, of all that a bandit asks for."""
        if not self.proposed:
            yield ("policy",), f"the policy {self.name}"
        if record.solver == "adaptive":
            yield ("solver",), "the solver adaptive"
        if record.explore is not None:
            yield ("explore",), "a warm-up"
        if record.repeats is not None and record.repeats.by != BY_ARM:
            yield ("repeats", "by"), "repeats of the values of a field"
        if record.holdout is not None and record.holdout.serve == "random":
            yield ("holdout", "serve"), "a random holdout"

    def exploration(self, record: BanditRecord, dim: int) -> float:
        """The multiplier of sigma V^-1/2 xi, or the radius of elimination: as given, the paper's, or ours.

        ``dim``: dimension of what the learners learn.
        """
        if isinstance(record.exploration, float | int):
            return record.exploration
        if record.exploration == AUTO:
            return scales.RADIUS * (spread_of(record) or 1.0) if self.fixed else scales.exploration(dim)
        ridge = record.ridge if isinstance(record.ridge, float | int) else 1.0
        return confidence.beta(self.theory_delta(record), dim=dim, horizon=record.horizon, ridge=ridge)

    def eta(self, record: BanditRecord) -> float:
        """As given, or T^-1/2 (Corollaries 5.3 and 6.2), in the unit of rewards where the radius is."""
        if record.eta is not None:
            return record.eta
        unit = (spread_of(record) or 1.0) if self.fixed and record.exploration == AUTO else 1.0
        return unit / math.sqrt(record.horizon)

    def scales(self, record: BanditRecord, dim: int) -> Scales:
        """How posteriors of its learners are made; ``dim`` is the dimension of what they learn."""
        square = 1.0 if record.mean_square is None else record.mean_square
        if (constant := constant_of(record)) is not None:
            square = constant.mean_square(square)
        otherwise = scales.ridge_share(dim) * square
        if self.fixed:
            return Scales(otherwise if isinstance(record.ridge, str) else record.ridge)
        learns_noise = AUTO in (record.exploration, record.temperature, record.gamma) or any(
            rule.noise != AUTO for rule in (record.signals or {}).values()
        )
        spread = spread_of(record) if learns_noise else None
        if isinstance(record.ridge, str):
            return Scales(None, otherwise, learns_noise, spread)
        return Scales(record.ridge, learns_noise=learns_noise, spread=spread)


def spread_of(record: BanditRecord) -> float | None:
    """Half of what rewards can differ by, in the unit that learners learn in; None: they have no bounds.

    Of signals: what their sum can, by the weights of the bandit.
    """
    if (weighing := weighing_of(record)) is not None:
        return weighing.spread
    low, high = record.reward.min, record.reward.max
    if low is None or high is None:
        return None
    return (high - low) / (4.0 if record.shift_rewards else 2.0)
