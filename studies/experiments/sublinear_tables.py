"""`shortlist reproduce table1` to `table5`: the sublinear paper's experiments beside its print.

`table1-million` is table 1 for a million arms, which the paper has not. ``exact_elim`` is not in the print.

Every policy of a seed meets the same arms, noise and order of draws. What the print leaves open is fixed here
for all tables: V = I, theta~ = theta^ + 2 V^-1/2 xi, and widths of 6.5 ||x||, which bring the exact baselines
near the printed regret of K = 5,000 (the printed beta would be 12 and more, and cost several times as much).

Source: Yang et al., "Linear Bandit Algorithms with Sublinear Time Complexity", section 7 and appendix C.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import version
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from app.platform.errors import ShortlistError
from shortlist.linear import elimination
from shortlist_client.progress import progress
from studies.experiments import movielens, sublinear_figures, synthetic
from studies.experiments.elimination_policies import LinearElim, SubElim
from studies.experiments.exact_elimination import ExactElim
from studies.experiments.kept_runs import KeptRuns
from studies.experiments.play import Policy, Run, play
from studies.experiments.printed_tables import TABLES, Printed
from studies.experiments.synthetic import PERIOD, Environment
from studies.experiments.ts_policies import LinearTs, SubTs
from studies.measurement import report

EXPLORATION = 2.0
SEED = 2022


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """``users``: of table 3, of so many who are ``held`` back from the features of films."""

    steps: int = 20_000
    radius: float = 6.5
    seeds: int = 10
    million_seeds: int = 3
    users: int = 300
    held: int = 300


WHOLE, QUICK = Plan(), Plan(seeds=2, million_seeds=2, users=6)


def run(
    name: str,
    quick: bool,
    data: Path | None,
    keep: Path | None = None,
    *,
    plan: Plan | None = None,
    columns: Sequence[Printed] | None = None,
) -> dict[str, Any]:
    """Play every algorithm of the table on all seeds (users in table 3); print and return the rows.

    ``data``: a MovieLens directory, for table 3. ``keep``: where finished runs are, and are left.
    ``columns``: in place of those of the table.
    """
    plan, columns = plan or (QUICK if quick else WHOLE), columns or TABLES[name]
    seeds = _seeds(name, plan, data)
    runs: dict[Printed, list[Run]] = {column: [] for column in columns}
    keeper = KeptRuns(keep)
    with threadpool_limits(1):
        for seed, column in progress(list(product(seeds, columns)), name):
            runs[column].append(_run(keeper, name, column, seed, data=data, plan=plan))
    arms = None if name != "table3" or data is None else len(_films(data, plan.held)[0])
    rows = [_row(name, column, runs, arms or column.K) for column in columns]
    curves = [_curve(column, runs[column]) for column in columns]
    record = report(name, rows, seed=SEED) | {"curves": curves, "steps": plan.steps}
    sublinear_figures.write(record, Path())
    return record


def _seeds(name: str, plan: Plan, data: Path | None) -> range:
    if name != "table3":
        return range(SEED, SEED + (plan.million_seeds if name == "table1-million" else plan.seeds))
    if data is None:
        raise ShortlistError("table3 needs a MovieLens directory: --data DIR with u.data or ratings.dat")
    return range(min(_films(data, plan.held)[1].shape[0], plan.users))


def _run(keeper: KeptRuns, name: str, column: Printed, seed: int, *, data: Path | None, plan: Plan) -> Run:
    where = _where(name, column, data)
    policy = column.algorithm + (f"-{column.shortlist}" if column.shortlist else "")
    what = {"version": version("shortlist"), "environment": where, "policy": policy, "seed": seed}
    what |= {"steps": plan.steps, "exploration": EXPLORATION, "radius": plan.radius}

    def make() -> Run:
        environment = _environment(name, column, seed, data, plan)
        return play(environment, _policy(column, environment, seed, plan.radius), seed=seed)

    return keeper.get(f"{where}-{policy}-{seed}", what, make)


def _where(name: str, column: Printed, data: Path | None) -> str:
    """The name of the environment: tables 1 and 2 share one."""
    if name == "table3" and data is not None:
        return data.name
    kind = {"table4": "deletions", "table5": "growing"}.get(name, "synthetic")
    return f"{kind}-{column.K}-{column.change}"


@lru_cache(maxsize=1)
def _environment(name: str, column: Printed, seed: int, data: Path | None, plan: Plan) -> Environment:
    arms, change, steps = column.K, column.change, plan.steps
    if name == "table3" and data is not None:
        features, liked = _films(data, plan.held)
        return movielens.environment(liked[seed], features, steps=steps, change=change)
    if name in {"table4", "table5"}:
        arms += change * ((steps - 1) // PERIOD)
    return synthetic.make(arms, steps, change=change, deletions=name == "table4", seed=seed)


@lru_cache(maxsize=1)
def _films(data: Path, most: int) -> tuple[Any, Any]:
    """Features of all films in their order of arrival (K, 16), and what each user held back likes (n, K)."""
    try:
        ratings = movielens.read(data)
        counts = np.bincount(ratings.users)
        active = int(np.count_nonzero(counts >= movielens.LEAST_RATINGS))
        held, _, known = movielens.split(ratings, min(most, active), seed=SEED)
    except (OSError, ValueError) as error:
        raise ShortlistError(str(error)) from None
    order = np.random.default_rng(SEED).permutation(len(ratings.movie_ids))
    good = ratings.good
    return movielens.movie_features(good, known)[order], good[held].toarray()[:, order]


def _policy(column: Printed, environment: Environment, seed: int, radius: float) -> Policy:
    rules = elimination.rules(radius=radius, eta=environment.steps**-0.5)
    shortlist = column.shortlist or 1
    if column.algorithm == "linear_ts":
        return LinearTs(environment, exploration=EXPLORATION)
    if column.algorithm == "sub_ts":
        return SubTs(environment, exploration=EXPLORATION, shortlist=shortlist, seed=seed)
    if column.algorithm == "exact_elim":
        return ExactElim(environment, radius=radius)
    if column.algorithm == "linear_elim":
        return LinearElim(environment, rules)
    return SubElim(environment, rules, shortlist=shortlist)


def _row(name: str, column: Printed, runs: dict[Printed, list[Run]], arms: int) -> dict[str, Any]:
    """Means over the seeds; the keys of every table. Ratios are of sums, against the same seeds."""
    mine, scan = runs[column], _beside(column.baseline, column, runs)
    scanned = _beside(f"linear_{column.algorithm.split('_')[1]}", column, runs)
    exact = _beside("exact_elim", column, runs) if "elim" in column.algorithm else []
    regrets = np.array([one.regret for one in mine])
    seconds, online = _mean(mine, "preparing", "online", "upkeep"), _mean(mine, "online")
    return {
        "table": name,
        "algorithm": column.algorithm,
        "K": arms,
        "shortlist": column.shortlist,
        "change": column.change,
        "regret_mean": float(regrets.mean()),
        "regret_sd": float(regrets.std(ddof=1)) if len(mine) > 1 else 0.0,
        "regret_ratio": float(regrets.sum() / sum(one.regret for one in scan)),
        "seconds": seconds,
        "seconds_online": online,
        "speedup": _mean(scan, "preparing", "online", "upkeep") / seconds,
        "speedup_online": _mean(scan, "online") / online,
        "speedup_online_best_scan": _best_online(scan) / online,
        "speedup_online_exact_elim": _mean(exact, "online") / online if exact else None,
        "speedup_online_printed_scan": float(np.mean([one.scans["printed"] for one in scanned])) / online,
        "paper_regret": column.regret,
        "paper_speedup": column.speedup if column.regret is not None else None,
        "paper_speedup_online": column.speedup_online if column.regret is not None else None,
        "seeds": len(mine),
    }


def _beside(algorithm: str, column: Printed, runs: dict[Printed, list[Run]]) -> list[Run]:
    """The runs of another algorithm in the same environment."""
    wanted = (algorithm, column.K, column.change)
    return next(made for other, made in runs.items() if (other.algorithm, other.K, other.change) == wanted)


def _mean(runs: list[Run], *parts: str) -> float:
    return float(np.mean([sum(getattr(one, part) for part in parts) for one in runs]))


def _best_online(runs: list[Run]) -> float:
    """Online seconds had the baseline used the best scan that we know."""
    return float(np.mean([one.online - one.scans.get("used", 0) + one.scans.get("best", 0) for one in runs]))


def _curve(column: Printed, runs: list[Run]) -> dict[str, Any]:
    curves = np.array([one.curve for one in runs])
    label = column.algorithm + (f", shortlist {column.shortlist}" if column.shortlist else "")
    title = f"K = {column.K:,}, {column.change} arms every {PERIOD} steps"
    return {"title": title, "label": label, "mean": curves.mean(axis=0).round(1).tolist()}
