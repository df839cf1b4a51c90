"""What the commands share: arguments, the file for a result, and tables as text."""

from __future__ import annotations

import argparse
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NoReturn

REFUSED = 2


class Command(ABC):
    """A command that a plug-in adds to ``shortlist``, under the name of its entry point.

    ``summary``: a few words, for ``shortlist --help``.
    """

    summary: ClassVar[str] = ""

    @abstractmethod
    def add_arguments(self, parser: argparse.ArgumentParser) -> None: ...

    @abstractmethod
    def run(self, given: argparse.Namespace) -> int | None:
        """Do it; the exit status. Raises ShortlistError, whose detail is printed as one line."""


class Parser(argparse.ArgumentParser):
    """What is wrong with the arguments is one line, as every other error; ``--help`` tells the rest."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        """A list of files may also follow options: argparse takes it for empty where one stands before it."""
        parsed, rest = super().parse_known_args(args, namespace)
        for action in self._get_positional_actions():
            if action.nargs == argparse.ZERO_OR_MORE:
                words = [word for word in rest if not word.startswith("-")]
                getattr(parsed, action.dest).extend(self._get_value(action, word) for word in words)
                rest = [word for word in rest if word.startswith("-")]
        return parsed, rest

    def error(self, message: str) -> NoReturn:
        self.exit(REFUSED, f"{self.prog.replace(' ', ': ', 1)}: {message}\n")


def seconds(text: str) -> int:
    """A span of time: 90 or 90s, 30m, 1h, 7d."""
    found = re.fullmatch(r"([0-9]{1,9})([smhd]?)", text)
    if found is None:
        raise argparse.ArgumentTypeError("must be seconds, or a number and s, m, h or d, such as 1h")
    return int(found[1]) * {"": 1, "s": 1, "m": 60, "h": 3_600, "d": 86_400}[found[2]]


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
    widths = [max(len(line[place]) for line in cells) for place in range(len(columns))]
    return "\n".join(
        "  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in cells
    )


def _text(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1_000 else f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
