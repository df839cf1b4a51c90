"""What a policy is: the class that each policy extends. ``policies.registry`` lists the policies.

A policy chooses arms for one learner. To write one: make a subclass of ``Policy`` in a file of this folder,
give it a ``name`` and a ``summary``, write ``rank``, and add an object of it to ``policies.registry``. All
else has a default. The name is then valid in the API, the console, the clients and ``GET /v1/policies``.

A choice calls the methods of its policy in this order:

1. ``prepare``, in the event loop. It may await: a cover of the catalogue, a slot in the store.
2. ``cost_us``: whether ``rank`` is short enough for the event loop, or runs in a thread.
3. ``rank``, which is pure. It awaits nothing, keeps nothing, and draws from the given generator alone: the
   same seed on the same state must give the same answer, since choices are made again to explain them.

Filters, quotas, frequency caps, exclusions and pins need nothing from a policy as long as it takes its arms
from ``Candidates``.

What else it can do it says by small contracts:

    Exploring          what "auto" and "theory" mean: every policy has it, and may replace its methods
    Evaluable          a log tells what it would have earned (``policies.targets``)
    StatefulPolicy     it remembers something of each learner (``policies.stateful``)
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
    """What policies choose with."""

    learners: Learners
    filtered: FilteredSnapshots
    independent: IndependentSolvers
    elimination: EliminationCache
    states: PolicyStates
    covers: Covers
    effects: EffectTables


class PolicySettings:
    """What a policy declares, and which settings its bandits may have.

    ``name``, ``summary``  as in the API, and one sentence on how it explores
    ``options``            the settings marked ``OfPolicies`` that it has; the others are refused
    ``own_options``        of a policy from outside: a ``Document`` of what stands under ``options`` of its
                           bandits, each field with its type, bounds and default; None: it has none
    ``reads``              the settings among those of every bandit that change what it does. With
                           "arm_effects" it ranks by what arms have beyond their features, too:
                           ``Candidates.effects``
    ``defaults``           what an option becomes where it is None
    ``has_propensities``   whether ``rank`` gives the probability of each arm. They must be exact: evaluations
                           divide by them. Declared, since the API says so before anything is ranked
    ``lists_by_score``     whether its lists are in the order of scores, so that ``diverse`` may reorder them.
                           No contract implies it: a log may tell what other lists earn, and not what these
    ``needs``              what it needs of a catalogue and of a bandit: arms in memory, largest sizes
    ``not_evaluated``      of one that is not ``Evaluable``: why no log can tell what it earns
    ``begins_again``       a sentence on what a move to another catalogue loses; None: nothing
    ``takes_candidates``   whether a request may name the only arms that it may have
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
        """The record with this policy's defaults. Raises Invalid, naming every field that it refuses.

        ``stored``: the bandit as it is. What it has without effect it may keep: once that was accepted.
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
        """What is wrong with the settings of a bandit of this policy: field and rule."""
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
        """Why it does not have an option of other policies."""
        return "it has no such option"

    @property
    def all_options(self) -> frozenset[str]:
        """The settings of some policies that it has."""
        return self.options if self.own_options is None else self.options | {"options"}

    @property
    def takes_effects(self) -> bool:
        """Whether it knows what arms have beyond their features."""
        return "arm_effects" in self.reads

    def options_of(self, record: BanditRecord) -> Any:
        """The ``own_options`` of a bandit, absent ones with their defaults. Cost: some microseconds."""
        if self.own_options is None:
            raise TypeError(f"the policy {self.name} has no options of its own")
        return msgspec.convert(record.options or {}, self.own_options)

    def check_unread(self, record: BanditRecord) -> Iterator[tuple[FieldPath, str]]:
        """Settings that promise something, and that this policy does not read: field and why.

        Numbers that merely have no effect now are kept: they hold again under another policy.
        """
        if "exploration" not in self.reads and record.exploration == "theory":
            why = "the guarantee is of policies that read exploration"
            yield ("exploration",), f'exploration: "theory" promises nothing of the policy {self.name}: {why}'
        if record.eta is not None and not self.reads_eta(record):
            why = 'it is of elimination, and of sub_ts with solver: "adaptive"'
            yield ("eta",), f"eta has no effect on the policy {self.name} with these settings: {why}"

    def reads_eta(self, record: BanditRecord) -> bool:
        """``eta`` is of the adaptive solver, where a policy has it."""
        if "eta" not in self.reads:
            return False
        return "solver" not in self.options or record.solver == "adaptive"

    def check_arms(self, record: BanditRecord, catalogue: Catalogue) -> None:
        """Raise Invalid when the arms are too many or have more dimensions than this policy can serve;
        NotPossibleHere where it needs all of them in memory, and they are not.
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
        """What looks at every arm, of all that a bandit asks for."""
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
    """What "auto" and "theory" stand for. A policy that explores in another way replaces what differs."""

    def theory_delta(self, record: BanditRecord) -> float:
        """The delta of the paper's radius, where ``exploration`` is "theory".

        Yang et al. 2022, Algorithm 4, line 2.
        """
        return record.delta / (4 * record.horizon)

    def exploration(self, record: BanditRecord, dim: int, numbers: float) -> float:
        """The multiplier of sigma V^-1/2 xi, or the radius of elimination: as given, the paper's, or ours.

        Ours is the least of it, see ``Bandit.exploration_of``.
        ``dim``: dimension of what the learners learn. ``numbers``: of how many a decision says something.
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
        """How posteriors of its learners are made. ``numbers``: as for ``exploration``."""
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

    Nearly all are a ``Policy``, which only ranks. One that keeps more than a ranking needs extends this.
    """

    @abstractmethod
    async def choose(self, dependencies: PolicyDependencies, request: SelectionRequest) -> Selection:
        """Select arms. Raises Unavailable (a learner that is not in memory, or too much waits)."""


class Policy(Chooser):
    """Ranks the arms that a choice may have."""

    takes_candidates = True

    async def choose(self, dependencies: PolicyDependencies, request: SelectionRequest) -> Selection:
        """Select arms: read learner and arms at one moment, ``prepare``, then ``rank``.

        Raises Unavailable (a learner that is not in memory, or too much waits).
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
        """Rank twice, by the same draws: the arms at hand, which tells what an engine is to be asked for and
        which of them are best; then those and the arms that it proposes.

        At hand are the arms of largest effect. More are proposed while too few may be taken.
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
        """Ids of the arms that it ranks, whatever is searched."""
        return ()

    async def prepare(
        self, dependencies: PolicyDependencies, request: SelectionRequest, snapshot: ReadSnapshot
    ) -> Any:
        """What ``rank`` needs besides, and must be awaited for; None: nothing. Raises Unavailable."""
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
        """Arms with the probability that ``rank`` takes them first, exactly; those that are left out have 0.

        None: it is not known. Shapes: rows, propensities (n,).
        """
        return None

    def cost_us(self, request: SelectionRequest, arms: LearnerSnapshot) -> float:
        """About how many microseconds ``rank`` takes without constraints; above 2,000 it runs in a thread.

        ``arms.size``: how many there are; ``arms.table.dim``: of their features. The default: one search of
        the index, ``arms.expected_us``.
        """
        return arms.expected_us

    @abstractmethod
    def rank(self, posterior: Posterior, candidates: Candidates, k: int, rng: Any, prepared: Any) -> Ranking:
        """The k arms to show, the best first or in the order in which they were drawn; fewer if fewer are
        left. Pure, for any thread. Of arms in an engine it is called twice, with equal generators: what it
        searches for in the first call is what the engine is asked for.

        ``posterior``   ``theta`` (D,), the estimate in the context of the request; ``linear_ts.draw`` and
                        ``ridge.widths`` of ``shortlist.linear`` use its covariance
        ``candidates``  the arms that it may take, as below
        ``rng``         numpy's generator, the only source of chance
        ``prepared``    what ``prepare`` returned

        ``candidates.search(query, k)``  the k arms of largest x.query that may be taken together, the best
                        first: a ``TopK`` of ``rows``, ``scores`` and ``exact``. Or, of all arms:
        ``candidates.scan()``  their rows (n,); ``candidates.arms.features_of(rows)`` are (n, D)
        ``candidates.limits``  None, or what a list of rows from ``scan`` has to keep to besides:
                        ``limits.over(rows)``, made once, has ``barred`` (n,), and ``take(position)`` after
                        each arm, which answers the positions that are barred from then on, itself first
        ``candidates.time_ms``  when the decision is made, in ms since 1970: the same when it is made again
        ``candidates.bandit``  its settings are in ``record``
        ``candidates.arms.plain``  the arms by their own features x. ``candidates.arms.catalogue_query`` and
                        ``constant_score`` make of ``posterior.theta`` what predicts rewards of them: x.theta
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
