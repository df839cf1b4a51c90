"""The elimination state of a learner beside a catalogue that changes: how the one follows the other.

Notation
    K, d            arms of the catalogue, dimension
    work            multiply-adds of an exact pass over n arms, n d^2

Everything here is a value and may run in any thread. A state counts the rows and the tombstones of the table
it has seen; rows of one table never move, and after a compaction there is another table and another state.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from app.services.catalogues.learner_snapshot import LearnerSnapshot
from app.services.choosing.limits import Limits
from app.services.choosing.selection import ReadSnapshot
from shortlist.linear import elimination, linear_elimination, sub_elim
from shortlist.linear.elimination import Elimination, EliminationRules
from shortlist.linear.most_uncertain_arm import Watched
from shortlist.types import NO_ROWS, Rows, TopK

FIND = Watched()
UNBOUNDED = float("inf")


@dataclass(frozen=True, slots=True, eq=False)
class Placed:
    """A state, the learner's version at which it was last used, and how much of which table it has seen.

    ``ridge``: of the posteriors that it was made by.
    """

    state: Elimination
    ridge: float
    version: int
    table_number: int
    rows: int
    dead: int


@dataclass(frozen=True, slots=True, eq=False)
class Picked:
    """``due``: a pass is to follow; ``broken``: the state is not of this learner, and is to be made anew."""

    hits: TopK
    due: bool
    broken: bool


@dataclass(frozen=True, slots=True)
class Sets:
    """``stages``: (stage, living arms). ``threshold``: None without arms."""

    stages: list[tuple[int, int]]
    eliminated: int
    threshold: float | None


def fits(placed: Placed, snapshot: ReadSnapshot, rules: EliminationRules) -> bool:
    """Whether a state goes on with this learner, this table and these rules.

    It does not once the catalogue was compacted, the learner forgotten, or the bandit changed.
    """
    made_by = placed.table_number, placed.ridge, placed.state.rules
    now = snapshot.arms.table.number, snapshot.posterior.ridge, rules
    return made_by == now and placed.version <= snapshot.learner_version


def rebuilt(snapshot: ReadSnapshot, rules: EliminationRules) -> Placed:
    """Place all arms of the catalogue by this posterior. Work: K d^2."""
    arms = snapshot.arms.table
    state = elimination.start(snapshot.posterior, arms.live_rows, snapshot.arms.features_of, rules)
    return Placed(
        state, snapshot.posterior.ridge, snapshot.learner_version, arms.number, arms.rows, len(arms.dead)
    )


def caught_up(placed: Placed, snapshot: ReadSnapshot, *, most_work: float = UNBOUNDED) -> Placed:
    """Take out the arms that were deleted; take in the new ones, unless that is more than ``most_work``."""
    arms, state, rows = snapshot.arms.table, placed.state, placed.rows
    if placed.version == snapshot.learner_version and (rows, placed.dead) == (arms.rows, len(arms.dead)):
        return placed
    died = arms.dead[placed.dead :]
    died = died[died < rows]
    if len(died):
        state = elimination.delete(state, died)
    if rows < arms.rows and (arms.rows - rows) * arms.dim**2 <= most_work:
        new = np.arange(rows, arms.rows)
        state = elimination.add(state, snapshot.posterior, new[arms.is_alive(new)], snapshot.arms.features_of)
        rows = arms.rows
    return Placed(state, placed.ridge, snapshot.learner_version, arms.number, rows, len(arms.dead))


def refreshed(placed: Placed | None, snapshot: ReadSnapshot, rules: EliminationRules) -> Placed:
    """Catch up with everything, and make every pass that is due. Work: up to K d^2 for each stage."""
    if placed is not None:
        placed = caught_up(placed, snapshot)
    if placed is None or placed.state.stale:
        placed = rebuilt(snapshot, rules)
    rng = np.random.default_rng(0)  # no choice is made here
    state, _ = sub_elim.play(
        placed.state, snapshot.posterior, snapshot.arms.features_of, FIND, k=1, rng=rng, check_rate=1.0
    )
    if state.stale:
        return rebuilt(snapshot, rules)
    return replace(placed, state=state)


def pass_work(placed: Placed | None, arms: LearnerSnapshot) -> int:
    """Work of what is due: of a pass, or of a rebuild."""
    table = arms.table
    if placed is None:
        return table.live * table.dim**2
    rows = placed.state.pass_size if placed.state.stages and not placed.state.stale else table.live
    return (rows + table.rows - placed.rows) * table.dim**2


def pick(
    placed: Placed,
    snapshot: ReadSnapshot,
    *,
    k: int,
    rng: np.random.Generator,
    exclude: Rows = NO_ROWS,
) -> Picked:
    """Choose ``k`` arms.

    When fewer than k live, the eliminated ones of largest estimate follow, scored by their widths as well.
    """
    state, posterior, arms = placed.state, snapshot.posterior, snapshot.arms
    choice = sub_elim.choose(state, posterior, arms.features_of, FIND, k=k, rng=rng, exclude=exclude)
    hits = choice.arms
    if len(hits.rows) < k:
        taken = np.concatenate((hits.rows, exclude))
        rest = arms.search(posterior.theta, k - len(hits.rows), taken)
        _, spans = elimination.measure(posterior, rest.rows, arms.features_of, state.rules.radius)
        hits = TopK(
            np.concatenate((hits.rows, rest.rows)),
            np.concatenate((hits.scores, spans)),
            exact=hits.exact and rest.exact,
        )
    return Picked(hits, choice.due or state.stale or placed.rows < arms.table.rows, choice.broken)


def pick_among(
    placed: Placed, snapshot: ReadSnapshot, k: int, *, exclude: Rows = NO_ROWS, limits: Limits | None = None
) -> TopK:
    """Choose ``k`` of the arms that ``snapshot`` lets in: the widest living ones.

    When too few of them live, those of largest upper bound follow. ``limits``: arms that they do not allow
    are passed over. Scores are widths. Work: d^2 for each living arm that is let in, and for the others where
    they are needed.
    """
    arms, rows = snapshot.arms, snapshot.arms.eligible(exclude)
    lives = placed.state.living.mask(rows) | (rows >= placed.rows)  # arms that no pass has seen live
    living, gone = rows[lives], rows[~lives]
    radius = placed.state.rules.radius
    _, spans = elimination.measure(snapshot.posterior, living, arms.features_of, radius)
    order = np.lexsort((living, -spans))
    living, spans = living[order], spans[order]
    if limits is None and len(living) >= k:
        return TopK(living[:k], spans[:k], exact=True)
    estimates, widths = elimination.measure(snapshot.posterior, gone, arms.features_of, radius)
    order = np.lexsort((gone, -(estimates + widths)))
    ranked, spans = np.concatenate((living, gone[order])), np.concatenate((spans, widths[order]))
    positions = np.arange(min(k, len(ranked))) if limits is None else limits.take_allowed(ranked, k)
    return TopK(ranked[positions], spans[positions], exact=True)


def sets_of(placed: Placed) -> Sets:
    state = placed.state
    threshold = state.threshold if state.present else None
    return Sets(state.sizes(), state.present - state.living.count, threshold)


def pick_exactly(
    snapshot: ReadSnapshot,
    rules: EliminationRules,
    k: int,
    exclude: Rows = NO_ROWS,
    limits: Limits | None = None,
) -> TopK:
    """Choose ``k`` of the arms that ``snapshot`` lets in, by linear elimination. Work: K d^2."""
    arms, rows = snapshot.arms, snapshot.arms.table.live_rows
    barred = np.isin(rows, exclude)
    if arms.plain.is_filtered:
        barred |= ~np.isin(rows, arms.eligible())
    hits = linear_elimination.choose(
        snapshot.posterior,
        arms.features_of(rows),
        k=k if limits is None else max(len(rows), 1),
        radius=rules.radius,
        exclude=np.flatnonzero(barred),
    )
    positions = np.arange(len(hits.rows)) if limits is None else limits.take_allowed(rows[hits.rows], k)
    return TopK(rows[hits.rows[positions]], hits.scores[positions], exact=True)


def exact_sets(snapshot: ReadSnapshot, rules: EliminationRules) -> Sets:
    """The stages, by their widths now, of the arms that live for linear elimination. Work: K d^2."""
    features = snapshot.arms.features_of(snapshot.arms.table.live_rows)
    survey = linear_elimination.survey(snapshot.posterior, features, radius=rules.radius)
    stages = elimination.stage_of(survey.spans[survey.lives], rules.last_stage)
    counts = zip(*(column.tolist() for column in np.unique(stages, return_counts=True)), strict=True)
    gone = int(np.count_nonzero(~survey.lives))
    return Sets(list(counts), gone, survey.threshold if len(features) else None)
