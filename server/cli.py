"""The ``shortlist`` command."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Sequence
from functools import partial
from importlib import import_module
from pathlib import Path

from pydantic import ValidationError

from app.platform import plugins
from app.platform.command_line import (
    REFUSED,
    Command,
    Parser,
    add_key,
    add_settings,
    description,
    seconds,
    settings_of,
)
from app.platform.errors import ShortlistError, StartupError
from app.platform.settings import VERSION
from server.client_commands import PLUGIN_COMMANDS, add_client_commands, refuse_without, server_module

MOST_PROCESSES = 64
DIAGNOSES = ("doctor", "--version", "--help", "-h")
FILES = "shortlist_files"
PARTITION = "export."  # begins the name of a command that ``export log --partition`` runs

STUDIES = {
    "bench": "measure: ratios in one run",
    "reproduce": "a paper's table or figure beside its printed numbers",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command. Exit status: 0, it went well; 1, it was done, and something is wrong; 2, it cannot be
    done as it was asked for, and one line says why.
    """
    words = sys.argv[1:] if arguments is None else arguments
    if not words:
        command_parser().error("a command is missing; shortlist --help lists them")
    try:
        parsed = (_studies() if words[0] in STUDIES else _parser_for(words[0])).parse_args(words)
        status = int(parsed.run(parsed) or 0)
        sys.stdout.flush()
    except BrokenPipeError:  # who reads has what it wants, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes at its end
        return 1
    except ShortlistError as error:
        print(f"shortlist: {error.detail}", file=sys.stderr)
    except ValidationError as error:
        print("shortlist:", plugins.settings_problem(error), file=sys.stderr)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != FILES:
            raise
        print(f"shortlist: {words[0]} needs the package shortlist-files, installed", file=sys.stderr)
    except KeyboardInterrupt:
        print("shortlist: interrupted", file=sys.stderr)
        return 1
    else:
        return status
    return REFUSED


def _studies() -> argparse.ArgumentParser:
    """The parser of ``bench`` and ``reproduce``. Raises ShortlistError outside of a checkout."""
    checkout = Path(__file__).parents[1]
    if not (checkout / "studies").is_dir():
        raise ShortlistError(
            "bench and reproduce run in a checkout of the repository: this is an installation"
        )
    sys.path.insert(0, str(checkout))
    parser: argparse.ArgumentParser = import_module("studies.study_commands").parser()
    return parser


def _parser_for(word: str) -> argparse.ArgumentParser:
    """The parser of all commands. Raises ShortlistError: a plug-in breaks it. Commands for diagnosis work
    without.
    """
    try:
        return command_parser()
    except StartupError:
        if word not in DIAGNOSES:
            raise
        return command_parser(with_plugins=False)


def command_parser(*, with_plugins: bool = True) -> argparse.ArgumentParser:
    parser = Parser(prog="shortlist", description="An online linear-bandit recommendation service.")
    parser.add_argument("--version", action="version", version=f"shortlist {VERSION}")
    commands = parser.add_subparsers(required=True, metavar="command")

    _serving_commands(commands)
    add_client_commands(commands)
    doctor = commands.add_parser("doctor", help="check a running or stopped installation")
    add_settings(doctor, "host", "port", "data_dir", "redis_url")
    add_key(doctor, "read")
    doctor.set_defaults(run=_examine)
    _key_command(commands)
    _store_commands(commands)
    for name, text in STUDIES.items():
        commands.add_parser(name, help=text)  # ``studies.study_commands`` has their arguments
    if with_plugins:
        _plugin_commands(commands)
    return parser


def _serving_commands(commands: argparse._SubParsersAction[Parser]) -> None:
    """``serve`` and ``worker``."""
    serve = commands.add_parser("serve", help="start the service")
    add_settings(serve, "host", "port", "data_dir", "redis_url", "log_level")
    serve.add_argument(
        "--workers",
        type=int,
        default=1,
        help="Service processes on the one address; they share one copy of the arms. Default: 1.",
    )
    serve.add_argument(
        "--no-worker",
        action="store_const",
        const=False,
        dest="worker",
        help="Apply no rewards inside this process: `shortlist worker` does.",
    )
    _accept_loss(serve)
    serve.set_defaults(run=_serve)

    worker = commands.add_parser("worker", help="apply rewards, for services started with --no-worker")
    worker.add_argument("--burst", action="store_true", help="apply what is there, and end")
    add_settings(worker, "data_dir", "redis_url", "log_level")
    _accept_loss(worker)
    worker.set_defaults(
        run=lambda given: server_module("serving").work(settings_of(given), burst=given.burst)
    )


def _store_commands(commands: argparse._SubParsersAction[Parser]) -> None:
    """``dead-letters``, ``replay`` and ``copy``: of a store, beside the service or without it."""
    dead = commands.add_parser("dead-letters", help="rewards that could not be learned from: list, replay")
    dead.add_argument("action", choices=("list", "replay"), help="replay puts them back into the log")
    add_settings(dead, "data_dir", "redis_url", "partitions")
    dead.set_defaults(
        run=lambda given: asyncio.run(
            server_module("administration").dead_letters(settings_of(given), replay=given.action == "replay")
        )
    )

    replay = commands.add_parser("replay", help="compare every learner with a replay of the reward log")
    replay.add_argument("--check", action="store_true", required=True, help="compare, and change nothing")
    add_settings(replay, "data_dir", "redis_url", "partitions")
    replay.set_defaults(
        run=lambda given: asyncio.run(server_module("administration").check_replay(settings_of(given)))
    )

    copy = commands.add_parser("copy", help="copy a stopped store to another server, whatever its kind")
    add_settings(copy, "data_dir", "redis_url")
    copy.add_argument("--to", required=True, metavar="URL", help="the empty server to copy to")
    copy.set_defaults(run=lambda given: server_module("administration").copy_to(settings_of(given), given.to))


def _key_command(commands: argparse._SubParsersAction[Parser]) -> None:
    key = commands.add_parser("key", help="make an API key: print it, and the entry to configure")
    key.add_argument("name", help="what the key is called in logs and settings")
    key.add_argument(
        "--scopes", required=True, help="choose, reward, observe, read, admin; separated by commas"
    )
    key.add_argument("--bandits", metavar="NAMES", help="only these, separated by commas. Default: all.")
    key.add_argument("--catalogues", metavar="NAMES", help="only these, and those of its bandits")
    key.add_argument("--rate", metavar="N/s", help="requests a second, of each of its visitors too")
    key.add_argument(
        "--visitors", metavar="TIME", type=seconds, help="it signs passes of at most 90s, 30m, 1h or 7d"
    )
    key.add_argument("--candidates", choices=["full"], help="its passes may bring arms of their own")
    key.set_defaults(run=_make_key)


def _plugin_commands(commands: argparse._SubParsersAction[Parser]) -> None:
    partitions, export = dict[str, Command](), commands.choices["export"]
    extensions = plugins.load("commands", Command, commands.choices)  # type: ignore[type-abstract]
    for name, command in extensions.items():
        with plugins.start_errors(f"the command {name} of a plug-in cannot be added"):
            if name.startswith(PARTITION):
                command.add_arguments(export)
                partitions[name.removeprefix(PARTITION)] = command
            else:
                command.add_arguments(added := commands.add_parser(name, help=command.summary))
                added.set_defaults(run=command.run)
    export.add_argument(
        "--partition",
        choices=sorted({"day", *partitions}),
        help="of a log: --out is a folder, or an address such as s3://bucket/lake, that is brought up to now",
    )
    export.set_defaults(partitions=partitions)
    for name in (name for name in PLUGIN_COMMANDS if name not in commands.choices):
        # Without options: all that follows is read, and what is missing is said.
        absent = commands.add_parser(name, add_help=False, prefix_chars="\0")
        absent.add_argument("words", nargs="*")
        absent.set_defaults(run=partial(refuse_without, name))


def _make_key(parsed: argparse.Namespace) -> None:
    names = ("bandits", "catalogues", "rate", "visitors", "candidates")
    restrictions = {name: getattr(parsed, name) for name in names}
    chosen = {name: str(value) for name, value in restrictions.items() if value is not None}
    server_module("administration").make_key(parsed.name, parsed.scopes.split(","), chosen)


def _examine(parsed: argparse.Namespace) -> int:
    settings = settings_of(parsed)
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    url = f"http://{host}:{settings.port}"
    if parsed.host is None and parsed.port is None:
        url = os.environ.get("SHORTLIST_URL", url)  # as other commands that call a service
    return int(server_module("doctor").examine(settings, url, parsed.key))


def _accept_loss(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--accept-loss", action="store_const", const=True, help=description("accept_loss"))


def _serve(parsed: argparse.Namespace) -> None:
    if not 1 <= parsed.workers <= MOST_PROCESSES:
        raise ShortlistError(f"--workers: from 1 to {MOST_PROCESSES} processes")
    if parsed.workers == 1:
        server_module("serving").serve(settings_of(parsed))
    else:
        server_module("serving_group").serve_group(settings_of(parsed), parsed.workers)
