"""``shortlist bench`` and ``shortlist reproduce``."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from inspect import signature
from math import isfinite
from pathlib import Path
from typing import Any

from app.platform.command_line import Parser, writable, write
from app.platform.errors import ShortlistError

BENCHMARKS = {
    "bounded-me": "one-shot search: BoundedME and racing beside a scan, other searches, faiss, a graph",
    "kcenter": "k representative points: sampled coordinates against vectorised exact greedy",
    "choose": "one decision in process: scan, norm-pruned, HNSW and the planner's choice",
    "context": "decisions in a context: time, regret, learning; films for new users beside peers (--data)",
    "defaults": "bandits without a setting beside the best of a grid of settings (--data: also on films)",
    "export": "the decision log as NDJSON and Parquet: rows a second, memory",
    "churn": "queries while 200 % of the arms are replaced",
    "evaluation": "policies evaluated on a log: decisions a second beside a plain loop, memory",
    "logged-draws": "the log of Thompson sampling, its propensities estimated by draws: bias and coverage",
    "filters": "searches among the arms that a filter matches, beside numpy; churn; memory",
    "elimination": "the most uncertain arm: sampled stages, indexes, exact scans; stage moves",
    "slates": "slate campaigns: time per decision, samples against Exhaustive",
    "sampling": "racing samplers: errors, reads, and time against exact vectorised sampling",
    "graphs": "a search of our graph beside one of faiss over 8-bit codes: time, recall, build, memory",
    "growth": "how the time of a decision grows with the number of arms, and the exponents",
    "library": "a choice of the library's bandit by each index, beside numpy",
    "milvus": "a choice from a catalogue in Milvus beside a bare search, and memory (extra `milvus`)",
    "moving": "what is left of what was learned when a bandit moves to new features (--data; extra `text`)",
    "peers": "a decision, and what is earned, beside what a user would take instead (extra `peers`)",
    "people": "lists for new people beside popular, kNN, EASE, ALS, VW (extra `peers`; --data: films)",
    "personalizer": "clients of Personalizer beside Vowpal Wabbit (extras `images`, `peers`)",
    "ages": "what learning what the age of an arm adds earns, and arms that fade, in five worlds",
    "places": "what learning which places of a list are looked at earns, in fourteen worlds",
    "planner": "which index the planner chooses at 100,000 arms, next to busy neighbours",
    "rebuild": "learners computed again from a lake beside a replay through the service",
    "search-results": "a search engine's hits ranked by numbers of each request, beside its own order",
    "signals": "several rewards: cost, the front by one learner, intervals, places (--data: also films)",
    "shown": "what quotas, and lists of different arms, cost a choice",
    "regret": "regret of Sub-TS against exact Thompson sampling, on paired seeds",
}

# Options that few benchmarks have, and what is said of all others.
REFUSALS = {"seed": "the seeds of {} are fixed", "data": "{} reads no data"}

# name -> module of studies, and what it shows. Its run(name, quick, data) prints and returns a record.
REPRODUCTIONS: dict[str, tuple[str, str]] = {
    "slates-crowdsourcing": ("experiments.slate_crowdsourcing", "SAQM, SA-FOA, ICB: Table 2"),
    "slates-figures": ("experiments.slate_figures", "SAQM, SA-FOA, ICB, Exhaustive: Figures 1 to 3"),
    "slates-bounds": (
        "experiments.slate_bounds",
        "SAQM, ICB: allocations; Theorem 3, Corollary 1, Lemma 3",
    ),
    "table1": ("experiments.sublinear_tables", "Sub-TS and Sub-Elim: 5,000 and 100,000 arms"),
    "table1-million": ("experiments.sublinear_tables", "Sub-TS: 1,000,000 arms"),
    "table2": ("experiments.sublinear_tables", "Sub-TS and Sub-Elim: the length of the shortlist"),
    "table3": (
        "experiments.sublinear_tables",
        "Sub-TS and Sub-Elim: films for MovieLens users (--data)",
    ),
    "table4": ("experiments.sublinear_tables", "Sub-TS: arms come and go"),
    "table5": (
        "experiments.sublinear_tables",
        "Sub-TS and Sub-Elim: 2, 10 and 50 new arms at a time",
    ),
    "figure1-bounded-me": (
        "experiments.bounded_me_guarantee",
        "BoundedME's suboptimality below epsilon",
    ),
    "figures2to4-bounded-me": (
        "bench.bounded_me_figures",
        "precision against speed-up of one-shot search (--data: also on factors of films)",
    ),
    "adaptive-solvers": (
        "experiments.adaptive_solvers",
        "Theorem 3.3 with solvers that keep its premise, beside graphs",
    ),
    "remark1-bounded-me": ("experiments.convex_hull", "arms that are corners of their convex hull"),
    "kcenter-figure1": ("experiments.kcenter_figure", "DS-UCB: queries and errors against C_alpha"),
    "kcenter-theorems": (
        "experiments.kcenter_theorems",
        "Theorems 1 to 4 of the k-center paper: bounds",
    ),
    "kcenter-tables": (
        "experiments.kcenter_tables",
        "Tables I to VII of the k-center paper: queries",
    ),
    "figure1-sampling": (
        "experiments.sampling_figure",
        "racing samplers: errors and reads over the grid",
    ),
    "figure1e-sampling": (
        "experiments.sampling_widths",
        "racing samplers: how wide their bounds are",
    ),
    "figure2-sampling": ("experiments.sampling_arch", "racing samplers: the order of an ARCH model"),
    "figure3-sampling": (
        "experiments.sampling_coreference",
        "racing samplers: who is who among authors",
    ),
    "widths-without-replacement": ("experiments.widths", "the bounds that races can stand on"),
    "table1-sampling": (
        "experiments.sampling_table",
        "B_Normal beside Table 1 of the racing samplers",
    ),
}


# Seconds of processor time that --quick takes, of one core of 2.4 GHz or so (November 2026).
QUICK_S = {
    "bounded-me": 220,
    "kcenter": 7,
    "choose": 150,
    "context": 40,
    "defaults": 190,
    "export": 3,
    "churn": 120,
    "evaluation": 20,
    "logged-draws": 60,
    "filters": 200,
    "elimination": 4,
    "slates": 140,
    "sampling": 85,
    "graphs": 50,
    "growth": 100,
    "library": 20,
    "milvus": 60,
    "moving": 110,
    "search-results": 60,
    "peers": 250,
    "people": 90,
    "personalizer": 120,
    "ages": 20,
    "places": 20,
    "planner": 90,
    "rebuild": 60,
    "shown": 20,
    "signals": 60,
    "regret": 40,
    "slates-crowdsourcing": 40,
    "slates-figures": 7,
    "slates-bounds": 13,
    "table1": 50,
    "table1-million": 350,
    "table2": 60,
    "table3": 40,
    "table4": 20,
    "table5": 65,
    "figure1-bounded-me": 3,
    "figures2to4-bounded-me": 230,
    "adaptive-solvers": 4,
    "remark1-bounded-me": 24,
    "kcenter-figure1": 2,
    "kcenter-theorems": 2,
    "kcenter-tables": 35,
    "figure1-sampling": 30,
    "figure1e-sampling": 2,
    "figure2-sampling": 8,
    "figure3-sampling": 4,
    "widths-without-replacement": 1,
    "table1-sampling": 2,
}
# What the columns of these say of their errors. Other benchmarks have no such column.
ERRORS: Mapping[str, Mapping[str, str]] = {
    "context": {
        "regret_sd": "a standard deviation over seeds",
        "error": "a standard error over splits",
    },
    "defaults": {"error": "a standard error over draws", "ours_error": "a standard error over worlds"},
    "logged-draws": {"error of bias": "a standard error over logs"},
    "people": {"error": "a standard error over draws, or over the people of one"},
    "personalizer": {"error": "a standard error over seeds"},
    "ages": {"se": "a standard error over draws"},
    "places": {"se": "a standard error over draws"},
    "regret": {"regret_sd": "a standard deviation over seeds"},
}
_LIST_END = "Second column: what --quick takes of one core; without it a run takes several times as long."


def parser() -> argparse.ArgumentParser:
    """The arguments of both commands; ``run`` of what it parses runs one, and returns its status."""
    found = Parser(prog="shortlist")
    commands = found.add_subparsers(required=True, metavar="command")

    bench = commands.add_parser("bench")
    bench.add_argument("name", nargs="?", choices=sorted(BENCHMARKS), help="which benchmark")
    bench.add_argument("--list", action="store_true", help="list the benchmarks")
    bench.add_argument("--quick", action="store_true", help="fewer repetitions")
    bench.add_argument("--seed", type=int, help="planner: repeat the build of this seed")
    bench.add_argument(
        "--data",
        type=Path,
        metavar="DIR",
        help="context, defaults, bounded-me, moving, people, signals: a MovieLens directory",
    )
    bench.add_argument("--json", type=writable, metavar="FILE", help="write machine, versions, seed and rows")
    bench.set_defaults(run=_bench)

    reproduce = commands.add_parser("reproduce")
    reproduce.add_argument("name", nargs="?", choices=sorted(REPRODUCTIONS), help="which table or figure")
    reproduce.add_argument("--list", action="store_true", help="list what can be reproduced")
    reproduce.add_argument("--quick", action="store_true", help="fewer seeds")
    reproduce.add_argument("--data", type=Path, metavar="DIR", help="a MovieLens directory, if needed")
    reproduce.add_argument(
        "--json", type=writable, metavar="FILE", help="write machine, versions, seed and rows"
    )
    reproduce.add_argument("--keep", type=Path, metavar="DIR", help="tables 1 to 5: finished runs, to go on")
    reproduce.set_defaults(run=_reproduce)
    return found


def _bench(parsed: argparse.Namespace) -> int:
    if parsed.list or parsed.name is None:
        _list(BENCHMARKS)
        return 0 if parsed.list else 2
    run = import_module(f"studies.bench.{parsed.name.replace('-', '_')}").run
    options = {name: getattr(parsed, name) for name in REFUSALS if getattr(parsed, name) is not None}
    for name in options:
        if name not in signature(run).parameters:
            raise ShortlistError(f"--{name}: {REFUSALS[name].format(parsed.name)}")
    with _timed():
        found = run(parsed.quick, **options)
    print(certainty(found))
    write(parsed.json, found)
    return int(found.get("failed", False))


def certainty(found: Mapping[str, Any]) -> str:
    """One line that says how sure the figures of a benchmark are. ``found``: its record."""
    columns = ERRORS.get(found["benchmark"], {})
    told = [
        f"{column} is {what}"
        for column, what in columns.items()
        if any(isfinite(row[column]) for row in found["rows"] if row.get(column) is not None)
    ]
    if not told:
        return f"one run, seed {found['seed']}: no error of its figures is known"
    return f"seed {found['seed']}; {', '.join(told)}"


def _reproduce(parsed: argparse.Namespace) -> int:
    if parsed.list or parsed.name is None:
        _list({name: text for name, (_, text) in sorted(REPRODUCTIONS.items())})
        return 0 if parsed.list else 2
    run = import_module(f"studies.{REPRODUCTIONS[parsed.name][0]}").run
    options = {"keep": parsed.keep} if parsed.keep is not None else {}
    with _timed():
        found = run(parsed.name, parsed.quick, parsed.data, **options)
    write(parsed.json, found)
    return 0


def _list(texts: Mapping[str, str]) -> None:
    for name, text in texts.items():
        seconds = QUICK_S[name]
        print(f"{name:26} {f'{seconds} s' if seconds < 60 else f'{seconds / 60:.0f} min':>6}  {text}")
    print(_LIST_END)


@contextmanager
def _timed() -> Iterator[None]:
    """Say how long it took."""
    began = time.monotonic()
    yield
    print(f"took {time.monotonic() - began:,.0f} s", file=sys.stderr)
