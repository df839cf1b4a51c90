"""The ``shortlist`` command."""

from __future__ import annotations

import argparse
import gc
import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import Any, NoReturn

from pydantic import ValidationError

from app.errors import ShortlistError
from app.settings import VERSION, Settings

MOST_PROCESSES = 64
REFUSED = 2

BENCHMARKS = {
    "bounded-me": "one-shot search: BoundedME and racing beside a scan, other searches, faiss, a graph",
    "kcenter": "k representative points: sampled coordinates against vectorised exact greedy",
    "choose": "one decision in process: scan, norm-pruned, HNSW and the planner's choice",
    "context": "decisions in a context: time, regret, learning; films for new users beside peers (--data)",
    "export": "the decision log as NDJSON and Parquet: rows a second, memory",
    "churn": "queries while 200 % of the arms are replaced",
    "evaluation": "policies evaluated on a log: decisions a second beside a plain loop, memory",
    "filters": "searches among the arms that a filter lets in, beside numpy; churn; memory",
    "elimination": "the most uncertain arm: sampled stages, indexes, exact scans; stage moves",
    "slates": "slate campaigns: time per decision, samples against Exhaustive",
    "sampling": "racing samplers: errors, reads, and time against exact vectorised sampling",
    "growth": "how the time of a decision grows with the number of arms, and the exponents",
    "planner": "which index the planner chooses at 100,000 arms, next to busy neighbours",
    "regret": "regret of Sub-TS against exact Thompson sampling, on paired seeds",
}

# Options that few benchmarks have, and what is said of all others.
REFUSALS = {"seed": "the seeds of {} are fixed", "data": "{} reads no data"}

EXPORTS = {"catalogue": "export_catalogue", "learners": "export_learners", "log": "export_log"}

# name -> module and what it shows. The module's run(name, quick, data) prints and returns a record.
REPRODUCTIONS: dict[str, tuple[str, str]] = {
    "slates-crowdsourcing": ("studies.experiments.slate_crowdsourcing", "SAQM, SA-FOA, ICB: Table 2"),
    "slates-figures": ("studies.experiments.slate_figures", "SAQM, SA-FOA, ICB, Exhaustive: Figures 1 to 3"),
    "slates-bounds": (
        "studies.experiments.slate_bounds",
        "SAQM, ICB: allocations; Theorem 3, Corollary 1, Lemma 3",
    ),
    "table1": ("studies.experiments.sublinear_tables", "Sub-TS and Sub-Elim: 5,000 and 100,000 arms"),
    "table1-million": ("studies.experiments.sublinear_tables", "Sub-TS: 1,000,000 arms"),
    "table2": ("studies.experiments.sublinear_tables", "Sub-TS and Sub-Elim: the length of the shortlist"),
    "table3": ("studies.experiments.sublinear_tables", "Sub-TS and Sub-Elim: films for MovieLens users (--data)"),
    "table4": ("studies.experiments.sublinear_tables", "Sub-TS: arms come and go"),
    "table5": ("studies.experiments.sublinear_tables", "Sub-TS and Sub-Elim: 2, 10 and 50 new arms at a time"),
    "figure1-bounded-me": ("studies.experiments.bounded_me_guarantee", "BoundedME's suboptimality below epsilon"),
    "figures2to4-bounded-me": (
        "studies.bench.bounded_me_figures",
        "precision against speed-up of one-shot search (--data: also on factors of films)",
    ),
    "adaptive-solvers": (
        "studies.experiments.adaptive_solvers",
        "Theorem 3.3 with solvers that keep its premise, beside graphs",
    ),
    "remark1-bounded-me": ("studies.experiments.convex_hull", "arms that are corners of their convex hull"),
    "kcenter-figure1": ("studies.experiments.kcenter_figure", "DS-UCB: queries and errors against C_alpha"),
    "kcenter-theorems": ("studies.experiments.kcenter_theorems", "Theorems 1 to 4 of the k-center paper: bounds"),
    "kcenter-tables": ("studies.experiments.kcenter_tables", "Tables I to VII of the k-center paper: queries"),
    "figure1-sampling": (
        "studies.experiments.sampling_figure",
        "racing samplers: errors and reads over the grid",
    ),
    "figure1e-sampling": ("studies.experiments.sampling_widths", "racing samplers: how wide their bounds are"),
    "figure2-sampling": ("studies.experiments.sampling_arch", "racing samplers: the order of an ARCH model"),
    "figure3-sampling": ("studies.experiments.sampling_coreference", "racing samplers: who is who among authors"),
    "widths-without-replacement": ("studies.experiments.widths", "the bounds that races can stand on"),
    "table1-sampling": ("studies.experiments.sampling_table", "B_Normal beside Table 1 of the racing samplers"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command. Exit status: 0, it went well; 1, it was done, and something is wrong; 2, it cannot be
    done as it was asked for, and one line says why.
    """
    parsed = _parser().parse_args(arguments)
    try:
        return int(parsed.run(parsed) or 0)
    except ShortlistError as error:
        print(f"shortlist: {error.detail}", file=sys.stderr)
    except ValidationError as error:
        wrong = [(".".join(map(str, item["loc"])), item["msg"]) for item in error.errors(include_input=False)]
        print("shortlist:", "; ".join(f"setting {name}: {rule}" for name, rule in wrong), file=sys.stderr)
    except KeyboardInterrupt:
        print("shortlist: interrupted", file=sys.stderr)
        return 1
    return REFUSED


class Parser(argparse.ArgumentParser):
    """What is wrong with the arguments is one line, as every other error; ``--help`` tells the rest."""

    def error(self, message: str) -> NoReturn:
        self.exit(REFUSED, f"{self.prog.replace(' ', ': ', 1)}: {message}\n")


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="shortlist", description="An online linear-bandit recommendation service.")
    parser.add_argument("--version", action="version", version=f"shortlist {VERSION}")
    commands = parser.add_subparsers(required=True, metavar="command")

    serve = commands.add_parser("serve", help="start the service")
    _flags(serve, "host", "port", "data_dir", "redis_url", "log_level")
    serve.add_argument(
        "--workers",
        type=int,
        default=1,
        help="Service processes on the one address, each with all arms in memory. Default: 1.",
    )
    serve.add_argument(
        "--no-worker", action="store_const", const=False, dest="worker", help=_description("worker")
    )
    _accept_loss(serve)
    serve.set_defaults(run=_serve)

    worker = commands.add_parser("worker", help="apply rewards, for services started with --no-worker")
    worker.add_argument("--burst", action="store_true", help="apply what is there, and end")
    _flags(worker, "data_dir", "redis_url", "log_level")
    _accept_loss(worker)
    worker.set_defaults(run=_work)

    bench = commands.add_parser("bench", help="measure: ratios in one run")
    bench.add_argument("name", nargs="?", choices=sorted(BENCHMARKS), help="which benchmark")
    bench.add_argument("--list", action="store_true", help="list the benchmarks")
    bench.add_argument("--quick", action="store_true", help="fewer repetitions")
    bench.add_argument("--seed", type=int, help="planner: repeat the build of this seed")
    bench.add_argument("--data", type=Path, metavar="DIR", help="context, bounded-me: a MovieLens directory")
    bench.add_argument(
        "--json", type=_writable, metavar="FILE", help="write machine, versions, seed and rows"
    )
    bench.set_defaults(run=_bench)

    reproduce = commands.add_parser("reproduce", help="a paper's table or figure beside its printed numbers")
    reproduce.add_argument("name", nargs="?", choices=sorted(REPRODUCTIONS), help="which table or figure")
    reproduce.add_argument("--list", action="store_true", help="list what can be reproduced")
    reproduce.add_argument("--quick", action="store_true", help="fewer seeds")
    reproduce.add_argument("--data", type=Path, metavar="DIR", help="a MovieLens directory, if needed")
    reproduce.add_argument(
        "--json", type=_writable, metavar="FILE", help="write machine, versions, seed and rows"
    )
    reproduce.add_argument("--keep", type=Path, metavar="DIR", help="tables 1 to 5: finished runs, to go on")
    reproduce.set_defaults(run=_reproduce)

    dead = commands.add_parser("dead-letters", help="rewards that could not be learned from: list, replay")
    dead.add_argument("action", choices=("list", "replay"), help="replay puts them back into the log")
    _flags(dead, "data_dir", "redis_url", "partitions")
    dead.set_defaults(run=_dead_letters)

    replay = commands.add_parser("replay", help="compare every learner with a replay of the reward log")
    replay.add_argument("--check", action="store_true", required=True, help="compare, and change nothing")
    _flags(replay, "data_dir", "redis_url", "partitions")
    replay.set_defaults(run=_replay)

    key = commands.add_parser("key", help="make an API key: print it, and the entry to configure")
    key.add_argument("name", help="what the key is called in logs and settings")
    key.add_argument("--scopes", required=True, help="choose, reward, read, admin; separated by commas")
    key.set_defaults(run=_key)

    copy = commands.add_parser("copy", help="copy a stopped store to another server, whatever its kind")
    _flags(copy, "data_dir", "redis_url")
    copy.add_argument("--to", required=True, metavar="URL", help="the empty server to copy to")
    copy.set_defaults(run=_copy)

    _file_commands(commands)
    doctor = commands.add_parser("doctor", help="check a running or stopped installation")
    _flags(doctor, "host", "port", "data_dir", "redis_url")
    doctor.set_defaults(run=_doctor)
    return parser


def _file_commands(commands: argparse._SubParsersAction[Parser]) -> None:
    load = commands.add_parser(
        "import", help="put files of arms into a catalogue, or of learners into a bandit"
    )
    load.add_argument("name", metavar="NAME", help="the catalogue, or the bandit")
    load.add_argument("files", nargs="+", type=Path, metavar="FILE", help="the ending says of which kind")
    load.add_argument("--learners", action="store_true", help="NAME is a bandit, the files are of learners")
    _remote(load)
    load.set_defaults(run=_import)

    export = commands.add_parser("export", help="write a catalogue, learners or a decision log into a file")
    export.add_argument("what", choices=sorted(EXPORTS))
    export.add_argument("name", metavar="NAME", help="the catalogue, or the bandit")
    export.add_argument("--out", type=Path, required=True, metavar="FILE", help="a new file; see import")
    _remote(export)
    export.set_defaults(run=_export)

    explain = commands.add_parser("explain", help="say why a logged decision showed these arms")
    explain.add_argument("decision", metavar="DECISION", help="its token; - reads it from standard input")
    explain.add_argument("--bandit", required=True, metavar="NAME", help="whose decision it is")
    _remote(explain)
    explain.set_defaults(run=_explain)
    _evaluate_command(commands)


def _evaluate_command(commands: argparse._SubParsersAction[Parser]) -> None:
    evaluate = commands.add_parser("evaluate", help="what a policy would have earned on an exported log")
    evaluate.add_argument("log", type=Path, metavar="LOG", help="an exported log: .ndjson or .parquet")
    evaluate.add_argument(
        "--policy", required=True, metavar="JSON", help='settings of a bandit: \'{"policy": "softmax"}\''
    )
    evaluate.add_argument(
        "--catalogue", type=Path, required=True, metavar="FILE", help="its arms, as export writes them"
    )
    evaluate.add_argument("--estimators", help="of ips, snips, dr; separated by commas. Default: all.")
    evaluate.add_argument(
        "--json", type=_writable, metavar="FILE", help="write what the service would answer"
    )
    evaluate.add_argument(
        "--learners",
        choices=("before", "now"),
        default="before",
        help="weigh a decision with what was learned before it, or with all of the log",
    )
    evaluate.set_defaults(run=_evaluate)


def _flags(parser: argparse.ArgumentParser, *names: str) -> None:
    for name in names:
        flag = "--" + name.replace("_", "-")
        default = Settings.model_fields[name].default
        shown = f" Default: {default}." if default is not None else ""
        parser.add_argument(flag, default=None, help=_description(name) + shown)


def _remote(parser: argparse.ArgumentParser) -> None:
    url = os.environ.get("SHORTLIST_URL", "http://127.0.0.1:8080")
    parser.add_argument("--url", default=url, help="of the service. Default: SHORTLIST_URL, or this machine.")
    key = os.environ.get("SHORTLIST_KEY") or None
    parser.add_argument("--key", default=key, help="an API key of scope admin. Default: SHORTLIST_KEY.")


def _accept_loss(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--accept-loss", action="store_const", const=True, help=_description("accept_loss"))


def _description(name: str) -> str:
    return Settings.model_fields[name].description or ""


def _settings(parsed: argparse.Namespace) -> Settings:
    given = {name: getattr(parsed, name, None) for name in Settings.model_fields}
    return Settings(**{name: value for name, value in given.items() if value is not None})


@contextmanager
def _loading() -> Iterator[None]:
    """No garbage is collected meanwhile: modules make little, and to look takes a tenth of the time."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _serve(parsed: argparse.Namespace) -> None:
    if not 1 <= parsed.workers <= MOST_PROCESSES:
        raise ShortlistError(f"--workers: from 1 to {MOST_PROCESSES} processes")
    if parsed.workers == 1:
        with _loading():
            from app.runtime.serving import serve  # noqa: PLC0415 - other commands need not load the server
        serve(_settings(parsed))
    else:
        with _loading():
            from app.runtime.serving_group import serve_group  # noqa: PLC0415 - as above
        serve_group(_settings(parsed), parsed.workers)


def _work(parsed: argparse.Namespace) -> None:
    from app.runtime.serving import work  # noqa: PLC0415 - as above

    work(_settings(parsed), burst=parsed.burst)


def _dead_letters(parsed: argparse.Namespace) -> int:
    from app.runtime.administration import dead_letters  # noqa: PLC0415 - as above

    return dead_letters(_settings(parsed), replay=parsed.action == "replay")


def _replay(parsed: argparse.Namespace) -> int:
    from app.runtime.administration import check_replay  # noqa: PLC0415 - as above

    return check_replay(_settings(parsed))


def _key(parsed: argparse.Namespace) -> None:
    from app.runtime.administration import make_key  # noqa: PLC0415 - as above

    make_key(parsed.name, parsed.scopes.split(","))


def _copy(parsed: argparse.Namespace) -> int:
    from app.runtime.administration import copy_to  # noqa: PLC0415 - as above

    return copy_to(_settings(parsed), parsed.to)


def _import(parsed: argparse.Namespace) -> None:
    from app.files import importing  # noqa: PLC0415 - as above
    from app.files.service import Service  # noqa: PLC0415 - as above

    act = importing.import_learners if parsed.learners else importing.import_arms
    with closing(Service(parsed.url, parsed.key)) as service:
        print(act(service, parsed.name, parsed.files))


def _export(parsed: argparse.Namespace) -> None:
    from app.files import exporting  # noqa: PLC0415 - as above
    from app.files.service import Service  # noqa: PLC0415 - as above

    with closing(Service(parsed.url, parsed.key)) as service:
        print(getattr(exporting, EXPORTS[parsed.what])(service, parsed.name, parsed.out))


def _explain(parsed: argparse.Namespace) -> None:
    from app.files.explaining import explain  # noqa: PLC0415 - as above
    from app.files.service import Service  # noqa: PLC0415 - as above

    decision = sys.stdin.read().strip() if parsed.decision == "-" else parsed.decision
    with closing(Service(parsed.url, parsed.key)) as service:
        print(explain(service, parsed.bandit, decision))


def _evaluate(parsed: argparse.Namespace) -> None:
    from app.runtime.evaluation import evaluate  # noqa: PLC0415 - as above

    found = evaluate(
        parsed.log,
        parsed.catalogue,
        policy=parsed.policy,
        estimators=parsed.estimators,
        learners=parsed.learners,
    )
    _write(parsed.json, found)


def _bench(parsed: argparse.Namespace) -> int:
    if parsed.list or parsed.name is None:
        for name, text in BENCHMARKS.items():
            print(f"{name:12} {text}")
        return 0 if parsed.list else 2
    run = import_module(f"studies.bench.{parsed.name.replace('-', '_')}").run
    options = {name: getattr(parsed, name) for name in REFUSALS if getattr(parsed, name) is not None}
    for name in options:
        if name not in signature(run).parameters:
            raise ShortlistError(f"--{name}: {REFUSALS[name].format(parsed.name)}")
    found = run(parsed.quick, **options)
    _write(parsed.json, found)
    return int(found.get("failed", False))


def _reproduce(parsed: argparse.Namespace) -> int:
    if parsed.list or parsed.name is None:
        for name, (_, text) in sorted(REPRODUCTIONS.items()):
            print(f"{name:24} {text}")
        return 0 if parsed.list else 2
    module, _ = REPRODUCTIONS[parsed.name]
    options = {"keep": parsed.keep} if parsed.keep is not None else {}
    _write(parsed.json, import_module(module).run(parsed.name, parsed.quick, parsed.data, **options))
    return 0


def _writable(name: str) -> Path:
    """A file that can be written: found out before the long work, not after it."""
    try:
        Path(name).open("a").close()
    except OSError as error:
        raise argparse.ArgumentTypeError(f"{name} cannot be written: {error.strerror}") from None
    return Path(name)


def _write(path: Path | None, result: dict[str, Any]) -> None:
    if path is not None:
        path.write_text(json.dumps(result, indent=1) + "\n")


def _doctor(parsed: argparse.Namespace) -> int:
    from app.runtime.doctor import examine  # noqa: PLC0415 - as above

    return examine(_settings(parsed))
