"""Policies with a state of each learner between its choices, such as an ensemble of models.

``policy_states`` keeps the states. Elimination has a class of its own (``elimination_state``): its states
follow the catalogue too, and its passes run beside the choices.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np

from app.bandits.completion import PolicyNeeds
from app.policies.base import Policy, PolicyDependencies
from app.selection.selection import ReadSnapshot, SelectionRequest
from shortlist.linear.ridge import Posterior

State = TypeVar("State")
REFUSED = frozenset({"context", "prior", "half_life_s"})  # with them a posterior changes without a reward
CUBED_US = 0.005  # for each d^3: a factorisation or two


class StatefulPolicy(Policy, Generic[State]):
    """A policy whose ``rank`` gets, as ``prepared``, a state of the learner: ``StatefulPolicy[Ensemble]``.

    States are values: they never change, and rewards make the next one of the last. All states are a cache in
    the memory of each process, bounded together (SHORTLIST_POSTERIOR_CACHE_MB), and dropped when their
    learner is forgotten. So a state may be started from any posterior, also of a learner with many rewards:
    by a new process, after a restart, after a change of the bandit. Such a state must be as good as an old
    one after the same rewards.

    Its bandits have neither a context nor a changing prior, and one signal at most: so a posterior follows
    from the rewards of its learner. After a restart of a state the new state explains older choices.
    """

    needs: ClassVar[PolicyNeeds] = PolicyNeeds(max_signals=1)

    def __init_subclass__(cls, **given: Any) -> None:
        super().__init_subclass__(**given)
        if refused := cls.options & REFUSED:
            raise TypeError(f"a stateful policy cannot have the options {', '.join(sorted(refused))}")
        if cls.needs.max_signals != 1:
            raise TypeError("a stateful policy needs max_signals = 1")

    @abstractmethod
    def start(self, posterior: Posterior, rng: np.random.Generator) -> State:
        """A state of a learner whose posterior is this one. Pure, for any thread."""

    @abstractmethod
    def follow(self, state: State, posterior: Posterior, rng: np.random.Generator) -> State:
        """The state after the rewards up to ``posterior``. Pure, for any thread.

        ``state``: at an earlier posterior; any number of rewards may lie between. ``rng``: the same in all
        processes for this version of the learner.
        """

    @abstractmethod
    def nbytes(self, state: State) -> int:
        """The memory of a state: what bounds how many are kept."""

    def state_us(self, dim: int) -> float:
        """About how many microseconds ``start`` and ``follow`` take; above 2,000 they run in a thread."""
        return CUBED_US * dim**3

    async def prepare(
        self, dependencies: PolicyDependencies, request: SelectionRequest, snapshot: ReadSnapshot
    ) -> State:
        """The state of the learner, which is ``prepared`` of ``rank``."""
        state: State = await dependencies.states.of(
            request,
            snapshot,
            start=self.start,
            follow=self.follow,
            nbytes=self.nbytes,
            us=self.state_us(len(snapshot.posterior.theta)),
        )
        return state
