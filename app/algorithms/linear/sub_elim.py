"""Sub-Elim: elimination that plays an arm of large width, and looks at a whole stage only when it finds none.

Notation
    w               radius * ||x||_{V^-1}, the width of an arm (n,)
    s               lowest stage with a living arm; s_max the last one
    null            no proposal is as wide as share * 2^-s: the arms of the stage may all have become narrower

    >>> # state = elimination.start(prior, rows, features_of, rules(radius=2.0, eta=0.01))
    >>> # state, arms = play(state, posterior, features_of, find, k=1, rng=rng)    what to play, passes done
    >>> # state = elimination.add(state, posterior, new_rows, features_of)         and elimination.delete
    >>> # if state.stale: state = elimination.start(posterior, rows, features_of, state.rules)

Source: Yang et al., "Linear Bandit Algorithms with Sublinear Time Complexity", Algorithm 3, lines 14 to 28.
The state and its passes are in ``elimination``, the searches in ``widest_arm``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from app.algorithms import checks
from app.algorithms.linear.elimination import Elimination, FeaturesOf, advance
from app.algorithms.linear.ridge import Posterior, widths
from app.algorithms.linear.widest_arm import Finder, whole_stage
from app.algorithms.types import NO_ROWS, Rows, TopK, Vector


@dataclass(frozen=True, slots=True)
class Choice:
    """``arms`` scored by width, widest first. ``due``: a null, ``elimination.advance`` is to follow.

    ``broken``: an arm is wider than its stage allows, so the posterior is not one that followed the state's.
    """

    arms: TopK
    due: bool
    broken: bool


def choose(
    state: Elimination,
    posterior: Posterior,
    features_of: FeaturesOf,
    find: Finder,
    *,
    k: int,
    rng: np.random.Generator,
    exclude: Rows = NO_ROWS,
) -> Choice:
    """Return the ``k`` widest living arms among those that ``find`` proposes (lines 14 to 18), or of all few.

    With a null the widest that was found is returned all the same, so a service may play it while the pass
    runs: a living arm costs at most 4 * 2^-s more than the best. Proposals fewer than k are filled up at
    random; no arm but a living one is returned, so there may be none, and fewer than k. Once every living arm
    is in stage s_max the choice is uniform (lines 15 and 16).

    Shapes: exclude (e,) -> rows, scores (min(k, living arms outside exclude),).
    Cost: one ``find``, and d^2 for each proposal. Raises: InvalidParameter (k < 1).
    """
    if k < 1:
        checks.in_range("k", k, least=1)
    if state.living.count == 0:
        return Choice(TopK(NO_ROWS, np.empty(0), exact=True), False, False)
    if state.capped:
        rows = _at_random(state, k, exclude, rng)
        return Choice(TopK(rows, _spans(state, posterior, features_of, rows), exact=True), False, False)
    few = len(state.few) > 0
    proposed = state.few if few else state.living.among(find(posterior, state, rng))
    if not few and (k > 1 or len(proposed) >= state.living.count):
        proposed = _distinct(proposed)
    spans = _spans(state, posterior, features_of, proposed)
    found = _ranked(proposed, spans, k, exclude, exact=len(proposed) == state.living.count)
    first = len(found.rows) and not len(exclude)
    largest = found.scores.item(0) if first else float(spans.max(initial=0.0))
    ceiling = 2.0 ** -state.stages[0].stage
    if len(found.rows) < k and not found.exact:
        spare = _at_random(state, k - len(found.rows), np.concatenate((proposed, exclude)), rng)
        more = np.concatenate((found.rows, spare))
        found = _ranked(more, _spans(state, posterior, features_of, more), k, NO_ROWS, exact=False)
    # DEVIATION (Alg. 2, line 3): eta only caps the stages, and a good answer has width share * 2^-s.
    return Choice(found, due=largest < state.rules.share * ceiling, broken=largest > ceiling * (1 + 1e-6))


def play(
    state: Elimination,
    posterior: Posterior,
    features_of: FeaturesOf,
    find: Finder,
    *,
    k: int,
    rng: np.random.Generator,
    exclude: Rows = NO_ROWS,
) -> tuple[Elimination, TopK]:
    """Return the state after every pass that is due, and the choice from it (lines 14 to 28, as printed).

    Shapes, errors: as ``choose``. Cost: that of ``choose``, and of one pass for each null.
    """
    choice = choose(state, posterior, features_of, find, k=k, rng=rng, exclude=exclude)
    while choice.due:
        # What a pass leaves in the lowest stage is wide enough, or that stage is a later one: it ends.
        state = advance(state, posterior, features_of)
        choice = choose(state, posterior, features_of, find, k=k, rng=rng, exclude=exclude)
        if choice.due:
            choice = choose(state, posterior, features_of, whole_stage, k=k, rng=rng, exclude=exclude)
    return state, choice.arms


def _distinct(rows: Rows) -> Rows:
    """Return ``rows`` ascending, each once: what np.unique does, ten times as fast for few."""
    rows = np.sort(rows)
    new = np.empty(len(rows), dtype=bool)
    new[:1] = True
    np.not_equal(rows[1:], rows[:-1], out=new[1:])
    distinct: Rows = rows[new]
    return distinct


def _spans(state: Elimination, posterior: Posterior, features_of: FeaturesOf, rows: Rows) -> Vector:
    return state.rules.radius * widths(posterior, features_of(rows))


def _ranked(rows: Rows, spans: Vector, k: int, exclude: Rows, *, exact: bool) -> TopK:
    if len(exclude):
        kept = ~np.isin(rows, exclude)
        rows, spans = rows[kept], spans[kept]
    if k == 1 and len(rows):
        best = int(spans.argmax())
        return TopK(rows[best : best + 1], spans[best : best + 1], exact=exact)
    order = np.lexsort((rows, -spans))[:k]
    return TopK(rows[order], spans[order], exact=exact)


def _at_random(state: Elimination, k: int, exclude: Rows, rng: np.random.Generator) -> Rows:
    """Return ``k`` distinct living arms outside ``exclude``, uniformly; all if there are fewer."""
    if state.living.count > 8 * (k + len(exclude)) and state.capped:
        drawn = state.living.among(state.stages[0].draw(4 * (k + len(exclude)) + 64, rng))
        _, first = np.unique(drawn, return_index=True)
        distinct = drawn[np.sort(first)]
        found: Rows = distinct[~np.isin(distinct, exclude)][:k]
        if len(found) == k:
            return found
    return rng.permutation(np.setdiff1d(state.living.rows(), exclude))[:k]
