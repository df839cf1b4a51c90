"""Commands that call a running service: files in and out, explanations and moves."""

from __future__ import annotations

import argparse
import sys
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

from app.platform import plugins
from app.platform.command_line import (
    HISTORY_COLUMNS,
    Command,
    Parser,
    add_history_options,
    add_service,
    connect,
    flag_of,
    given_options,
    history_options,
)
from app.platform.errors import ShortlistError
from app.platform.phrases import counted

LAKE = "shortlist-lake (extra lake)"
EMBEDDINGS = "shortlist-embeddings"
PLUGIN_COMMANDS = {
    "begin": EMBEDDINGS,
    "embed": EMBEDDINGS,
    "evaluate": "shortlist-evaluation",
    "ingest": "shortlist-streams (extra kafka)",
    "mcp": "shortlist-mcp (extra mcp)",
    "personalizer": "shortlist-personalizer (extra personalizer)",
    "rebuild": LAKE,
    "upgrade": "shortlist-upgrade",
}
"""Commands of packages that may not be installed, and these packages."""

TABLE_FLAGS = {
    "id", "features", "metadata", "text", "encoding", "encode", "reduce", "dry_run", "skip_bad",
    "bad_as_missing", "tidy", "replace_features",
}  # fmt: skip
EXPORTS = {"catalogue": "export_catalogue", "learners": "export_learners", "log": "export_log"}


def add_client_commands(commands: argparse._SubParsersAction[Parser]) -> None:
    """``import``, ``export``, ``explain`` and ``move``."""
    _import_command(commands)
    _export_command(commands)
    _explain_command(commands)
    _move_command(commands)


def server_module(name: str) -> Any:
    """A module of this package: each command loads what it needs, and no other waits for it."""
    return import_module(f"server.{name}")


def refuse_without(name: str, parsed: argparse.Namespace) -> NoReturn:  # noqa: ARG001 - as every command
    command, package = {"export": "export --partition day"}.get(name, name), PLUGIN_COMMANDS.get(name, LAKE)
    folder = package.split()[0].removeprefix("shortlist-")
    raise ShortlistError(
        f"{command} needs the package {package}: in a checkout pip install -e plugins/{folder}; "
        f"where {plugins.VARIABLE} is set, name it there"
    )


def _import_command(commands: argparse._SubParsersAction[Parser]) -> None:
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
    add_history_options(history, table)
    history.add_argument(
        "--event-column",
        metavar="COLUMN",
        help="the event_id of choices: rows are their rewards, of the first arm without --arm-column",
    )
    load.add_argument(
        "--replace-features",
        action="store_true",
        help="also where they have little to do with those that bandits have learned from",
    )
    add_service(load, "admin, or for --history observe, reward with --event-column")
    load.set_defaults(run=_import)


def _export_command(commands: argparse._SubParsersAction[Parser]) -> None:
    export = commands.add_parser("export", help="write a catalogue, learners or a decision log into a file")
    export.add_argument("what", choices=sorted(EXPORTS))
    export.add_argument("name", metavar="NAME", help="the catalogue, or the bandit")
    export.add_argument("--out", required=True, metavar="FILE", help="a new file, see import; or a lake")
    add_service(export, "read")
    export.set_defaults(run=_export)


def _explain_command(commands: argparse._SubParsersAction[Parser]) -> None:
    explain = commands.add_parser("explain", help="say why a logged decision showed these arms")
    explain.add_argument("decision", metavar="DECISION", help="its token; - reads it from standard input")
    explain.add_argument("--bandit", required=True, metavar="NAME", help="whose decision it is")
    add_service(explain, "read")
    explain.set_defaults(run=_explain)


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


def _import(parsed: argparse.Namespace) -> None:
    from threadpoolctl import threadpool_limits  # noqa: PLC0415 - as above

    import shortlist_files as files  # noqa: PLC0415 - as above

    threadpool_limits(1)  # several threads wait for each other busily, and take twice the time or more
    _check_files(parsed)
    of_table = TABLE_FLAGS & given_options(parsed)
    of_history = {f"{name}_column" for name in (*HISTORY_COLUMNS, "event")} & given_options(parsed)
    if parsed.learners and (of_table or of_history or parsed.history):
        raise ShortlistError("--learners: takes files of learners alone, without options of tables")
    if of_history and not parsed.history:
        raise ShortlistError(f"{flag_of(min(of_history))}: belongs to --history")
    with connect(parsed) as client:
        if parsed.learners:
            print(files.import_learners(client, parsed.name, parsed.files))
        elif parsed.history:
            if foreign := of_table - {"encoding", "dry_run", "skip_bad"}:
                flag = flag_of(min(foreign))
                raise ShortlistError(f"{flag}: belongs to an import of arms, and not to --history")
            options = history_options(parsed, "value_column")
            lines = files.import_history(client, parsed.name, parsed.files, options)
            print("\n".join(lines))
        else:
            importing = files.ImportOptions(
                parsed.id or "id", parsed.features, parsed.metadata, parsed.encoding, tuple(parsed.text),
                tuple(parsed.bad_as_missing or ()), parsed.encode, parsed.reduce, parsed.dry_run,
                parsed.skip_bad or 0, parsed.replace_features, parsed.tidy,
            )  # fmt: skip
            print("\n".join(files.import_arms(client, parsed.name, parsed.files, importing)))


def _check_files(parsed: argparse.Namespace) -> None:
    if not parsed.files:
        raise ShortlistError("FILE: name at least one file, before the options")
    if parsed.bad_as_missing == []:
        parsed.bad_as_missing = ["*"]
    for name in ("skip_bad", "reduce"):
        if getattr(parsed, name) is not None and getattr(parsed, name) < 1:
            raise ShortlistError(f"{flag_of(name)}: must be at least 1")


def _export(parsed: argparse.Namespace) -> int | None:
    import shortlist_files as files  # noqa: PLC0415 - as above

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
