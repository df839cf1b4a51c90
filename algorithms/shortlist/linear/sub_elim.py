"""Sub-Elim: elimination which plays a living arm of large width, and reads a whole stage only now and then.

Notation
    w               radius * ||x||_{V^-1}, the width of an arm (n,)
    s               lowest stage with a living arm; s_max the last one
    null            no proposed arm is as wide as share * 2^-s: perhaps no arm of the stage is any more
    ruled out       x.theta^ + w is below the largest x.theta^ - w of the arms compared with it now
    due             a pass (``elimination.advance``) follows: after a null, or when half of them are ruled out

    >>> # state = elimination.start(prior, rows, features_of, rules(radius=2.0, eta=0.01))
    >>> # state, arms = play(state, posterior, features_of, find, k=1, rng=rng)    arms to play, passes done
    >>> # state = elimination.add(state, posterior, new_rows, features_of)         and elimination.delete
    >>> # if state.stale: state = elimination.start(posterior, rows, features_of, state.rules)

Source: Yang et al., "Linear Bandit Algorithms with Sublinear Time Complexity", Algorithm 3, lines 14 to 28.
The state and its passes are in ``elimination``, the searches in ``most_uncertain_arm``. Ruled-out arms cost
no guarantee: the proof is in docs/papers/sublinear-bandits.md.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from shortlist import checks
from shortlist.linear.elimination import Elimination, FeaturesOf, advance
from shortlist.linear.most_uncertain_arm import Finder, whole_stage
from shortlist.linear.ridge import Posterior, widths
from shortlist.types import NO_ROWS, Rows, TopK, Vector

LAST_STAGE_SAMPLE = 128
CHECK_SAMPLE, CHECK_RATE = 32, 1 / 32
_HOPEFUL = np.ones(1, dtype=np.bool_)


class EliminationChoice(NamedTuple):
    """``arms`` are scored by width. ``due``: a pass is to follow.

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
    check_rate: float = CHECK_RATE,
) -> EliminationChoice:
    """Return ``k`` living arms of large width (lines 14 to 18).

    When few arms live, all are compared with each other: first come the most uncertain ones which are not
    ruled out, then those of the largest upper bound. When all arms are in stage s_max, the same is done with
    a uniform sample of them. Otherwise the answer is the most uncertain of the arms proposed by ``find``.
    Missing arms are drawn at random. Only living arms are returned, so there may be fewer than k, or none.

    A due pass may wait: a service plays the returned arm while the pass runs. Any living arm costs at
    most 4 * 2^-s more than the best.

    ``check_rate`` is the probability of comparing a sample of the lowest stage as well, to see whether at
    least half of it is ruled out. It changes the time of a pass, not the answer.

    Shapes: exclude (e,) -> rows, scores (min(k, living arms outside exclude),).
    Cost: one ``find``, and d^2 for each arm proposed or compared. Raises: InvalidParameter (k < 1).
    """
    if k < 1:
        checks.in_range("k", k, least=1)
    if len(state.few):
        return _among(state.few, state, posterior, features_of, k=k, rng=rng, exclude=exclude)
    if state.living.count == 0:
        return EliminationChoice(TopK(NO_ROWS, np.empty(0), exact=True), False, False)
    if state.capped:
        # DEVIATION (Alg. 3, lines 15 and 16): a sample of the last stage is compared, none is played blindly.
        rows = _distinct(_sample(state, LAST_STAGE_SAMPLE, rng))
        return _among(rows, state, posterior, features_of, k=k, rng=rng, exclude=exclude)
    choice = _proposed(state, posterior, features_of, find, k=k, rng=rng, exclude=exclude)
    if choice.due or rng.random() >= check_rate:
        return choice
    # DEVIATION (Alg. 3, line 19): a pass also follows when half of the lowest stage is ruled out.
    _, _, hopeful = _compare(_sample(state, CHECK_SAMPLE, rng), state, posterior, features_of)
    return EliminationChoice(choice.arms, _half_are_ruled_out(hopeful), choice.broken)


def play(
    state: Elimination,
    posterior: Posterior,
    features_of: FeaturesOf,
    find: Finder,
    *,
    k: int,
    rng: np.random.Generator,
    exclude: Rows = NO_ROWS,
    check_rate: float = CHECK_RATE,
) -> tuple[Elimination, TopK]:
    """Return the state after every due pass, and the choice from it (lines 14 to 28).

    Shapes, errors: as ``choose``. Cost: ``choose`` and the passes.
    """
    choice = choose(state, posterior, features_of, find, k=k, rng=rng, exclude=exclude, check_rate=check_rate)
    while choice.due and not state.stale:
        # It ends: what a pass leaves in the stage is wide and not ruled out, or a later stage is the lowest.
        state = advance(state, posterior, features_of)
        for finder in (find, whole_stage):
            choice = choose(
                state, posterior, features_of, finder, k=k, rng=rng, exclude=exclude, check_rate=1.0
            )
            if not choice.due:
                break
    return state, choice.arms


def _proposed(
    state: Elimination,
    posterior: Posterior,
    features_of: FeaturesOf,
    find: Finder,
    *,
    k: int,
    rng: np.random.Generator,
    exclude: Rows,
) -> EliminationChoice:
    """Choose the most uncertain of the arms that ``find`` proposes."""
    proposed = state.living.among(find(posterior, state, rng))
    if k > 1 or len(proposed) >= state.living.count:
        proposed = _distinct(proposed)
    spans = _spans(state, posterior, features_of, proposed)
    ranked = _ranked(proposed, spans, k, exclude, exact=len(proposed) == state.living.count)
    first = len(ranked.rows) and not len(exclude)
    largest = ranked.scores.item(0) if first else float(spans.max(initial=0.0))
    if len(ranked.rows) < k and not ranked.exact:
        spare = draw_at_random(state, k - len(ranked.rows), np.concatenate((proposed, exclude)), rng)
        more = np.concatenate((ranked.rows, spare))
        ranked = _ranked(more, _spans(state, posterior, features_of, more), k, NO_ROWS, exact=False)
    # DEVIATION (Alg. 2, line 3): eta only caps the stages, and a good answer has width share * 2^-s.
    due = largest < state.rules.share * 2.0 ** -state.stages[0].stage
    return EliminationChoice(ranked, due, _is_broken(largest, state))


def _among(
    rows: Rows,
    state: Elimination,
    posterior: Posterior,
    features_of: FeaturesOf,
    *,
    k: int,
    rng: np.random.Generator,
    exclude: Rows,
) -> EliminationChoice:
    """Choose from ``rows`` (n,), which are compared with each other: all living arms, or a sample of them."""
    spans, upper, hopeful = _compare(rows, state, posterior, features_of)
    exact = len(rows) == state.living.count
    widest = best = spans.argmax() if len(rows) else -1
    if k == 1 and len(rows) and not len(exclude):
        if not hopeful[best]:
            best = np.where(hopeful, spans, -1.0).argmax()
        best_arms = TopK(rows[best : best + 1], spans[best : best + 1], exact)
    else:
        order = np.lexsort((rows, -np.where(hopeful, spans, upper), ~hopeful))
        order = order[~np.isin(rows[order], exclude)][:k]
        best_arms = TopK(rows[order], spans[order], exact)
    if len(best_arms.rows) < k and not exact:
        spare = draw_at_random(state, k - len(best_arms.rows), np.concatenate((rows, exclude)), rng)
        more = _ranked(spare, _spans(state, posterior, features_of, spare), k, NO_ROWS, exact=False)
        joined = np.concatenate((best_arms.rows, more.rows)), np.concatenate((best_arms.scores, more.scores))
        best_arms = TopK(*joined, exact=False)
    broken = len(rows) > 0 and _is_broken(spans.item(widest), state)
    return EliminationChoice(best_arms, _half_are_ruled_out(hopeful), broken)


def _compare(
    rows: Rows, state: Elimination, posterior: Posterior, features_of: FeaturesOf
) -> tuple[Vector, Vector, NDArray[np.bool_]]:
    """Return w, x.theta^ + w, and which of ``rows`` are not ruled out. Shapes: (n,) -> (n,) each."""
    features = features_of(rows)
    spans = state.rules.radius * widths(posterior, features)
    if len(rows) < 2:
        return spans, spans, _HOPEFUL[: len(rows)]  # there is nothing to compare it with
    estimates = features.dot(posterior.theta)
    upper = estimates + spans
    estimates -= spans
    return spans, upper, upper >= estimates.item(estimates.argmax())


def _half_are_ruled_out(hopeful: NDArray[np.bool_]) -> bool:
    """Return whether at least half of the arms are ruled out."""
    return 2 * int(np.count_nonzero(hopeful)) <= len(hopeful) > 0


def _sample(state: Elimination, size: int, rng: np.random.Generator) -> Rows:
    """Draw arms of the lowest stage with replacement. Shape: at most (size,); no arms if ``few`` is 0."""
    return state.living.among(state.stages[0].draw(min(size, state.rules.few), rng))


def _is_broken(largest: float, state: Elimination) -> bool:
    return largest > 2.0 ** -state.stages[0].stage * (1 + 1e-6)


def _distinct(rows: Rows) -> Rows:
    """Return ``rows`` ascending, each once. For few rows this is ten times as fast as np.unique."""
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
        is_kept = ~np.isin(rows, exclude)
        rows, spans = rows[is_kept], spans[is_kept]
    if k == 1 and len(rows):
        best = int(spans.argmax())
        return TopK(rows[best : best + 1], spans[best : best + 1], exact=exact)
    order = np.lexsort((rows, -spans))[:k]
    return TopK(rows[order], spans[order], exact=exact)


def draw_at_random(state: Elimination, k: int, exclude: Rows, rng: np.random.Generator) -> Rows:
    """Return ``k`` distinct living arms outside ``exclude``, uniformly; all if there are fewer."""
    easily_drawn = state.living.count > 8 * (k + len(exclude))
    if easily_drawn and state.capped:
        size = 4 * (k + len(exclude)) + 64
        drawn = state.living.among(state.stages[0].draw(size, rng))
        _, first = np.unique(drawn, return_index=True)
        distinct = drawn[np.sort(first)]
        found: Rows = distinct[~np.isin(distinct, exclude)][:k]
        if len(found) == k:
            return found
    return rng.permutation(np.setdiff1d(state.living.rows(), exclude))[:k]
