"""Rows of arms as they stand in a file: side by side, some at a time; and what is wrong with one."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import msgspec
import numpy as np
from numpy.typing import NDArray

from shortlist_client.errors import ShortlistError
from shortlist_client.routes import Fault as JsonFault
from shortlist_client.routes import fault_of

ROWS = 1_000  # that are held, and sent, together
NUMBERS = 1_000_000  # in their features, at most

# What the service takes, which docs/limits.md tells and a test compares.
MAX_FEATURE = 1e6
MAX_TAGS, MAX_TAG_CHARS = 64, 128
MAX_METADATA_CHARS = 16_384
MAX_METADATA_FIELDS = 256
IDENTIFIER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}")
ID_RULE = "must be 1 to 128 ASCII letters, digits or . _ : -, and begin with a letter or digit"


class FileError(ShortlistError):
    """A file that cannot be read or written, or is not as it must be: one line that says where and why."""


@dataclass(frozen=True, slots=True)
class ArmRows:
    """Arms that follow each other in a file. Shape: features (n, d), float32 or float64.

    ``first``      number of the first row, from 1
    ``metadata``   JSON texts, "" where an arm has none; None: no arm has any, as with ``tags``
    ``reduced``    the features are embeddings times the basis of the catalogue
    """

    first: int
    ids: Sequence[str]
    features: NDArray[np.floating]
    tags: Sequence[Sequence[str]] | None = None
    metadata: Sequence[str] | None = None
    reduced: bool = False

    def __len__(self) -> int:
        return len(self.ids)


def wrong(path: Path, row: int | None, column: str | None, reason: str) -> NoReturn:
    """Raise FileError that names the file, the row (from 1) and the column."""
    where = [str(path), *([] if row is None else [f"row {row:,}"]), *([] if column is None else [column])]
    raise FileError(f"{': '.join(where)}: {reason}")


def check_file(path: Path) -> None:
    """Raise FileError for a pipe or a device: to open one may wait for ever, and files are read twice."""
    if path.exists() and not (path.is_file() or path.is_dir()):
        wrong(path, None, None, "is a pipe or a device, and files are read several times: save it first")


def rows_at_once(dim: int) -> int:
    """How many rows of ``dim`` numbers are held together."""
    return max(1, min(ROWS, NUMBERS // dim))


def check(path: Path, rows: ArmRows, dim: int) -> None:
    """Raise FileError at the first row that the service would refuse. Cost: a look at every number."""
    if rows.features.shape[1] != dim:
        reason = f"{rows.features.shape[1]} numbers, the catalogue has {dim}"
        wrong(path, rows.first, "features", reason)
    faults = [*_of_ids(rows), *_of_features(rows), *_of_tags(rows), *_of_metadata(rows)]
    if faults:
        place, column, reason = min(faults)
        wrong(path, rows.first + place, column, reason)


Fault = tuple[int, str, str]


def _of_ids(rows: ArmRows) -> Iterator[Fault]:
    """The first fault of the column, as in the functions below."""
    for place, name in enumerate(rows.ids):
        if not IDENTIFIER.fullmatch(name):
            yield place, "id", ID_RULE
            return


def _of_features(rows: ArmRows) -> Iterator[Fault]:
    bad = ~(np.abs(rows.features) <= MAX_FEATURE)
    if bad.any():
        place, coordinate = (int(where) for where in np.argwhere(bad)[0])
        finite = np.isfinite(rows.features[place, coordinate])
        rule = f"at most {MAX_FEATURE:.0f} in magnitude" if finite else "finite"
        yield place, "features", f"number {coordinate + 1} must be {rule}"


def _of_tags(rows: ArmRows) -> Iterator[Fault]:
    for place, tags in enumerate(rows.tags or ()):
        if len(tags) > MAX_TAGS or any(len(tag) > MAX_TAG_CHARS for tag in tags):
            yield place, "tags", f"at most {MAX_TAGS} of {MAX_TAG_CHARS} characters"
            return


def _of_metadata(rows: ArmRows) -> Iterator[Fault]:
    for place, text in enumerate(rows.metadata or ()):
        if text and (reason := metadata_fault(text)):
            yield place, "metadata", reason
            return


def metadata_fault(text: str) -> str:
    if len(text) > MAX_METADATA_CHARS:
        return f"at most {MAX_METADATA_CHARS:,} characters"
    try:
        found = msgspec.json.decode(text)
        fields = _fields_in(found)
    except (ValueError, RecursionError):
        fault = json_fault(text)
        return "must be the text of a JSON object" if fault is None else fault[1]
    if not isinstance(found, dict):
        return "must be the text of a JSON object"
    return f"at most {MAX_METADATA_FIELDS} fields" if fields > MAX_METADATA_FIELDS else ""


def json_fault(text: str | bytes) -> JsonFault | None:
    """Where a document holds NaN or an infinity, which only Python's own reader takes; None: nowhere."""
    with suppress(ValueError, RecursionError):
        document = json.loads(text)
        return fault_of(document) if isinstance(document, dict) else None
    return None


def _fields_in(value: object) -> int:
    """How many fields there are at all depths."""
    if isinstance(value, dict):
        return len(value) + sum(map(_fields_in, value.values()))
    return sum(map(_fields_in, value)) if isinstance(value, list) else 0
