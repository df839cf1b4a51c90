"""Thompson sampling: draw a parameter from the learner's posterior, then search for the best arms for it.

``sub_ts`` searches with the index of the catalogue, ``linear_ts`` compares all arms.

In an evaluation, the probability of a list is the share of draws of theta that give it. Without exploration
there are no draws, and the probability is exact. Otherwise a situation takes ``DRAWS`` searches of the index,
from a seed of the situation alone; for few arms, one comparison of all. The ``solver`` and ``shortlist`` of
the bandit play no part: misses of an index are neglected.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from app.bandits.bandit import Bandit
from app.bandits.completion import PolicyNeeds
from app.bandits.settings import BanditRecord
from app.catalogues.adaptive_solver import COPIES, ExactSolver, LadderWithScan, ladder
from app.catalogues.learner_snapshot import LearnerSnapshot
from app.policies.base import ANY_PRIOR, Policy, PolicyDependencies
from app.policies.targets import NO_ARM, DrawsLists, EvaluationBatch, Lists, Pool, Weighed
from app.selection.arm_effects import DIRECTIONS, ArmEffects, EffectSolver
from app.selection.covers import Covers
from app.selection.selection import Candidates, Ranking, ReadSnapshot, SelectionRequest
from shortlist.evaluation import simulated_target
from shortlist.evaluation.logged import MAX_PLACES
from shortlist.linear import sub_ts as algorithm
from shortlist.linear.linear_ts import draws
from shortlist.linear.ridge import Posterior
from shortlist.types import NO_ROWS, Matrix, MipsSolver, Rows, TopK, Vector

_PAIR_US = 0.002  # for each pair of dimensions: a draw of theta
_USUAL_K = 100  # from here on a search takes as much longer as k is larger
DRAWS = 1_000
LEAST_DRAWS = 250
LOGGED_NUMBERS = 170_000_000  # features times draws of a logged situation: 20 ms
BATCH_SIZE = 2_000_000  # arms in the draws of decisions that are weighed at once
SCANNED = 2_000_000  # numbers of the features that are compared with many draws at once, faster than an index
SCORES = 500_000  # of draws that are compared at once
NO_NOISE = np.zeros((0, DIRECTIONS))
ONE_BY_ONE = 20  # places of a list: up to here their arms are found faster one after the other
Prepared = tuple[Rows, Matrix]


@dataclass(frozen=True, slots=True)
class ShortlistSolver:
    """A graph proposes at least ``shortlist`` arms, which are scored again exactly."""

    arms: LearnerSnapshot
    shortlist: int

    def search(self, query: Vector, k: int, exclude: Rows = NO_ROWS) -> TopK:
        if not self.arms.proposes or self.shortlist <= k:
            return self.arms.search(query, k, exclude)
        hits = self.arms.search(query, self.shortlist, exclude)
        return TopK(hits.rows[:k], hits.scores[:k], hits.exact)


class ThompsonSampling(Policy, DrawsLists):
    """``solver`` says which arms are compared with what is drawn."""

    reads = frozenset({"ridge", "exploration", "delta", "horizon", "arm_effects"})
    lists_by_score = True
    target_draws = True

    def solver(self, dependencies: PolicyDependencies, bandit: Bandit, arms: LearnerSnapshot) -> MipsSolver:
        """The solver for the arms, before the constraints of the request."""
        raise NotImplementedError

    async def prepare(
        self, dependencies: PolicyDependencies, request: SelectionRequest, snapshot: ReadSnapshot
    ) -> MipsSolver:
        """The solver, within the rules of the request."""
        solver = self.solver(dependencies, request.bandit, snapshot.arms)
        if snapshot.effects is not None:
            # Their noise is drawn with the first search, after theta: without effects all is the same.
            rng = request.rng if request.bandit.exploration else None
            solver = EffectSolver(snapshot.arms, solver, snapshot.effects, rng)
        return request.limited(snapshot.arms, solver)

    def cost_us(self, request: SelectionRequest, arms: LearnerSnapshot) -> float:
        bandit = request.bandit
        searches = 1 + COPIES if bandit.record.solver == "adaptive" else 1
        share = 1 + request.searched / _USUAL_K
        return arms.expected_us * searches * share + _PAIR_US * arms.table.dim**2

    def rank(
        self,
        posterior: Posterior,
        candidates: Candidates,
        k: int,
        rng: np.random.Generator,
        prepared: MipsSolver,
    ) -> Ranking:
        bandit = candidates.request.bandit
        hits = algorithm.choose(
            posterior,
            prepared,
            k=k,
            exploration=bandit.exploration_of(posterior),
            rng=rng,
            exclude=candidates.exclude,
        )
        return Ranking(hits, drawn=True)

    async def target(self, covers: Covers, pool: Pool) -> ThompsonTarget:
        draws = DRAWS if pool.bandit.exploration else 1
        k = min(max(pool.k, 1), MAX_PLACES)
        return ThompsonTarget(pool.arms, self.target_solver(pool.arms), k, draws)

    def target_solver(self, arms: LearnerSnapshot) -> MipsSolver:
        """The solver of a target."""
        return ExactSolver(arms)

    def draws_lists(self, record: BanditRecord) -> bool:
        """False for solvers that may miss the best arms."""
        return record.solver != "adaptive" and record.exploration != 0

    async def logged_target(self, covers: Covers, pool: Pool) -> tuple[ThompsonTarget, int]:
        """Make a target with fewer draws for many arms: each decision of a learning learner is a situation of
        its own.
        """
        numbers = max(1, pool.arms.size * pool.arms.table.dim)
        draws = min(DRAWS, max(LEAST_DRAWS, LOGGED_NUMBERS // numbers))
        return replace(await self.target(covers, pool), draws=draws), draws

    def caveats(self, bandit: Bandit) -> Sequence[str]:
        caveats = []
        if bandit.exploration:
            error = f"with a standard error of up to {0.5 / DRAWS**0.5:.3f}"
            policy = f"{bandit.record.policy} does not know its propensities"
            caveats.append(
                f"{policy}: each was estimated from {DRAWS:,} draws, {error}; "
                "lists that it rarely draws are missed"
            )
        return caveats


class SubTs(ThompsonSampling):
    """Yang et al. 2022, Algorithm 4."""

    name = "sub_ts"
    summary = "Thompson sampling; a search of the index answers what was drawn, in sublinear time"
    options = ANY_PRIOR | {"context", "match", "solver"}
    reads = ThompsonSampling.reads | {"shortlist", "eta"}
    needs = PolicyNeeds(arms_in_memory=False)

    def solver(self, dependencies: PolicyDependencies, bandit: Bandit, arms: LearnerSnapshot) -> MipsSolver:
        if bandit.record.solver == "adaptive":
            return _adaptive(dependencies, bandit, arms)
        # of the catalogue: how many arms its graph proposes unless a bandit asks for more
        if bandit.record.shortlist > int(bandit.catalogue.record.index["shortlist"] or 1):
            return ShortlistSolver(arms, bandit.record.shortlist)
        return arms

    def target_solver(self, arms: LearnerSnapshot) -> MipsSolver:
        return arms


class LinearTs(ThompsonSampling):
    """Linear Thompson sampling (Abeille and Lazaric 2017): every eligible arm is compared."""

    name = "linear_ts"
    summary = "Thompson sampling; every eligible arm is compared with what was drawn"
    options = ANY_PRIOR | {"context", "match"}

    def solver(self, dependencies: PolicyDependencies, bandit: Bandit, arms: LearnerSnapshot) -> MipsSolver:
        return ExactSolver(arms)


def _adaptive(dependencies: PolicyDependencies, bandit: Bandit, arms: LearnerSnapshot) -> MipsSolver:
    """The ladder of adaptive solvers (Yang et al. 2022, Algorithms 1 and 4), which never comes back empty.

    The independent solvers know of no filter: with a filter, every matching arm is compared.
    """
    if arms.plain.is_filtered:
        return ExactSolver(arms)
    solvers = [bandit.seen(solver) for solver in dependencies.independent.of(bandit.catalogue, arms.plain)]
    rungs = ladder(solvers, arms.features_of, largest_norm=arms.largest_norm, eta=bandit.eta)
    return LadderWithScan(rungs, arms)


@dataclass(frozen=True, slots=True, eq=False)
class ThompsonTarget:
    """``draws``: for each situation, of ``k`` arms. ``together``: so many scores of draws are compared."""

    arms: LearnerSnapshot
    solver: MipsSolver
    k: int
    draws: int
    together: int = SCORES

    @property
    def known_bytes(self) -> int:
        return 500 + 16 * self.draws * self.k

    def prepare(self, situations: EvaluationBatch, check: Callable[[], None]) -> Sequence[Prepared]:
        """The drawn lists of each situation, and the scores of their arms."""
        return [self._drawn(situations, position, check) for position in range(len(situations))]

    def _drawn(self, situations: EvaluationBatch, position: int, check: Callable[[], None]) -> Prepared:
        posterior, exclude = situations.posterior(position), situations.exclude[position]
        # By the situation alone: an evaluation that is made again, or in other blocks, draws the same. Not
        # ``hash``, which differs from process to process.
        rng = np.random.default_rng(zlib.crc32(repr(situations.names[position]).encode()))
        exploration, effects = situations.bandit.exploration_of(posterior), situations.effects
        queries = draws(posterior, self.draws, exploration=exploration, rng=rng)
        noise = np.zeros((self.draws, DIRECTIONS))
        if effects is not None and exploration:
            noise = rng.standard_normal(noise.shape)
        is_small = self.arms.size * self.arms.table.dim <= SCANNED
        # A product of matrices compares few arms with 1,000 draws in the time of some searches.
        rows = (self.best_by_scan if is_small else self.best_by_search)(
            queries, exclude, check, effects, noise
        )
        distinct, positions = np.unique(rows, return_inverse=True)
        # NO_ARM is -1: row 0 is read in its place, and its score replaced below.
        estimates = situations.scores(self.arms.plain, np.maximum(distinct, 0), position)
        low, high = (bound[position] for bound in situations.bounds)
        scores = np.where(distinct >= 0, estimates.clip(low, high), 0.0)
        return rows, scores[positions].reshape(rows.shape)

    def drawn(self, situations: EvaluationBatch, prepared: Prepared, position: int) -> tuple[Rows, Vector]:
        rows, counts = np.unique(prepared[0], return_counts=True)
        return rows[rows >= 0], counts[rows >= 0] / self.draws

    def best_by_search(
        self,
        queries: Matrix,
        exclude: Rows,
        check: Callable[[], None],
        effects: ArmEffects | None = None,
        noise: Matrix = NO_NOISE,
    ) -> Rows:
        """The best arms for each draw, as the policy searches them.

        Shapes: queries (draws, d'), noise (draws, 4) -> (draws, k).
        """
        rows = np.full((len(queries), self.k), NO_ARM, dtype=np.int64)
        for position, query in enumerate(queries):
            check()
            solver = self.solver
            if effects is not None:
                solver = EffectSolver(self.arms, solver, effects, w=noise[position])
            hits = solver.search(query, self.k, exclude)
            rows[position, : len(hits.rows)] = hits.rows
        return rows

    def best_by_scan(
        self,
        queries: Matrix,
        exclude: Rows,
        check: Callable[[], None],
        effects: ArmEffects | None = None,
        noise: Matrix = NO_NOISE,
    ) -> Rows:
        """As ``best_by_search``, all compared."""
        rows = np.full((len(queries), self.k), NO_ARM, dtype=np.int64)
        # Ascending, so that equal scores go to the same arm whatever the order of revisions is.
        arms = np.sort(self.arms.eligible(exclude))
        count = min(self.k, len(arms))
        if not count:
            return rows
        features = self.arms.features_of(arms)
        if effects is not None:  # coordinates more: the effect, and the direction of its noise
            features = np.column_stack((features, effects.extended(self.arms.plain.table, arms)))
            queries = np.column_stack((queries, np.ones(len(queries)), noise))
        step = max(1, self.together // len(arms))
        for start in range(0, len(queries), step):
            check()
            part = slice(start, start + step)
            rows[part, :count] = arms[_best(queries[part] @ features.T, count)]
        return rows

    def weigh(self, situations: EvaluationBatch, prepared: Sequence[Prepared], lists: Lists) -> Weighed:
        positions = lists.rows.shape[1]
        least = np.array([scores[rows >= 0].min(initial=np.inf) for rows, scores in prepared])
        most = np.array([scores[rows >= 0].max(initial=-np.inf) for rows, scores in prepared])
        least, most = (np.where(np.isfinite(bound), bound, 0.0)[lists.which] for bound in (least, most))
        weighed = Weighed(np.zeros(lists.rows.shape), np.zeros(lists.rows.shape), least, most)
        step = max(1, BATCH_SIZE // (self.draws * max(positions, 1)))
        for start in range(0, len(lists.rows), step):
            part = slice(start, start + step)
            used, which = np.unique(lists.which[part], return_inverse=True)
            rows = np.array([prepared[position][0][:, :positions] for position in used.tolist()])
            scores = np.array([prepared[position][1][:, :positions] for position in used.tolist()])
            weighed.propensities[part], weighed.expected[part] = simulated_target.weigh(
                rows, scores, which, lists.rows[part]
            )
        return weighed


def _best(scores: Matrix, count: int) -> Rows:
    """Slots of the largest scores of each row, the largest first; of equal ones the first, in short lists.

    ``scores`` are overwritten. Shapes: (n, K) -> (n, count).
    """
    if count > ONE_BY_ONE:
        unordered = np.argpartition(-scores, count - 1, axis=1)[:, :count]
        order = np.argsort(-np.take_along_axis(scores, unordered, axis=1), axis=1)
        sorted_best: Rows = np.take_along_axis(unordered, order, axis=1)
        return sorted_best
    best, lines = np.empty((len(scores), count), dtype=np.int64), np.arange(len(scores))
    for position in range(count):
        best[:, position] = scores.argmax(axis=1)
        scores[lines, best[:, position]] = -np.inf
    return best
