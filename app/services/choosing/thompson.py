"""Thompson sampling: draw a parameter from the learner's posterior, then search the arms for its best ones.

``sub_ts`` searches by the index of the catalogue, ``linear_ts`` compares all arms. A search that is known to
be long goes to a thread.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from app.services.bandits.bandits import Bandit
from app.services.bandits.shifted import observed
from app.services.catalogues.adaptive_solver import COPIES, ExactSolver, LadderWithScan, ladder
from app.services.catalogues.learner_view import LearnerView
from app.services.choosing.computing import computed
from app.services.choosing.policy import PolicyDependencies
from app.services.choosing.selection import ReadSnapshot, Selection, SelectionRequest
from shortlist.linear import sub_ts as algorithm
from shortlist.types import NO_ROWS, MipsSolver, Rows, TopK, Vector

_PAIR_US = 0.002  # for each pair of dimensions: a draw of theta
_USUAL_K = 100  # from here on a search takes as much longer as k is larger


@dataclass(frozen=True, slots=True)
class ShortlistSolver:
    """A graph proposes at least ``shortlist`` arms, which are scored again exactly."""

    view: LearnerView
    shortlist: int

    def search(self, query: Vector, k: int, exclude: Rows = NO_ROWS) -> TopK:
        if self.view.kind != "hnsw" or self.shortlist <= k:
            return self.view.search(query, k, exclude)
        found = self.view.search(query, self.shortlist, exclude)
        return TopK(found.rows[:k], found.scores[:k], found.exact)


@dataclass(frozen=True, slots=True)
class Solver:
    """One way to search. ``searches``: about how many searches of the index it makes."""

    over: Callable[[PolicyDependencies, Bandit, LearnerView], MipsSolver]
    searches: int = 1


async def sub_ts(dependencies: PolicyDependencies, request: SelectionRequest) -> Selection:
    """Yang et al. 2022, Algorithm 4."""
    return await _choose(dependencies, request, SOLVERS[request.bandit.record.solver])


async def linear_ts(dependencies: PolicyDependencies, request: SelectionRequest) -> Selection:
    """Linear Thompson sampling (Abeille and Lazaric 2017): every eligible arm is compared."""
    return await _choose(dependencies, request, EXACT)


async def _choose(dependencies: PolicyDependencies, request: SelectionRequest, way: Solver) -> Selection:
    bandit = request.bandit
    snapshot = await ReadSnapshot.of(dependencies.learners, dependencies.filtered, request)
    view = snapshot.view
    solver = way.over(dependencies, bandit, view)
    if bandit.record.explore is not None:
        solver = await dependencies.warm_up.before(solver, request, snapshot)
    elif request.rules.at_most:
        solver = request.limited(view, solver)
    draw = partial(
        algorithm.choose,
        snapshot.posterior,
        solver,
        k=request.k,
        exploration=bandit.exploration,
        rng=request.rng,
        exclude=request.excluded(view),
    )
    us = view.expected_us * way.searches * (1 + request.k / _USUAL_K) + _PAIR_US * bandit.catalogue.dim**2
    found = await computed(draw, request, view, us=us)
    if bandit.record.shift_rewards:
        found = observed(found)
    return Selection(found, snapshot)


def _shortlist(dependencies: PolicyDependencies, bandit: Bandit, view: LearnerView) -> MipsSolver:  # noqa: ARG001 - as all solvers
    if bandit.record.shortlist > bandit.catalogue.shortlist:
        return ShortlistSolver(view, bandit.record.shortlist)
    return view


def _adaptive(dependencies: PolicyDependencies, bandit: Bandit, view: LearnerView) -> MipsSolver:
    """The ladder of adaptive solvers (Yang et al. 2022, Algorithms 1 and 4), which never comes back empty.

    The independent solvers know of no filter: with one, every arm that is let in is compared.
    """
    if view.plain.is_filtered:
        return ExactSolver(view)
    solvers = [bandit.seen(solver) for solver in dependencies.independent.of(bandit.catalogue, view.plain)]
    rungs = ladder(solvers, view.features_of, largest_norm=view.largest_norm, eta=bandit.eta)
    return LadderWithScan(rungs, view)


EXACT = Solver(lambda dependencies, bandit, view: ExactSolver(view))  # noqa: ARG005 - as all solvers
# The values of ``solver`` of a bandit.
SOLVERS: Mapping[str, Solver] = {
    "shortlist": Solver(_shortlist),
    "adaptive": Solver(_adaptive, searches=1 + COPIES),
}
