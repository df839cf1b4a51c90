"""What a policy is: one row of the table in ``policies``."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from app.errors import FieldPath, Invalid
from app.services.bandits.bandits import Bandit
from app.services.catalogues.adaptive_solver import IndependentSolvers
from app.services.catalogues.filtered_views import FilteredViews
from app.services.choosing.covers import Covers
from app.services.choosing.elimination_cache import EliminationCache
from app.services.choosing.elimination_state import Sets
from app.services.choosing.selection import Selection, SelectionRequest
from app.services.choosing.target import Targets
from app.services.choosing.warm_up import WarmUp
from app.services.formats.records import BanditRecord
from app.services.learning.learners import Learners
from app.storage.protocol import LearnerId
from shortlist import confidence

# The options of a bandit that only some policies have, and what each is where nobody asked for it.
SPECIAL_OPTIONS: Mapping[str, object] = {
    "temperature": None,
    "gamma": None,
    "explore": None,
    "solver": "shortlist",
    "prior": "plain",
    "half_life_s": None,
    "context": msgspec.UNSET,
}
# Why some policies do not have an option.
REASONS: Mapping[str, str] = {
    "context": "an arm that is eliminated in one context may be the best one in another",
}


@dataclass(frozen=True, slots=True, eq=False)
class PolicyDependencies:
    """What policies choose with."""

    learners: Learners
    filtered: FilteredViews
    independent: IndependentSolvers
    elimination: EliminationCache
    warm_up: WarmUp
    covers: Covers


Select = Callable[[PolicyDependencies, SelectionRequest], Awaitable[Selection]]


def _refusal(option: str, policy: str) -> str:
    reason = f": {REASONS[option]}" if option in REASONS else ""
    return f"{option} does not go with the policy {policy}{reason}"


def _nothing(record: BanditRecord) -> Sequence[tuple[str, str]]:  # noqa: ARG001 - of every record
    return ()


@dataclass(frozen=True, slots=True)
class Policy:
    """One row of the table.

    ``name``           as in the API
    ``choose``         how it chooses
    ``theory_delta``   the delta of the paper's confidence radius, where ``exploration`` is "theory"
    ``options``        which of ``SPECIAL_OPTIONS`` it has
    ``defaults``       what an option of a bandit becomes where it is None
    ``refusals``       (field, reason) of what else a bandit must not request for
    ``most_dim``       largest dimension of the arms; None: any
    ``propensities``   whether it gives each arm its propensity
    ``sets``           what it has eliminated, if it eliminates arms: (dependencies, bandit, learner)
    ``targets``        how it is evaluated on a log; None: it cannot be
    """

    name: str
    choose: Select
    theory_delta: Callable[[BanditRecord], float]
    options: frozenset[str] = frozenset()
    defaults: Mapping[str, object] = field(default_factory=dict)
    refusals: Callable[[BanditRecord], Sequence[tuple[str, str]]] = _nothing
    most_dim: int | None = None
    propensities: bool = False
    sets: Callable[[PolicyDependencies, Bandit, LearnerId], Awaitable[Sets]] | None = None
    targets: Targets | None = None

    def completed(self, record: BanditRecord) -> BanditRecord:
        """The record with this policy's defaults. Raises Invalid, naming every field that it refuses."""
        found: list[tuple[FieldPath, str]] = [
            ((option,), _refusal(option, self.name))
            for option, absent in SPECIAL_OPTIONS.items()
            if option not in self.options and getattr(record, option) != absent
        ]
        found += [((name,), reason) for name, reason in self.refusals(record)]
        if found:
            raise Invalid.many(found)
        absent = {name: value for name, value in self.defaults.items() if getattr(record, name) is None}
        return msgspec.structs.replace(record, **absent)

    def check_dim(self, dim: int) -> None:
        """Raise Invalid when the arms have more dimensions than this policy can serve."""
        if self.most_dim is not None and dim > self.most_dim:
            message = f"the policy {self.name} needs a catalogue of dimension {self.most_dim} at most"
            raise Invalid(message, path=("policy",))

    def exploration(self, record: BanditRecord, dim: int) -> float:
        """The multiplier of V^-1/2 xi, or the radius of elimination: as given, or the paper's.

        ``dim``: dimension of what the learners learn.
        """
        if not isinstance(record.exploration, str):
            return record.exploration
        delta = self.theory_delta(record)
        return confidence.beta(delta, dim=dim, horizon=record.horizon, ridge=record.ridge)
