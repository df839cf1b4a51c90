"""The main job, over HTTP: recommend and learn, against the exact algorithm and simple rules.

    python -m examples.demo --data DIR      movies of MovieLens, for users who are new to the service
    python -m examples.demo                 the synthetic environment of the paper

Starts a service of its own, plays all --rounds, prints, and stops it. A minute or two on two cores.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from examples import movielens, picture
from examples.baselines import baselines
from examples.environments import Environment, Matrix, synthetic
from examples.play import Outcome, Player
from examples.service import StartError, temporary_service
from shortlist.types import Vector
from shortlist_client import ShortlistError
from studies.measurement import record

ROUNDS = 200
CONFIDENCE = 0.95
CHOOSE = Path(__file__).parents[1] / "docs/figures/choose.json"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demonstration; the exit status says whether it went well."""
    parsed = _parser().parse_args(arguments)
    began = time.monotonic()
    try:
        game = _environment(parsed)
        repeats = game.repeats if parsed.repeats is None else parsed.repeats
        print(f"{game.title}\n{game.rules}\n")
        for name, settings in game.bandits.items():
            print(f"{name}: {', '.join(f'{key} {value}' for key, value in settings.items())}")
        with temporary_service() as server:
            print(f"service on {server.url}", flush=True)
            player = Player(game, server, threads=parsed.threads, repeats=repeats, seed=parsed.seed)
            outcome = player.play()
    except (ShortlistError, StartError, OSError, ValueError) as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("demo: interrupted; the service is stopped and its data is gone", file=sys.stderr)
        return 130
    rounds = next(iter(outcome.regrets.values())).shape[1]
    outcome.regrets |= baselines(game, rounds=rounds, repeats=repeats, seed=parsed.seed)
    _report(game, outcome, parsed.threads)
    print(f"\n{_certainty(game, parsed.seed)}")
    if parsed.picture is not None:
        _draw(game, outcome, parsed.picture)
    if parsed.json is not None:
        parsed.json.write_text(json.dumps(_record(game, outcome, parsed.seed), indent=1) + "\n")
    print(f"\nall of it took {time.monotonic() - began:.0f} s")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m examples.demo", description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="a MovieLens directory: u.data (100K) or ratings.dat (1M)")
    parser.add_argument("--users", type=int, default=40, help="users held back (with --data)")
    parser.add_argument("--runs", type=int, default=12, help="independent runs (without --data)")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"of each learner; default: {ROUNDS}")
    parser.add_argument(
        "--repeats",
        action=argparse.BooleanOptionalAction,
        help="whether a learner may be shown an arm twice; default: not with --data",
    )
    parser.add_argument("--threads", type=int, default=4, help="connections at once")
    parser.add_argument("--seed", type=int, default=1, help="of the split, the arrivals and the noise")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write machine, versions, seed and regrets")
    parser.add_argument("--picture", type=Path, metavar="FILE", help="draw the rewards: an SVG")
    return parser


def _draw(game: Environment, outcome: Outcome, path: Path) -> None:
    """The rewards beside each other; most popular is what most sites show."""
    rounds = next(iter(outcome.regrets.values())).shape[1]
    best = np.repeat(game.best, game.block, axis=1)[:, :rounds]
    rewards = {name: best - regrets for name, regrets in outcome.regrets.items()}
    what = "drawn clicks a film shown, none shown twice" if game.clicks else "mean reward a round"
    picture.draw(path, game.title, f"{what}; Sub-TS has no settings", rewards)
    print(f"\na picture of it: {path.absolute()}")


def _environment(parsed: argparse.Namespace) -> Environment:
    if parsed.data is None:
        return synthetic(runs=parsed.runs, rounds=parsed.rounds, seed=parsed.seed)
    ratings = movielens.read(parsed.data)
    held, _, known = movielens.split(ratings, parsed.users, seed=parsed.seed)
    return movielens.environment(ratings, held, known, rounds=parsed.rounds, seed=parsed.seed)


def _record(game: Environment, outcome: Outcome, seed: int) -> dict[str, Any]:
    best = np.repeat(game.best, game.block, axis=1)
    rows = [
        {
            "policy": name,
            "learners": len(regrets),
            "rounds": regrets.shape[1],
            **_regret(regrets),
            "mean_reward": float((best[:, : regrets.shape[1]] - regrets).mean()),
        }
        for name, regrets in outcome.regrets.items()
    ]
    return record("demo", rows, seed=seed) | {"title": game.title}


def _regret(regrets: Matrix) -> dict[str, float | None]:
    """Mean over the learners of the summed regret, and its standard error."""
    totals = regrets.sum(axis=1)
    error = float(totals.std(ddof=1) / np.sqrt(len(totals))) if len(totals) > 1 else None
    return {"regret": float(totals.mean()), "standard_error": error}


def _report(game: Environment, outcome: Outcome, threads: int) -> None:
    rounds = next(iter(outcome.regrets.values())).shape[1]
    best = np.repeat(game.best, game.block, axis=1)[:, :rounds].mean(axis=1)
    earned = {name: best - regrets.mean(axis=1) for name, regrets in outcome.regrets.items()}
    print()
    for other in list(earned)[1:]:
        print(compared(game.clicks, earned, other))
    print(f"\nregret of {rounds} rounds, mean over {len(game.learners)} learners")
    for name, regrets in outcome.regrets.items():
        found = _regret(regrets)
        error = found["standard_error"]
        spread = "" if error is None else f" +- {error:.1f} (standard error)"
        print(f"  {name:14} {found['regret']:8.1f}{spread}")
    _learning_curve(outcome.regrets, rounds)
    _latencies(outcome, threads)
    _at_a_million()


def compared(clicks: bool, earned: Mapping[str, Vector], other: str) -> str:
    """One sentence: whether the first policy earned more than another, by the pairs of each learner.

    ``earned``: the mean reward of each learner (L,). A difference is told if its interval leaves 0 out.
    """
    policy = next(iter(earned))
    own, others = earned[policy], earned[other]
    unit = "clicks a round" if clicks else "reward a round"
    figures = f"{own.mean():.2f} against {others.mean():.2f} {unit}"
    interval = paired_interval(own - others)
    if interval is None or interval[0] <= 0.0 <= interval[1]:
        return f"{policy} and {other}: no difference can be told, {figures}"
    which = "more" if interval[0] > 0.0 else "less"
    span = f"difference {interval[0]:+.2f} to {interval[1]:+.2f}"
    return f"{policy} earned {which} than {other}: {figures} ({span})"


def paired_interval(differences: Vector) -> tuple[float, float] | None:
    """Student's interval of the mean of paired differences (L,); None of one pair."""
    if len(differences) < 2:
        return None
    low, high = stats.t.interval(
        CONFIDENCE, len(differences) - 1, differences.mean(), max(float(stats.sem(differences)), 1e-12)
    )
    return float(low), float(high)


def _learning_curve(regrets: dict[str, Matrix], rounds: int) -> None:
    parts = np.array_split(np.arange(rounds), min(10, rounds))
    print("\nregret per round, in ten parts of the rounds")
    print("  up to round   " + "".join(f"{part[-1] + 1:7}" for part in parts))
    for name, table in regrets.items():
        print(f"  {name:14}" + "".join(f"{table[:, part].mean():7.2f}" for part in parts))


def _certainty(game: Environment, seed: int) -> str:
    count = len(game.learners)
    if count < 2:
        return f"one learner, seed {seed}: no error of these figures is known"
    return (
        f"seed {seed}: standard errors and intervals are over the {count} learners of this one run; "
        "times have none"
    )


def _latencies(outcome: Outcome, threads: int) -> None:
    print(f"\n{outcome.requests} requests in {outcome.elapsed_s:.0f} s over {threads} connections,", end=" ")
    print("client and service on this machine; milliseconds as the client sees them")
    for kind, seconds in sorted(outcome.seconds.items()):
        if kind != "other":
            half, most = np.quantile(seconds, (0.5, 0.99)) * 1e3
            print(f"  {kind:24} p50 {half:6.2f}   p99 {most:6.2f}   ({len(seconds)} requests)")
    print(f"{outcome.exact_share:.0%} of the choices of Sub-TS compared every arm, the others used the graph")


def _at_a_million() -> None:
    """What was measured before: to build the graph takes minutes."""
    rows = json.loads(CHOOSE.read_text())["rows"]
    us = {row["method"]: row["p50_us"] for row in rows if row["K"] == 1_000_000}
    print(f"among 1,000,000 arms a choice takes {us['auto']:,.0f} us, to compare all {us['scan']:,.0f} us")
    print("  (d = 32, in process; `shortlist bench choose --quick` measures it here)")


if __name__ == "__main__":
    sys.exit(main())
