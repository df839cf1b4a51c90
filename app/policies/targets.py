"""Targets of evaluations: the probability of a log's lists under a policy.

An ``Evaluable`` policy makes a ``Target`` for every ``Pool`` of arms. The numbers of a situation, such as a
sum over all arms, are computed once for all its decisions.

Notation
    n, k        decisions, arms drawn in each
    q           situations: decisions of one learner in one context share one
    d           dimension of the arms
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from app.bandits.bandit import Bandit
from app.bandits.settings import BanditRecord
from app.catalogues.learner_snapshot import LearnerSnapshot
from app.filters.filter import Filter
from app.indexes.snapshot import Snapshot
from app.records.encoding import Numbers32
from app.selection.arm_effects import ArmEffects
from app.selection.covers import Covers
from shortlist.index.exact import scores_of
from shortlist.linear.ridge import Posterior
from shortlist.types import Matrix, Rows, Vector

NO_ARM = -2  # in lists of what a policy may draw: differs from every row, and from -1, no arm of the pool


@dataclass(frozen=True, slots=True, eq=False)
class Pool:
    """The eligible arms of some decisions.

    ``bandit``    with the evaluated policy
    ``arm_filter``    the filter behind ``arms``; None: all arms
    ``k``         number of arms drawn in each decision
    """

    bandit: Bandit
    arms: LearnerSnapshot
    arm_filter: Filter | None
    k: int


@dataclass(frozen=True, eq=False)
class EvaluationBatch:
    """Learners in their contexts.

    ``names``     distinct names of the situations, for all time
    ``learners``  their posteriors, of all numbers of a learner
    ``owners``    the learner of each situation (q,)
    ``contexts``  as encoded (q, m); None: without contexts
    ``exclude``   rows of excluded arms, of each situation; for targets ``by_exclusion``
    ``rewards``   smallest and largest reward of an arm, the bounds of predictions; None: unknown
    ``effects``   effects of arms; None: nothing
    ``has_match``  the arms are candidates, with features from requests at the end
    """

    bandit: Bandit
    names: Sequence[Hashable]
    learners: Sequence[Posterior]
    owners: Rows
    contexts: NDArray[np.float32] | None
    exclude: Sequence[Rows]
    rewards: tuple[float, float] | None = None
    effects: ArmEffects | None = None
    has_match: bool = False

    def __len__(self) -> int:
        return len(self.names)

    def some(self, positions: Sequence[int]) -> EvaluationBatch:
        """The situations at these positions."""
        contexts = None if self.contexts is None else self.contexts[positions]
        names = [self.names[position] for position in positions]
        exclude = [self.exclude[position] for position in positions]
        owners = self.owners[positions]
        return replace(self, names=names, owners=owners, contexts=contexts, exclude=exclude)

    def posterior(self, position: int) -> Posterior:
        """The posterior of the query in a situation, as in ``ReadSnapshot``."""
        context: Numbers32 | None = None if self.contexts is None else self.contexts[position]
        return self.bandit.given(self.learners[self.owners[position]], context)

    def scores(self, arms: Snapshot, rows: Rows, position: int) -> Vector:
        """The estimates of arms in a situation, without its offset. Shapes: (n,) -> (n,)."""
        scores = scores_of(arms.table, rows, self.queries[position])
        return scores if self.effects is None else scores + self.effects.worth(arms, rows)

    @cached_property
    def queries(self) -> Matrix:
        """The estimated reward of an arm x is x.query + its effect + offset. Shape: (q, d)."""
        return self._estimates[0]

    @cached_property
    def offsets(self) -> Vector:
        """0 without an intercept. Shape: (q,)."""
        return self._estimates[1]

    @cached_property
    def bounds(self) -> tuple[Vector, Vector]:
        """The bounds of x.query, so that an estimated reward is a possible one. Shapes: (q,), (q,)."""
        low, high = (-np.inf, np.inf) if self.rewards is None else self.rewards
        return low - self.offsets, high - self.offsets

    @cached_property
    def units(self) -> Vector:
        """The deviation by which temperatures are measured. Shape: (q,)."""
        return np.array([posterior.unit for posterior in self.learners])[self.owners]

    @cached_property
    def _estimates(self) -> tuple[Matrix, Vector]:
        parts = self.bandit.numbers_and_offset if self.has_match else self.bandit.theta_and_offset
        pairs = [parts(theta) for theta in self._thetas()]
        return np.array([theta for theta, _ in pairs]), np.array([offset for _, offset in pairs])

    def _thetas(self) -> Matrix:
        context = self.bandit.context
        if context is None or self.contexts is None:
            return np.array([self.learners[owner].theta for owner in self.owners.tolist()])
        order = np.argsort(self.owners, kind="stable")
        borders = np.flatnonzero(np.diff(self.owners[order])) + 1
        queries: Matrix | None = None
        for positions in np.split(order, borders):
            theta = self.learners[self.owners[positions[0]]].theta
            thetas = context.queries(theta, self.contexts[positions])
            queries = np.empty((len(self), thetas.shape[1])) if queries is None else queries
            queries[positions] = thetas
        assert queries is not None  # noqa: S101 - there is at least one situation
        return queries


@dataclass(frozen=True, slots=True, eq=False)
class Lists:
    """Logged lists of drawn arms.

    ``which``      the situation of each (n,)
    ``rows``       of the arms (n, k); -1: the arm is not in the pool
    ``scores``     x.query of the arms, and their effects (n, k); 0 outside the pool
    ``excluded``   number of arms at the start of each list that were excluded, not drawn: fewer are filled up
                   with -1; 0 for targets ``by_exclusion``
    """

    which: Rows
    rows: Rows
    scores: Matrix
    excluded: int = 0

    @property
    def eligible(self) -> NDArray[np.bool_]:
        """Shape: (n, k)."""
        return self.rows >= 0


@dataclass(frozen=True, slots=True, eq=False)
class Weighed:
    """The target's view of each position of a list, given the arms before. Shapes: all (n, k).

    Slots of excluded arms mean nothing.

    ``propensities``   of the arms of the list
    ``expected``       mean prediction for the target's draw at this position: x.query within the bounds of
                       the situation

    ``least``, ``most``: of the predictions for all arms the target may draw. Shapes: (n,).
    """

    propensities: Matrix
    expected: Matrix
    least: Vector
    most: Vector


class Evaluable(ABC):
    """The contract of a policy whose rewards a log can estimate: ``class Mine(Policy, Evaluable)``.

    ``target_draws``       True: its target draws from posteriors; else estimates are enough
    ``target_by_exclusion``  True: decisions with other excluded arms are other situations; else excluded arms
                             stand before those of a list, as if already drawn
    """

    name: ClassVar[str]
    target_draws: ClassVar[bool] = False
    target_by_exclusion: ClassVar[bool] = True

    @abstractmethod
    async def target(self, covers: Covers, pool: Pool) -> Target:
        """The target for the lists of a log: their probabilities under this policy, over the arms of a
        pool.
        """

    def caveats(self, bandit: Bandit) -> Sequence[str]:
        """Sentences on what the propensities of its target are worth, where they are not exact."""
        return ()


class DrawsLists(Evaluable):
    """The contract of a policy whose logged lists have probabilities by new draws from the posterior of the
    time.
    """

    @abstractmethod
    def draws_lists(self, record: BanditRecord) -> bool:
        """Return whether draws tell the probabilities with these settings."""

    @abstractmethod
    async def logged_target(self, covers: Covers, pool: Pool) -> tuple[Target, int]:
        """A target, and its number of draws for each situation."""


class Target(Protocol):
    """A policy over one pool. For any thread.

    ``known_bytes``: memory of what is known of one situation.
    """

    @property
    def known_bytes(self) -> int: ...

    def prepare(self, situations: EvaluationBatch, check: Callable[[], None]) -> Sequence[Any]:
        """Compute the inputs of ``weigh`` for each situation; ``check`` may raise to stop."""
        ...

    def weigh(self, situations: EvaluationBatch, prepared: Sequence[Any], lists: Lists) -> Weighed:
        """Weigh the lists by the policy. ``prepared``: of each of the situations."""
        ...

    def drawn(self, situations: EvaluationBatch, prepared: Any, position: int) -> tuple[Rows, Vector]:
        """The arms the policy may draw in one situation, and the expected number of each in a list.

        ``prepared``: of the situation at this position. Rows are distinct. Cost: O(K d) at most.
        """
        ...
