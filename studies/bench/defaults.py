"""`shortlist bench defaults`: Thompson sampling without a setting, beside the best of a grid of settings.

Every world is drawn four times. No key knows the others, but for "ours". Notation and play are those of
``few_keys``.

Worlds
    gauss4, gauss16, gauss64    arms are N(0, I / d)
    gauss16 x 0.1, x 10         the same arms, all features multiplied
    lognormal                   d = 16, lengths are exp(0.7 N(0, 1))
    clicks                      d = 16, reward 1 with a probability of 0.01 on average; 100 decisions a round
    context                     d = 16, a context of 4 numbers, 8 directions interact with it: D = 48
    films, films again          users of MovieLens (--data), reward 1 for films that they liked; none twice,
                                or any

Worlds of many keys, which learn from one another by the learned prior, are those of ``many_keys``; worlds of
one learner by their noise, beside an oracle, those of ``noise_levels``; few arms and a context, those of
``classes`` (--data).

Columns: mean rewards (expected ones) of a decision, after so many ``rounds``
    random, popular     any arm; the arm of most success with others: x.(common taste), ratings of all other
                        users, or clicks in a log of 2 K random decisions
    ones                exploration 1, ridge 1
    best, exploration, ridge    the setting of the grid that earned most in these very rounds
    alone               without a setting, each key for itself (``shortlist.linear.scales``)
    ours, ratio         without a setting: with an intercept, and where there are five keys or more with the
                        learned prior; ours / best, both played again with four other draws, which did not
                        choose the best
    ahead, best_ahead   from which round on ours, and the best, earns more than popular in every ten rounds

Columns of the worlds of many keys
    plain           each key for itself, with an intercept
    global          one learner for all keys, with an intercept
    ours            with an intercept and the learned prior, as by default. gain: ours / plain - 1, and
                    error: its standard error over draws
    simulated       the gain that was simulated when the prior was designed (``many_keys.SIMULATED``)
    best, best_way  of a grid over the strength of the prior and exploration, with and without the prior
    ratio           ours / best, both played again with other draws, which did not choose the best
    first5, from6   ours / popular in the first five rounds, and in those after
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from app.platform.command_line import table
from app.platform.errors import ShortlistError
from shortlist.types import Matrix
from shortlist_client.progress import progress
from studies.bench import classes, few_keys, many_keys, noise_levels
from studies.bench.few_keys import SEED, Setting, World, clicks, context, films, gauss, play, ranked
from studies.experiments import movielens
from studies.measurement import record

WINDOW = 10
EXPLORATIONS, RIDGES = (0.03, 0.1, 0.2, 0.5, 1.0), (0.1, 0.3, 1.0, 3.0)
GRID = [Setting(exploration, strength) for exploration in EXPLORATIONS for strength in RIDGES]
ONES = Setting(1.0, 1.0)
ALONE, OURS = Setting(), Setting(intercept=True, learned=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """How often each world is drawn, and what is tried in it; ``early``: rounds of its first row."""

    draws: int = 4
    people_draws: int = 3
    noise_draws: int = 24
    class_draws: int = 6
    grid: Sequence[Setting] = tuple(GRID)
    people_grid: Sequence[many_keys.Way] = tuple(many_keys.GRID)
    noise_arms: Sequence[int] = noise_levels.ARMS
    noise_dims: Sequence[int] = tuple(noise_levels.ROUNDS)
    early: int = 60
    few: few_keys.Sizes = few_keys.SIZES
    genre_users: int = many_keys.GENRE_USERS
    click_users: int = many_keys.CLICK_USERS


WHOLE = Sizes()
QUICK = Sizes(
    draws=1,
    people_draws=1,
    noise_draws=1,
    class_draws=1,
    grid=[Setting(exploration, strength) for exploration in (0.1, 0.5) for strength in (0.3, 3.0)],
    people_grid=many_keys.GRID[-1:],
    noise_arms=(1_000,),
    noise_dims=(16, 64),
)


def run(quick: bool, data: Path | None = None, sizes: Sizes | None = None) -> dict[str, Any]:
    """Play all worlds, those of films only with ``data``; print and return their rows.

    ``quick``: each once, and a grid of 2 by 2. Raises ShortlistError: no MovieLens data in ``data``.
    """
    sizes = sizes or (QUICK if quick else WHOLE)
    normal = partial(gauss, sizes=sizes.few)
    makes: list[Callable[[int], World]] = [
        partial(normal, "gauss4", 4),
        partial(normal, "gauss16", 16),
        partial(normal, "gauss16 x 0.1", 16, scale=0.1),
        partial(normal, "gauss16 x 10", 16, scale=10.0),
        partial(normal, "gauss64", 64),
        partial(normal, "lognormal", 16, lognormal=0.7),
        partial(clicks, sizes=sizes.few),
        partial(context, sizes=sizes.few),
    ]
    crowds = many_keys.worlds()
    if data is None:
        print("films are left out: --data names no MovieLens directory")
    else:
        try:
            ratings = movielens.read(data)
            makes += [
                partial(films, "films", ratings, repeats=False, sizes=sizes.few),
                partial(films, "films again", ratings, repeats=True, sizes=sizes.few),
            ]
            described = movielens.described(data, ratings)
            crowds += many_keys.film_worlds(ratings, described, sizes.genre_users, sizes.click_users)
            makes[-1](0)
        except (OSError, ValueError) as error:
            raise ShortlistError(f"--data: {error}") from None
    rows: list[dict[str, Any]] = []
    with threadpool_limits(1):
        for make in progress(makes, "worlds"):
            rows += rows_of(make, sizes.draws, sizes.grid, sizes.early)
        print(table(rows))
        shared = [
            many_keys.rows_of(make, sizes.people_draws, sizes.people_grid)
            for make in progress(crowds, "worlds of many keys")
        ]
        levels = noise_levels.rows(sizes.noise_draws, dims=sizes.noise_dims, arms=sizes.noise_arms)
        others = [
            *noise_levels.policy_rows(sizes.noise_draws),
            *noise_levels.silent_rows(sizes.noise_draws),
        ]
        few = [] if data is None else classes.rows(data, sizes.class_draws)
    for part in (levels, others, few, shared):
        print(table(part) if part else "classes are left out: no pendigits.csv or letter.csv in --data")
    return record("defaults", [*rows, *shared, *levels, *others, *few], seed=SEED)


def rows_of(
    make: Callable[[int], World], draws: int, grid: Sequence[Setting], early: int
) -> list[dict[str, Any]]:
    """Play all ways in all draws of a world; a row of ``early`` rounds, and one of all if they are more."""
    worlds, fresh = [make(draw) for draw in range(draws)], [make(draws + draw) for draw in range(draws)]
    world = worlds[0]
    random = np.concatenate([ranked(draw, None) for draw in worlds])
    popular = np.concatenate([ranked(draw, draw.popularity) for draw in worlds])
    settings = dict.fromkeys([*grid, ONES, ALONE, OURS])
    played = {
        setting: np.concatenate([play(draw, setting) for draw in worlds])
        for setting in progress(settings, f"settings in {world.name}", leave=False)
    }
    # The best of a grid is best by chance too: it is compared in draws that did not choose it.
    again: dict[Setting, Matrix] = {}
    rows = []
    for rounds in sorted({min(early, world.rounds), world.rounds}):

        def earned(of: Matrix, rounds: int = rounds) -> float:
            return float(of[:, : rounds * world.batch].mean())

        best = max(grid, key=lambda setting: earned(played[setting]))
        for setting in {OURS, best} - again.keys():
            again[setting] = np.concatenate([play(draw, setting) for draw in fresh])
        rows.append(
            {
                "world": world.name,
                "D": world.dim,
                "keys": len(popular),
                "rounds": rounds,
                "random": earned(random),
                "popular": earned(popular),
                "ones": earned(played[ONES]),
                "best": earned(played[best]),
                "exploration": best.exploration,
                "ridge": best.ridge,
                "alone": earned(played[ALONE]),
                "ours": earned(played[OURS]),
                "ratio": earned(again[OURS]) / earned(again[best]),
                "ahead": ahead_from(world, played[OURS], popular),
                "best_ahead": ahead_from(world, played[best], popular),
            }
        )
    return rows


def ahead_from(world: World, rewards: Matrix, others: Matrix, window: int = WINDOW) -> int | None:
    """The first round such that every ``window`` rounds from it on earn more; None: not even the last do."""
    more = (rewards - others).reshape(-1, world.rounds, world.batch).mean(axis=(0, 2))
    windows = np.convolve(more, np.ones(min(window, world.rounds)), "valid")
    behind = np.flatnonzero(windows <= 0.0)
    if not len(behind):
        return 1
    return None if behind[-1] == len(windows) - 1 else int(behind[-1]) + 2
