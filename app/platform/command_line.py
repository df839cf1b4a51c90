"""Shared parts of the commands: arguments, the file for a result, and tables as text."""

from __future__ import annotations

import argparse
import json
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from app.platform.errors import ShortlistError
from app.platform.settings import Settings

if TYPE_CHECKING:
    from shortlist_client import Client
    from shortlist_files import HistoryOptions

REFUSED = 2
TIMEOUT_S = 120.0
HISTORY_COLUMNS = {
    "key": "who it was, of a bandit with keys",
    "arm": "what was shown",
    "value": "what came of it: a number, or true and false",
    "at": "when it was: a time, or seconds, ms, us or ns since 1970",
}
"""The columns of a history, and what they say."""


class Command(ABC):
    """A plug-in's command of ``shortlist``, under the name of its entry point.

    A command ``export.NAME`` is run by ``shortlist export log … --partition NAME``. It has the options of
    ``export``, and its own.

    ``summary``: a few words, for ``shortlist --help``.
    """

    summary: ClassVar[str] = ""

    @abstractmethod
    def add_arguments(self, parser: argparse.ArgumentParser) -> None: ...

    @abstractmethod
    def run(self, given: argparse.Namespace) -> int | None:
        """Run the command; return the exit status. Raises ShortlistError, whose detail is printed as one
        line.
        """


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line, as every other error; ``--help`` tells more."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        """A list of files may also follow options: argparse takes it for empty where one stands before it."""
        parsed, unparsed = super().parse_known_args(args, namespace)
        for action in self._get_positional_actions():
            if action.nargs == argparse.ZERO_OR_MORE:
                words = [word for word in unparsed if not word.startswith("-")]
                getattr(parsed, action.dest).extend(self._get_value(action, word) for word in words)
                unparsed = [word for word in unparsed if word.startswith("-")]
        return parsed, unparsed

    def error(self, message: str) -> NoReturn:
        self.exit(REFUSED, f"{self.prog.replace(' ', ': ', 1)}: {message}\n")


def add_settings(parser: argparse.ArgumentParser, *names: str) -> None:
    """Options for these settings of the service; ``settings_of`` reads them."""
    for name in names:
        flag = "--" + name.replace("_", "-")
        default = Settings.model_fields[name].default
        shown = f" Default: {default}." if default is not None else ""
        parser.add_argument(flag, default=None, help=description(name) + shown)


def description(name: str) -> str:
    """The description of a setting."""
    return Settings.model_fields[name].description or ""


def settings_of(parsed: argparse.Namespace) -> Settings:
    """The settings, those that were given as options before those of the environment."""
    options = {name: getattr(parsed, name, None) for name in Settings.model_fields}
    return Settings(**{name: value for name, value in options.items() if value is not None})


def add_service(parser: argparse.ArgumentParser, scope: str = "admin") -> None:
    """``--url`` and ``--key`` of a running service; ``connect`` reads them. ``scope``: what the key needs."""
    url = os.environ.get("SHORTLIST_URL", "http://127.0.0.1:8080")
    parser.add_argument("--url", default=url, help="of the service. Default: SHORTLIST_URL, or this machine.")
    add_key(parser, scope)


def add_key(parser: argparse.ArgumentParser, scope: str) -> None:
    """``--key`` alone."""
    key = os.environ.get("SHORTLIST_KEY") or None
    parser.add_argument("--key", default=key, help=f"an API key of scope {scope}. Default: SHORTLIST_KEY.")


@contextmanager
def connect(parsed: argparse.Namespace) -> Iterator[Client]:
    """A client of the service at ``--url``. Its errors become a ShortlistError of one line."""
    from shortlist_client import Client, Retry  # noqa: PLC0415 - other commands need not load it

    retry = Retry(total_s=TIMEOUT_S)
    with client_errors(), Client(parsed.url, parsed.key, timeout_s=TIMEOUT_S, retry=retry) as client:
        yield client


@contextmanager
def client_errors() -> Iterator[None]:
    """Errors of the client, and of its files, become those of the command."""
    from shortlist_client import ShortlistError as ClientError  # noqa: PLC0415 - as above

    try:
        yield
    except ClientError as error:
        raise ShortlistError(" ".join(str(error).split())) from None


def add_history_options(columns: argparse._ActionsContainer, table: argparse._ActionsContainer) -> None:
    """The columns of a history, and what is the same of all tables."""
    for name, text in HISTORY_COLUMNS.items():
        columns.add_argument(f"--{name}-column", metavar="COLUMN", help=text)
    table.add_argument(
        "--encoding", metavar="NAME", help="of CSV. Default: UTF-8 or UTF-16, else Windows-1252."
    )
    table.add_argument(
        "--skip-bad", type=int, metavar="N", help="leave out up to N bad rows, and write them to FILE.bad.csv"
    )


def history_options(parsed: argparse.Namespace, *needed: str) -> HistoryOptions:
    """``needed``: columns that must be named, besides that of arms; none of them where events are named."""
    import shortlist_files as files  # noqa: PLC0415 - as above

    event = getattr(parsed, "event_column", None)  # an option of imports alone
    for name in ("arm_column", *needed) if event is None else ():
        if getattr(parsed, name) is None:
            raise ShortlistError(f"{flag_of(name)}: --history needs it")
    return files.HistoryOptions(
        parsed.arm_column,
        parsed.value_column,
        parsed.key_column,
        parsed.at_column,
        parsed.encoding,
        parsed.dry_run,
        parsed.skip_bad or 0,
        event,
    )


def given_options(parsed: argparse.Namespace) -> set[str]:
    """The options that were given."""
    return {name for name, value in vars(parsed).items() if value not in (None, False, [])}


def flag_of(name: str) -> str:
    return "--" + name.replace("_", "-")


def seconds(text: str) -> int:
    """A span of time: 90 or 90s, 30m, 1h, 7d."""
    parsed = re.fullmatch(r"([0-9]{1,9})([smhd]?)", text)
    if parsed is None:
        raise argparse.ArgumentTypeError("must be seconds, or a number and s, m, h or d, such as 1h")
    return int(parsed[1]) * {"": 1, "s": 1, "m": 60, "h": 3_600, "d": 86_400}[parsed[2]]


def writable(name: str) -> Path:
    """A file that can be written: found out before the long work, not after it."""
    try:
        Path(name).open("a").close()
    except OSError as error:
        raise argparse.ArgumentTypeError(f"{name} cannot be written: {error.strerror}") from None
    return Path(name)


def write(path: Path | None, result: dict[str, Any]) -> None:
    if path is not None:
        path.write_text(json.dumps(result, indent=1) + "\n")


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Aligned text: one line a row, the columns of the first."""
    if not rows:
        return "(no rows)"
    columns = list(rows[0])
    cells = [columns, *([_text(row.get(column)) for column in columns] for row in rows)]
    widths = [max(len(line[column_number]) for line in cells) for column_number in range(len(columns))]
    return "\n".join(
        "  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in cells
    )


def _text(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1_000 else f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
