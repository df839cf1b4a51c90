"""A policy: the class that each policy extends. ``policies.registry`` lists the policies.

A policy chooses arms for one learner. To write one: make a subclass of ``Policy`` in a file of this folder,
give it a ``name`` and a ``summary``, write ``rank``, and add an object of it to ``policies.registry``.
Everything else has a default. The name is then valid in the API, the console, the clients and ``GET
/v1/policies``.

A choice calls the methods of its policy in this order:

1. ``prepare``, in the event loop. May await a cover of the catalogue or a slot in the store.
2. ``cost_us``: whether ``rank`` is short enough for the event loop, or runs in a thread.
3. ``rank``, pure: awaits nothing, keeps nothing, and draws from the given generator alone. Explanations
repeat a choice: the same seed on the same state must give the same answer.

Filters, quotas, frequency caps, exclusions and pins need nothing from a policy as long as it takes its arms
from ``Candidates``.

Small contracts declare further abilities:

    Exploring          the meaning of "auto" and "theory": every policy has this contract, and may replace its
                       methods
    Evaluable          a log can estimate its rewards (``policies.targets``)
    StatefulPolicy     keeps a state of each learner (``policies.stateful``)
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import msgspec

from app.bandits.completion import PolicyNeeds, constant_of
from app.bandits.record_settings import OF_POLICIES
from app.bandits.settings import AUTO, BY_ARM, BanditRecord
from app.bandits.signals import weighing_of
from app.catalogues.adaptive_solver import IndependentSolvers
from app.catalogues.catalogue import Catalogue
from app.catalogues.learner_snapshot import LearnerSnapshot
from app.engines.engine_index import EngineIndex
from app.engines.proposals import Proposals
from app.filtering.filtered_snapshots import FilteredSnapshots
from app.learners.learners import Learners
from app.platform.documents import Document, errors_of
from app.platform.errors import FieldPath, Invalid, NotPossibleHere
from app.policies.elimination_state import EliminationCache
from app.policies.policy_states import PolicyStates
from app.selection.computing import computed, generator_at
from app.selection.covers import Covers
from app.selection.effect_tables import EffectTables
from app.selection.selection import Candidates, Ranking, ReadSnapshot, Selection, SelectionRequest
from shortlist import confidence
from shortlist.linear import evidence, scales
from shortlist.linear.exploration import exploration_by_evidence
from shortlist.linear.ridge import Posterior
from shortlist.linear.scales import Scales
from shortlist.types import NO_ROWS, Rows, TopK, Vector

GONE = 8  # arms at hand besides those wanted: the store may have lost some since they were read
ANY_PRIOR = frozenset({"prior", "half_life_s"})


@dataclass(frozen=True, slots=True, eq=False)
class PolicyDependencies:
    """The services and caches of policies."""

    learners: Learners
    filtered: FilteredSnapshots
    independent: IndependentSolvers
    elimination: EliminationCache
    states: PolicyStates
    covers: Covers
    effects: EffectTables


class PolicySettings:
    """The declarations of a policy, and the settings of its bandits.

    ``name``, ``summary``  as in the API, and one sentence on its exploration
    ``options``            its settings marked ``OfPolicies``; others are refused
    ``own_options``        of a policy from outside: a ``Document`` for ``options`` of its bandits, each field
                           with its type, bounds and default; None: no options
    ``reads``              the common settings of bandits with an effect on the policy. "arm_effects": ranks
                           by the effects of arms, too: ``Candidates.effects``
    ``defaults``           values of options that are None
    ``has_propensities``   whether ``rank`` gives the probability of each arm. They must be exact: evaluations
                           divide by them. Declared here, as the API needs the answer before any ranking
    ``lists_by_score``     whether its lists are in the order of scores, so that ``diverse`` may reorder them.
                           No contract implies the order: a log may estimate other lists, and not these
    ``needs``              needs of a catalogue and of a bandit: arms in memory, largest sizes
    ``not_evaluated``      of a policy that is not ``Evaluable``: why no log can estimate its rewards
    ``begins_again``       a sentence on the losses of a move to another catalogue; None: nothing
    ``takes_candidates``   whether a request may name the only arms allowed
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    options: ClassVar[frozenset[str]] = frozenset()
    own_options: ClassVar[type[Document] | None] = None
    reads: ClassVar[frozenset[str]] = frozenset({"ridge"})
    defaults: ClassVar[Mapping[str, object]] = {}
    has_propensities: ClassVar[bool] = False
    lists_by_score: ClassVar[bool] = False
    needs: ClassVar[PolicyNeeds] = PolicyNeeds()
    not_evaluated: ClassVar[str] = "it does not say how likely it is to draw a list"
    begins_again: ClassVar[str | None] = None
    takes_candidates: ClassVar[bool] = False

    # When a bandit is made or changed.

    def completed(self, record: BanditRecord, stored: BanditRecord | None = None) -> BanditRecord:
        """The record with this policy's defaults. Raises Invalid, naming every refused field.

        ``stored``: the bandit before. Settings without effect that were accepted then may stay.
        """
        refused = list(self.check(record))
        if stored is None or stored.policy != self.name:
            refused += self.check_unread(record)
        else:
            earlier = {path for path, _ in self.check_unread(stored)}
            refused += [refusal for refusal in self.check_unread(record) if refusal[0] not in earlier]
        if refused:
            raise Invalid.many(refused)
        absent = {name: value for name, value in self.defaults.items() if getattr(record, name) is None}
        return msgspec.structs.replace(record, **absent)

    def check(self, record: BanditRecord) -> Iterator[tuple[FieldPath, str]]:
        """The mistakes in the settings of a bandit of this policy: field and rule."""
        for option, absent in OF_POLICIES.items():
            if option not in self.all_options and getattr(record, option) != absent:
                reason = f"cannot be combined with the policy {self.name}: {self.why_not(option)}"
                yield (option,), f"{option} {reason}"
        if self.own_options is not None:
            yield from errors_of(self.own_options, record.options or {}, ("options",))
        if record.arm_effects == "auto" and not self.takes_effects:
            reason = f"arm_effects: auto cannot be combined with the policy {self.name}"
            yield ("arm_effects",), f"{reason}, which ranks arms by their features alone"
        if record.holdout is not None and record.holdout.is_of_caller and not self.takes_candidates:
            reason = f"a holdout that serves candidates cannot be combined with the policy {self.name}"
            yield ("holdout", "serve"), f"{reason}, whose requests have none"
        if record.exploration == "theory" and record.ridge == AUTO:
            yield ("ridge",), 'ridge must be a number where exploration is "theory"'

    def why_not(self, option: str) -> str:
        """Why the policy lacks an option of others."""
        return "it has no such option"

    @property
    def all_options(self) -> frozenset[str]:
        """The policy's settings among those of some policies only."""
        return self.options if self.own_options is None else self.options | {"options"}

    @property
    def takes_effects(self) -> bool:
        """Return whether the policy ranks by the effects of arms."""
        return "arm_effects" in self.reads

    def options_of(self, record: BanditRecord) -> Any:
        """The ``own_options`` of a bandit, absent ones with their defaults. Cost: some microseconds."""
        if self.own_options is None:
            raise TypeError(f"the policy {self.name} has no options of its own")
        return msgspec.convert(record.options or {}, self.own_options)

    def check_unread(self, record: BanditRecord) -> Iterator[tuple[FieldPath, str]]:
        """Settings with a promise this policy does not keep, as it does not read them: field and reason.

        Numbers without an effect now are kept: another policy may read them again.
        """
        if "exploration" not in self.reads and record.exploration == "theory":
            why = "the guarantee is of policies that read exploration"
            yield ("exploration",), f'exploration: "theory" promises nothing of the policy {self.name}: {why}'
        if record.eta is not None and not self.reads_eta(record):
            why = 'it is of elimination, and of sub_ts with solver: "adaptive"'
            yield ("eta",), f"eta has no effect on the policy {self.name} with these settings: {why}"

    def reads_eta(self, record: BanditRecord) -> bool:
        """Return whether ``eta`` has an effect: on the adaptive solver, where a policy has this solver."""
        if "eta" not in self.reads:
            return False
        return "solver" not in self.options or record.solver == "adaptive"

    def check_arms(self, record: BanditRecord, catalogue: Catalogue) -> None:
        """Raise Invalid when the arms are too many or have more dimensions than this policy can serve;
        NotPossibleHere where the policy needs all arms in memory, and they are elsewhere.
        """
        if catalogue.resident is None:
            refused = [(path, f"{what} needs all arms in memory") for path, what in self._needs_all(record)]
            if refused:
                raise NotPossibleHere.many(refused)
        if self.needs.max_dim is not None and catalogue.dim > self.needs.max_dim:
            message = f"the policy {self.name} needs a catalogue of dimension {self.needs.max_dim} at most"
            raise Invalid(message, path=("policy",))
        self.check_size(catalogue)

    def check_size(self, catalogue: Catalogue) -> None:
        """Raise Invalid where the catalogue has more arms than ``needs.max_work`` allows: K d^2."""
        if self.needs.max_work is None:
            return
        most, arms = int(self.needs.max_work / catalogue.dim**2), catalogue.index.snapshot().size
        if arms > most:
            why = f"it compares all of them, at most {most:,} of dimension {catalogue.dim}"
            raise Invalid(f"the policy {self.name} cannot serve {arms:,} arms: {why}", path=("policy",))

    def _needs_all(self, record: BanditRecord) -> Iterator[tuple[FieldPath, str]]:
        """The parts of a bandit that look at every arm."""
        if self.needs.arms_in_memory:
            yield ("policy",), f"the policy {self.name}"
        if record.solver == "adaptive":
            yield ("solver",), "the solver adaptive"
        if record.repeats is not None and record.repeats.by != BY_ARM:
            yield ("repeats", "by"), "repeats of the values of a field"
        if record.holdout is not None and record.holdout.serve == "random":
            yield ("holdout", "serve"), "a random holdout"
        if record.holdout is not None and record.holdout.or_else == "random":
            yield (
                ("holdout", "else"),
                "else: random, where no arm of a holdout's list is eligible (say refuse),",
            )


class Exploring(PolicySettings):
    """The meaning of "auto" and "theory". A policy with another exploration replaces the different
    methods.
    """

    def theory_delta(self, record: BanditRecord) -> float:
        """The delta of the paper's radius, where ``exploration`` is "theory".

        Yang et al. 2022, Algorithm 4, line 2.
        """
        return record.delta / (4 * record.horizon)

    def exploration(self, record: BanditRecord, dim: int, numbers: float) -> float:
        """The multiplier of sigma V^-1/2 xi, or the radius of elimination: as given, the paper's, or our own.

        Our own is the least, see ``Bandit.exploration_of``. ``dim``: dimension of what the learners learn.
        ``numbers``: the count of numbers a decision informs.
        """
        if isinstance(record.exploration, float | int):
            return record.exploration
        if record.exploration == AUTO:
            return exploration_by_evidence(numbers)
        ridge = record.ridge if isinstance(record.ridge, float | int) else 1.0
        return confidence.beta(self.theory_delta(record), dim=dim, horizon=record.horizon, ridge=ridge)

    def eta(self, record: BanditRecord) -> float:
        """As given, or T^-1/2 (Corollaries 5.3 and 6.2)."""
        return 1.0 / math.sqrt(record.horizon) if record.eta is None else record.eta

    def scales(self, record: BanditRecord, numbers: float) -> Scales:
        """The scales for posteriors of its learners. ``numbers``: as for ``exploration``."""
        square = mean_square_of(record)
        dials = (getattr(record, option) for option in ("exploration", *self.options))
        learns_noise = AUTO in dials or any(rule.noise != AUTO for rule in (record.signals or {}).values())
        spread = spread_of(record) if learns_noise else None
        ridge = None if isinstance(record.ridge, str) else record.ridge
        least = 0.0 if record.context is None else 1.0 / scales.ridge_share(numbers)
        otherwise = square / max(evidence.START, least)
        return Scales(ridge, otherwise, learns_noise, spread, least, spreads_of(record))


class Chooser(Exploring, ABC):
    """Whatever chooses arms for a learner. Objects keep nothing: one serves all bandits of its name.

    Nearly all are a ``Policy``, which only ranks. A chooser with more state extends this class.
    """

    @abstractmethod
    async def choose(self, dependencies: PolicyDependencies, request: SelectionRequest) -> Selection:
        """Select arms. Raises Unavailable (a learner outside memory, or too much waits)."""


class Policy(Chooser):
    """Ranks the allowed arms of a choice."""

    takes_candidates = True

    async def choose(self, dependencies: PolicyDependencies, request: SelectionRequest) -> Selection:
        """Select arms: read learner and arms at one moment, ``prepare``, then ``rank``.

        Raises Unavailable (a learner outside memory, or too much waits).
        """
        bandit = request.bandit
        index = bandit.catalogue.index
        if index.resident is None and request.candidates is None:
            return await self._choose_proposed(dependencies, request, index)
        snapshot = await ReadSnapshot.now(dependencies.learners, bandit, request.learner, request.context)
        if request.is_for_some:
            snapshot = await snapshot.among(dependencies.filtered, request)
        if bandit.effects is not None:
            effects = await dependencies.effects.of(bandit, snapshot.arms)
            snapshot = msgspec.structs.replace(snapshot, effects=effects)
        return await self._ranked(dependencies, request, snapshot)

    async def _ranked(
        self, dependencies: PolicyDependencies, request: SelectionRequest, snapshot: ReadSnapshot
    ) -> Selection:
        prepared = await self.prepare(dependencies, request, snapshot)
        exclude = request.excluded(snapshot.arms) if request.exclude or request.pins else NO_ROWS
        rank = partial(
            self.rank,
            snapshot.posterior,
            Candidates(request, snapshot.arms, exclude, snapshot.effects),
            request.k,
            request.rng,
            prepared,
        )
        us = self.cost_us(request, snapshot.arms)
        ranking = await computed(rank, request, snapshot.arms, us=us)
        return Selection(ranking.hits, ranking.propensities, ranking.drawn, snapshot=snapshot)

    async def _choose_proposed(
        self, dependencies: PolicyDependencies, request: SelectionRequest, index: EngineIndex
    ) -> Selection:
        """Rank twice, by the same draws: first the arms at hand, to find the query for the engine and the
        best of them; then these and the engine's proposals.

        At hand are the arms of largest effect. The engine proposes more while too few are allowed.
        """
        bandit, replace = request.bandit, msgspec.structs.replace
        learner = await ReadSnapshot.now(dependencies.learners, bandit, request.learner, request.context)
        state = request.rng.bit_generator.state
        arms, effects = await dependencies.effects.at_hand(bandit, index, request.arm_filter)
        more = replace(request, k=request.k + GONE)
        at_hand = await self._ranked(dependencies, more, replace(learner, arms=arms, effects=effects))
        queries = list(arms.plain.recent)
        best = map(arms.id_of, at_hand.hits.rows.tolist())
        proposals = Proposals(
            index,
            queries,
            max(request.searched, bandit.record.shortlist) + len(request.exclude),
            arm_filter=request.arm_filter,
            also=[*self.named(request), *best],
            pinned=request.pinned,
        )
        while True:
            arms = bandit.seen(await proposals.more())
            snapshot = replace(learner, arms=arms, effects=dependencies.effects.of_few(bandit, arms))
            selection = await self._ranked(dependencies, replace(request, rng=generator_at(state)), snapshot)
            hits = selection.hits
            if proposals.is_all or len(hits.rows) == request.k:
                return replace(selection, hits=TopK(hits.rows, hits.scores, hits.exact and not queries))

    def named(self, request: SelectionRequest) -> Sequence[str]:
        """Ids of arms to rank, in addition to those of any search."""
        return ()

    async def prepare(
        self, dependencies: PolicyDependencies, request: SelectionRequest, snapshot: ReadSnapshot
    ) -> Any:
        """Await further input of ``rank``; None: nothing. Raises Unavailable."""
        return None

    async def first_propensities(
        self, dependencies: PolicyDependencies, request: SelectionRequest, snapshot: ReadSnapshot
    ) -> tuple[Rows, Vector] | None:
        """``first`` of what a request may have. Raises Unavailable."""
        if not self.has_propensities:
            return None
        prepared = await self.prepare(dependencies, request, snapshot)
        exclude = request.excluded(snapshot.arms)
        return self.first(
            snapshot.posterior, Candidates(request, snapshot.arms, exclude, snapshot.effects), prepared
        )

    def first(
        self, posterior: Posterior, candidates: Candidates, prepared: Any
    ) -> tuple[Rows, Vector] | None:
        """Arms with the exact probability of first place in ``rank``; others have 0.

        None: unknown. Shapes: rows, propensities (n,).
        """
        return None

    def cost_us(self, request: SelectionRequest, arms: LearnerSnapshot) -> float:
        """About how many microseconds ``rank`` takes without constraints; above 2,000 it runs in a thread.

        ``arms.size``: the number of arms; ``arms.table.dim``: of their features. The default: one search of
        the index, ``arms.expected_us``.
        """
        return arms.expected_us

    @abstractmethod
    def rank(self, posterior: Posterior, candidates: Candidates, k: int, rng: Any, prepared: Any) -> Ranking:
        """Return the k arms to show, the best first or in the order of the draws; fewer if fewer are left.
        Pure, for any thread. Called twice for arms in an engine, with equal generators: the engine gets the
        query of the first call.

        ``posterior``   ``theta`` (D,), the estimate in the context of the request; ``linear_ts.draw`` and
                        ``ridge.widths`` of ``shortlist.linear`` use its covariance
        ``candidates``  the allowed arms, as below
        ``rng``         numpy's generator, the only source of chance
        ``prepared``    what ``prepare`` returned

        ``candidates.search(query, k)``  the k arms of largest x.query allowed together, the best first: a
                                         ``TopK`` of ``rows``, ``scores`` and ``exact``. Or, of all arms:
        ``candidates.scan()``  their rows (n,); ``candidates.arms.features_of(rows)`` are (n, D)
        ``candidates.limits``  None, or further limits of a list of rows from ``scan``: ``limits.over(rows)``,
                        made once, has ``barred`` (n,), and ``take(position)`` after each arm, which returns
                        the positions barred from then on, its own first
        ``candidates.time_ms``  time of the decision, in ms since 1970: the same in a repetition
        ``candidates.bandit``  its settings are in ``record``
        ``candidates.arms.plain``  the arms by their own features x. ``candidates.arms.catalogue_query`` and
                        ``constant_score`` turn ``posterior.theta`` into a predictor of their rewards: x.theta
                        + offset

        Returns ``Ranking(TopK(rows, scores, exact), propensities)``. The propensity of an arm is its
        probability given those before it in the list: a list of Python floats, one for each arm.
        """


def mean_square_of(record: BanditRecord) -> float:
    """The mean squared length of what learners learn from, of an arm."""
    square = 1.0 if record.mean_square is None else record.mean_square
    return square + (constant_of(record) or 0.0) ** 2


def spread_of(record: BanditRecord) -> float | None:
    """Half of what rewards can differ by; None: they have no bounds.

    Of signals: what their sum can, by the weights of the bandit.
    """
    if (weighing := weighing_of(record)) is not None:
        return weighing.spread
    low, high = record.reward.min, record.reward.max
    if low is None or high is None:
        return None
    return (high - low) / 2.0


def spreads_of(record: BanditRecord) -> tuple[float | None, ...]:
    """``spread_of`` for each signal; of the reward, without signals."""
    weighing = weighing_of(record)
    return (spread_of(record),) if weighing is None else weighing.spreads
