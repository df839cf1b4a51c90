"""Commands that call a running service: files in and out, explanations, evaluations and moves."""

from __future__ import annotations

import argparse
import os
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from app.platform import plugins
from app.platform.command_line import (
    Command,
    Parser,
    add_service,
    client_errors,
    connect,
    writable,
    write,
)
from app.platform.errors import ShortlistError
from app.platform.phrases import counted

if TYPE_CHECKING:
    from shortlist_client.files import HistoryOptions

LAKE = "shortlist-lake (extra lake)"
PLUGIN_COMMANDS = {"ingest": "shortlist-streams (extra kafka)", "rebuild": LAKE}
"""Commands of packages that only some users install, and these packages."""

HISTORY_COLUMNS = {
    "key": "who it was, of a bandit with keys",
    "arm": "what was shown",
    "value": "what came of it: a number, or true and false",
    "at": "when it was: a time, or seconds, ms, us or ns since 1970",
}
TABLE_FLAGS = {
    "id", "features", "metadata", "text", "encoding", "encode", "reduce", "dry_run", "skip_bad",
    "bad_as_missing", "tidy",
}  # fmt: skip
EXPORTS = {"catalogue": "export_catalogue", "learners": "export_learners", "log": "export_log"}


def add_client_commands(commands: argparse._SubParsersAction[Parser]) -> None:
    """``import``, ``export``, ``explain``, ``evaluate``, ``move``, ``embed`` and ``begin``."""
    _file_commands(commands)
    _move_command(commands)
    _embed_command(commands)
    _begin_command(commands)


def server_module(name: str) -> Any:
    """A module of this package: each command loads what it needs, and no other waits for it."""
    return import_module(f"server.{name}")


def refuse_without(name: str, parsed: argparse.Namespace) -> NoReturn:  # noqa: ARG001 - as every command
    command, package = {"export": "export --partition day"}.get(name, name), PLUGIN_COMMANDS.get(name, LAKE)
    raise ShortlistError(
        f"{command} needs the package {package}, installed, and not left out by {plugins.VARIABLE}"
    )


def _file_commands(commands: argparse._SubParsersAction[Parser]) -> None:
    load = commands.add_parser(
        "import", help="put files of arms into a catalogue, or a history or learners into a bandit"
    )
    load.add_argument("name", metavar="NAME", help="the catalogue, or the bandit")
    load.add_argument(
        "files", nargs="*", type=Path, metavar="FILE", help="CSV, NDJSON, Parquet or NPY; or a folder of such"
    )
    load.add_argument("--learners", action="store_true", help="NAME is a bandit, the files are of learners")
    table = load.add_argument_group("tables as you have them")
    table.add_argument("--id", metavar="COLUMN", help="the column of the arms' ids. Default: id.")
    table.add_argument(
        "--features",
        metavar="COLUMNS",
        help="columns by name or pattern, such as 'emb_*'; or an .npy file, row by row beside the table",
    )
    table.add_argument(
        "--metadata", type=Path, metavar="FILE", help="a table of more columns, by the same ids"
    )
    table.add_argument(
        "--text", action="append", default=[], metavar="COLUMN", help="a column that stays text"
    )
    table.add_argument(
        "--encode", action="store_true", help="make the catalogue: its features are encoded from the columns"
    )
    table.add_argument(
        "--reduce", type=int, metavar="N", help="make the catalogue: N principal components of the embeddings"
    )
    table.add_argument("--dry-run", action="store_true", help="check, show what would be sent of three rows")
    table.add_argument(
        "--bad-as-missing", nargs="*", metavar="COLUMN",
        help="columns whose bad cells are taken for missing: names or patterns, without any all columns",
    )  # fmt: skip
    table.add_argument("--tidy", action="store_true", help="join values that differ only in case or blanks")
    history = load.add_argument_group("history")
    history.add_argument(
        "--history", action="store_true", help="NAME is a bandit, the rows are what it learns"
    )
    _add_history_options(history, table)
    load.add_argument(
        "--replace-features",
        action="store_true",
        help="also where they have little to do with those that bandits have learned from",
    )
    add_service(load, "admin, or observe for --history")
    load.set_defaults(run=_import)

    export = commands.add_parser("export", help="write a catalogue, learners or a decision log into a file")
    export.add_argument("what", choices=sorted(EXPORTS))
    export.add_argument("name", metavar="NAME", help="the catalogue, or the bandit")
    export.add_argument("--out", required=True, metavar="FILE", help="a new file, see import; or a lake")
    add_service(export, "read")
    export.set_defaults(run=_export)

    explain = commands.add_parser("explain", help="say why a logged decision showed these arms")
    explain.add_argument("decision", metavar="DECISION", help="its token; - reads it from standard input")
    explain.add_argument("--bandit", required=True, metavar="NAME", help="whose decision it is")
    add_service(explain, "read")
    explain.set_defaults(run=_explain)
    _evaluate_command(commands)


def _add_history_options(columns: argparse._ActionsContainer, table: argparse._ActionsContainer) -> None:
    """The columns of a history, and what is the same of all tables."""
    for name, text in HISTORY_COLUMNS.items():
        columns.add_argument(f"--{name}-column", metavar="COLUMN", help=text)
    table.add_argument(
        "--encoding", metavar="NAME", help="of CSV. Default: UTF-8 or UTF-16, else Windows-1252."
    )
    table.add_argument(
        "--skip-bad", type=int, metavar="N", help="leave out up to N bad rows, and write them to FILE.bad.csv"
    )


def _evaluate_command(commands: argparse._SubParsersAction[Parser]) -> None:
    evaluate = commands.add_parser("evaluate", help="what a policy would have earned on an exported log")
    evaluate.add_argument(
        "log", type=Path, metavar="LOG", help="an exported log, .ndjson or .parquet, or see --format"
    )
    evaluate.add_argument(
        "--policy", required=True, metavar="JSON", help='settings of a bandit: \'{"policy": "softmax"}\''
    )
    evaluate.add_argument(
        "--catalogue", type=Path, required=True, metavar="FILE", help="its arms, as export writes them"
    )
    evaluate.add_argument("--estimators", help="of ips, snips, dr; separated by commas. Default: all.")
    evaluate.add_argument("--json", type=writable, metavar="FILE", help="write what the service would answer")
    evaluate.add_argument(
        "--learners",
        choices=("before", "now"),
        default="before",
        help="weigh a decision with what was learned before it, or with all of the log",
    )
    evaluate.add_argument(
        "--learners-from",
        type=Path,
        metavar="FILE",
        help="what the learners know today, as export writes it, where the log does not say all",
    )
    evaluate.add_argument(
        "--priors",
        type=Path,
        metavar="FILE",
        help="versions of a learned prior, as export writes them beside a log; without it one is fitted "
        "before each block of the log from what came before",
    )
    evaluate.add_argument(
        "--logged-by",
        metavar="JSON",
        help="settings of the sub_ts or linear_ts that wrote the log: then its propensities are estimated by "
        "draws; without it decisions without propensities are left out",
    )
    evaluate.add_argument(
        "--format",
        choices=("shortlist", "vw-dsjson", "table"),
        default="shortlist",
        help="whose log it is: of a bandit; JSON lines of Vowpal Wabbit; or a table with the columns action, "
        "probability, reward, and perhaps actions, time, key and those of a context",
    )
    evaluate.add_argument(
        "--arm-field",
        default="id",
        metavar="NAME",
        help="of vw-dsjson: the feature of an action that is the id of its arm. Default: id",
    )
    evaluate.set_defaults(run=_evaluate)


def _move_command(commands: argparse._SubParsersAction[Parser]) -> None:
    move = commands.add_parser("move", help="move a bandit to another catalogue, with what its learners know")
    move.add_argument("bandit", metavar="BANDIT")
    move.add_argument("catalogue", metavar="CATALOGUE", help="the same arms, with other features")
    move.add_argument(
        "--carry",
        choices=("map", "none"),
        default="map",
        help="how learners come along. Default: map, which refuses features that have too little in common.",
    )
    move.add_argument("--dry-run", action="store_true", help="say what it would do, and change nothing")
    add_service(move)
    move.set_defaults(run=_move)


def _embed_command(commands: argparse._SubParsersAction[Parser]) -> None:
    embed = commands.add_parser(
        "embed", help="make a catalogue whose features are what people like, from tables of clicks"
    )
    embed.add_argument("--history", nargs="+", type=Path, metavar="FILE", help="as of import --history")
    embed.add_argument("--catalogue", required=True, metavar="NEW", help="the catalogue to make")
    embed.add_argument("--from", dest="source", metavar="OLD", help="whose arms it has, and follows")
    embed.add_argument(
        "--bandit", metavar="BANDIT", help="judge its own log, without --history, and move it if that gains"
    )
    embed.add_argument(
        "--dim",
        type=_dim,
        metavar="N",
        help="numbers of an arm. Default: auto, as many as are real, from 32 on; 8 with --bandit.",
    )
    embed.add_argument(
        "--signal", metavar="SIGNAL", help="with --bandit: judge this one. Default: the weighted sum of all."
    )
    _add_history_options(embed, embed)
    embed.add_argument(
        "--liked",
        type=float,
        metavar="VALUE",
        help="values from here on mean liked. Default: all above 0, where some are not.",
    )
    embed.add_argument(
        "--since",
        metavar="FIELD",
        help="metadata that says when an arm came: newer ones were not passed over",
    )
    embed.add_argument(
        "--without-prior",
        action="store_true",
        help="keep nothing of what the history says of keys, with which new bandits begin",
    )
    embed.add_argument("--dry-run", action="store_true", help="say what it would be, and make nothing")
    embed.add_argument("--then-move", metavar="BANDIT", help="move this bandit to it, with what it learned")
    add_service(embed)
    embed.set_defaults(run=_embed)


def _begin_command(commands: argparse._SubParsersAction[Parser]) -> None:
    begin = commands.add_parser(
        "begin", help="from a table of items and one of clicks to a bandit that knows both"
    )
    begin.add_argument("name", metavar="NAME", help="of the bandit, and of its catalogue")
    begin.add_argument("--items", required=True, type=Path, metavar="FILE", help="a table with a row an item")
    begin.add_argument("--id", required=True, metavar="COLUMN", help="the column of their ids")
    begin.add_argument(
        "--history", required=True, nargs="+", type=Path, metavar="FILE", help="a table of clicks"
    )
    begin.add_argument("--key", required=True, metavar="COLUMN", help="who it was")
    begin.add_argument("--arm", required=True, metavar="COLUMN", help="the id of the item")
    begin.add_argument("--value", metavar="COLUMN", help="what came of it. Default: each row is a like.")
    begin.add_argument("--at", metavar="COLUMN", help="when it was")
    begin.add_argument(
        "--liked", type=float, metavar="N", help="values from here on mean liked, as of ratings"
    )
    begin.add_argument(
        "--features", metavar="BLOCKS", help="of behaviour,table,likes: fewer of them. Default: all three."
    )
    begin.add_argument("--dry-run", action="store_true", help="say what it would be worth, and make nothing")
    url = os.environ.get("SHORTLIST_URL", "http://127.0.0.1:8080")
    begin.add_argument("--url", default=url, help="of the service. Default: SHORTLIST_URL, or this machine.")
    begin.add_argument("--api-key", metavar="KEY", help="of scope admin. Default: SHORTLIST_KEY.")
    begin.set_defaults(run=_begin)


def _begin(parsed: argparse.Namespace) -> None:
    from threadpoolctl import threadpool_limits  # noqa: PLC0415 - as above

    from shortlist.embedding.blocks import BLOCKS  # noqa: PLC0415 - as above
    from shortlist_client import files  # noqa: PLC0415 - as above

    threadpool_limits(1)
    blocks = tuple((parsed.features or ",".join(BLOCKS)).split(","))
    if not set(blocks) <= set(BLOCKS) or set(blocks) == {"table"}:
        raise ShortlistError(f"--features: must be some of {','.join(BLOCKS)}, and more than table")
    if parsed.liked is not None and parsed.value is None:
        raise ShortlistError("--liked: name the column of these values with --value")
    history = files.HistoryOptions(parsed.arm, parsed.value, parsed.key, parsed.at, dry_run=parsed.dry_run)
    beginning = server_module("beginning")
    options = beginning.BeginOptions(parsed.items, parsed.id, parsed.history, history, blocks, parsed.liked)
    parsed.key = parsed.api_key or os.environ.get("SHORTLIST_KEY") or None
    with connect(parsed) as client:
        for line in beginning.begin(client, parsed.name, options):
            print(line, flush=True)


def _dim(text: str) -> int | None:
    if text == "auto":
        return None
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError("must be a number, or auto") from None


def _import(parsed: argparse.Namespace) -> None:
    from threadpoolctl import threadpool_limits  # noqa: PLC0415 - as above

    from shortlist_client import files  # noqa: PLC0415 - as above

    threadpool_limits(1)  # several threads wait for each other busily, and take twice the time or more
    _check_files(parsed)
    of_table = TABLE_FLAGS & _given(parsed)
    of_history = {f"{name}_column" for name in HISTORY_COLUMNS} & _given(parsed)
    if parsed.learners and (of_table or of_history or parsed.history):
        raise ShortlistError("--learners: takes files of learners alone, without options of tables")
    if of_history and not parsed.history:
        raise ShortlistError(f"{_flag(min(of_history))}: belongs to --history")
    with connect(parsed) as client:
        if parsed.learners:
            print(files.import_learners(client, parsed.name, parsed.files))
        elif parsed.history:
            if foreign := of_table - {"encoding", "dry_run", "skip_bad"}:
                flag = _flag(min(foreign))
                raise ShortlistError(f"{flag}: belongs to an import of arms, and not to --history")
            options = _history(parsed, "value_column")
            lines = files.import_history(client, parsed.name, parsed.files, options)
            print("\n".join(lines))
        elif not of_table and files.are_exports(parsed.files):
            replace = parsed.replace_features
            print(files.import_arms(client, parsed.name, parsed.files, replace_features=replace))
        else:
            table = files.TableOptions(
                parsed.id or "id", parsed.features, parsed.metadata, parsed.encoding, tuple(parsed.text),
                tuple(parsed.bad_as_missing or ()),
            )  # fmt: skip
            importing = files.ImportOptions(
                table, parsed.encode, parsed.reduce, parsed.dry_run, parsed.skip_bad or 0,
                parsed.replace_features, parsed.tidy,
            )  # fmt: skip
            print("\n".join(files.import_tables(client, parsed.name, parsed.files, importing)))


def _check_files(parsed: argparse.Namespace) -> None:
    if not parsed.files and parsed.metadata is None:
        raise ShortlistError("FILE: name at least one file, before the options")
    if parsed.bad_as_missing == []:
        parsed.bad_as_missing = ["*"]
    for name in ("skip_bad", "reduce"):
        if getattr(parsed, name) is not None and getattr(parsed, name) < 1:
            raise ShortlistError(f"{_flag(name)}: must be at least 1")


def _given(parsed: argparse.Namespace) -> set[str]:
    """The options that were given."""
    return {name for name, value in vars(parsed).items() if value not in (None, False, [])}


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _history(parsed: argparse.Namespace, *needed: str) -> HistoryOptions:
    """``needed``: columns that must be named, besides that of arms."""
    from shortlist_client import files  # noqa: PLC0415 - as above

    for name in ("arm_column", *needed):
        if getattr(parsed, name) is None:
            raise ShortlistError(f"{_flag(name)}: --history needs it")
    return files.HistoryOptions(
        parsed.arm_column,
        parsed.value_column,
        parsed.key_column,
        parsed.at_column,
        parsed.encoding,
        parsed.dry_run,
        parsed.skip_bad or 0,
    )


def _export(parsed: argparse.Namespace) -> int | None:
    from shortlist_client import files  # noqa: PLC0415 - as above

    if parsed.partition is not None:
        if parsed.what != "log":
            raise ShortlistError(f"--partition: a log can be partitioned, and no {parsed.what}")
        if parsed.partition not in parsed.partitions:
            refuse_without("export", parsed)
        command: Command = parsed.partitions[parsed.partition]
        return command.run(parsed)
    with connect(parsed) as client:
        print(getattr(files, EXPORTS[parsed.what])(client, parsed.name, Path(parsed.out)))
    return None


def _explain(parsed: argparse.Namespace) -> None:
    decision = sys.stdin.read().strip() if parsed.decision == "-" else parsed.decision
    with connect(parsed) as client:
        print(server_module("explaining").explain(client, parsed.bandit, decision))


def _move(parsed: argparse.Namespace) -> None:
    with connect(parsed) as client:
        done = client.move_bandit(
            parsed.bandit, catalogue=parsed.catalogue, carry=parsed.carry, dry_run=parsed.dry_run
        )
    is_refused = done.warnings and done.warnings[0].startswith("it would be refused")
    verb = ("would not move" if is_refused else "would move") if parsed.dry_run else "moved"
    arms = done.arms
    learners = counted(done.learners, "learner", "learners")
    print(f"{parsed.bandit} {verb} from {done.from_} to {done.to}: {learners}, {done.carry}")
    gone, new = (counted(number, "is", "are") for number in (arms.only_from, arms.only_to))
    print(f"{counted(arms.common, 'arm', 'arms')} in common; {gone} gone, {new} new")
    if done.map is not None:
        by_log = done.map.shown == "log"
        weights = "arms count by how often they were shown" if by_log else "all arms count the same"
        print(f"the map explains {done.map.r2:.0%} of the new features; {weights}")
    if done.agreement is not None:
        print(f"estimates before and after agree: correlation {done.agreement:.2f}")
    for warning in done.warnings:
        print(f"- {warning}")


def _embed(parsed: argparse.Namespace) -> None:
    from threadpoolctl import threadpool_limits  # noqa: PLC0415 - as above

    threadpool_limits(1)
    embedding = server_module("embedding")
    if parsed.bandit is not None:
        if foreign := _given(parsed) - {"bandit", "catalogue", "dim", "signal", "url", "key", "run"}:
            raise ShortlistError(f"{_flag(min(foreign)).replace('source', 'from')}: not with --bandit")
        with connect(parsed) as client:
            print(embedding.embed_log(client, parsed.bandit, parsed.catalogue, parsed.dim, parsed.signal))
        return
    for name, flag in (("history", "--history"), ("source", "--from")):
        if getattr(parsed, name) is None:
            raise ShortlistError(f"{flag}: name it, or a --bandit whose own log is judged")
    if parsed.signal is not None:
        raise ShortlistError("--signal: only with --bandit")
    if parsed.since is not None and parsed.at_column is None:
        raise ShortlistError("--since: name the column of the times of the history with --at-column")
    with connect(parsed) as client:
        options = embedding.EmbedOptions(
            _history(parsed),
            parsed.dim,
            parsed.liked,
            parsed.then_move,
            parsed.since,
            not parsed.without_prior,
        )
        lines = embedding.embed_history(client, parsed.source, parsed.catalogue, parsed.history, options)
        for line in lines:
            print(line, flush=True)


def _evaluate(parsed: argparse.Namespace) -> None:
    with client_errors():
        result = server_module("evaluation").evaluate(
            parsed.log,
            parsed.catalogue,
            policy=parsed.policy,
            estimators=parsed.estimators,
            learners=parsed.learners,
            learners_from=parsed.learners_from,
            priors=parsed.priors,
            log_format=parsed.format,
            arm_field=parsed.arm_field,
            logged_by=parsed.logged_by,
        )
    write(parsed.json, result)
