"""Files of learners: ``key``, ``version``, ``observations`` and ``state``, all that is stored of a learner.

``prior_version`` is of the learned prior that they were served with: it is not in the state.
The state is bytes in Parquet, and base64 in NDJSON and CSV. Only ``key`` and ``state`` are read.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from shortlist_files.arm_rows import wrong
from shortlist_files.tables import open_tables

AT_ONCE = 20  # a state of 1,000 numbers takes 8 MB


@dataclass(frozen=True, slots=True)
class LearnerRow:
    """A key, and all that is stored of its learner; neither is empty."""

    key: str
    state: bytes


def learners_of(path: Path) -> Callable[[], Iterator[LearnerRow]]:
    """What reads the learners of a file, as often as it is called. Raises FileError."""
    return partial(_rows, path)


def _rows(path: Path) -> Iterator[LearnerRow]:
    for table in open_tables(path, id_column="key"):
        for name in ("key", "state"):
            if name not in table.names:
                wrong(table.path, None, None, f"has no column {name}")
        for rows in table.rows(["key", "state"], AT_ONCE):
            for bad in rows.bad:
                raise bad.refuse(table.path)
            for number, key, state in zip(rows.numbers, rows.cells["key"], rows.cells["state"], strict=True):
                for name, cell, kinds in (("key", key, str), ("state", state, str | bytes)):
                    if cell is None or cell in {"", b""}:
                        wrong(table.path, number, name, "is missing")
                    if not isinstance(cell, kinds):
                        wrong(table.path, number, name, "is of another kind")
                try:
                    data = state if isinstance(state, bytes) else base64.b64decode(state, validate=True)
                except (binascii.Error, ValueError):
                    wrong(table.path, number, "state", "is not base64")
                yield LearnerRow(key, data)
