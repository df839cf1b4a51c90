"""Rows of arms, what the service takes of them, and errors that name a row and a column."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

import msgspec
import numpy as np
from numpy.typing import NDArray

from shortlist_client.errors import ShortlistError

Floats = NDArray[np.floating]
ROWS = 1_000  # that are held, and sent, together
NUMBERS = 1_000_000  # in their features, at most
MOST_FAULTS = 20  # of a row: an embedding may be of 4,096 columns

# What the service takes, which docs/limits.md tells and a test compares.
MAX_FEATURE = 1e6
MAX_TAGS, MAX_TAG_CHARS = 64, 128
MAX_METADATA_CHARS = 16_384
MAX_METADATA_FIELDS = 256
IDENTIFIER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}")
ID_RULE = (
    "must be 1 to 128 ASCII letters, digits or . _ : -, and begin with a letter or digit: "
    "give a hash of what is none, such as an e-mail address"
)


class FileError(ShortlistError):
    """A file that cannot be read or written, or is not as it must be: one line that says where and why."""


def wrong(path: Path, row: int | None, column: str | None, reason: str) -> NoReturn:
    """Raise FileError that names the file, the row (from 1) and the column."""
    where = [str(path), *([] if row is None else [f"row {row:,}"]), *([] if column is None else [column])]
    raise FileError(f"{': '.join(where)}: {reason}")


@dataclass(frozen=True, slots=True)
class BadRow:
    """What is wrong with a row. ``value``: for the file of bad rows alone, never for an error.

    ``may_be_missing``: the cell may be taken for missing. ``also``: other fields that are wrong.
    """

    row: int
    field: str
    reason: str
    value: object = None
    line: int | None = None
    may_be_missing: bool = False
    also: tuple[BadRow, ...] = ()

    def refuse(self, path: Path) -> FileError:
        """The error that names the row."""
        line = "" if self.line is None or self.line == self.row + 1 else f" (line {self.line:,})"
        where = f"row {self.row:,}{line}" + (f": {self.field}" if self.field else "")
        return FileError(f"{path}: {where}: {self.reason}")


def note_fault(faults: dict[int, BadRow], place: int, bad: BadRow) -> None:
    """Note what is wrong with the row at a place, beside what is known to be, up to ``MOST_FAULTS``."""
    first = faults.get(place)
    if first is None:
        faults[place] = bad
    elif len(first.also) < MOST_FAULTS:
        faults[place] = replace(first, also=(*first.also, bad))


@dataclass(slots=True)
class ArmRows:
    """Arms that follow each other in a file, and the rows between them that are bad.

    Shape: features (n, d), None where the catalogue encodes the metadata.
    """

    path: Path
    numbers: Sequence[int]
    ids: list[str]
    features: Floats | None
    tags: list[list[str]]
    metadata: list[dict[str, Any]]
    bad: list[BadRow]

    def __len__(self) -> int:
        return len(self.ids)


def metadata_fault(document: dict[str, Any]) -> str:
    """Why the service would refuse this as the metadata of an arm; "" if it takes it."""
    try:
        chars = len(msgspec.json.encode(document).decode())
        fields = _fields_in(document)
    except (ValueError, RecursionError):
        return "must be the text of a JSON object"
    if chars > MAX_METADATA_CHARS:
        return f"at most {MAX_METADATA_CHARS:,} characters"
    return f"at most {MAX_METADATA_FIELDS} fields" if fields > MAX_METADATA_FIELDS else ""


def _fields_in(value: object) -> int:
    """How many fields there are at all depths."""
    if isinstance(value, dict):
        return len(value) + sum(map(_fields_in, value.values()))
    return sum(map(_fields_in, value)) if isinstance(value, list) else 0
