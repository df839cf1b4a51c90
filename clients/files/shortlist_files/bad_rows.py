"""Bad rows: counted, refused in one sentence, or left out and written beside their files."""

from __future__ import annotations

import csv
import shlex
from collections import Counter
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from shortlist_client.phrases import counted
from shortlist_files.arm_rows import BadRow, FileError
from shortlist_files.tables import NAMES_SHOWN, shown

BAD_COLUMNS = ("row", "field", "value", "reason")
MOST_VALUE_CHARS = 1_000


class BadRows:
    """Counts bad rows of ``total``, of which up to ``most`` may be left out."""

    def __init__(self, most: int, total: int) -> None:
        self._most, self._total = most, total
        self._refused: tuple[Path, BadRow] | None = None
        self._columns = Counter[str]()
        self._may_be_missing: dict[str, None] = {}
        self._by_path: dict[Path, list[BadRow]] = {}
        self._count = 0
        self._written: list[str] = []

    def note(self, path: Path, rows: Sequence[BadRow]) -> None:
        """Count some of a file."""
        for bad in rows:
            self._count += 1
            for each in (bad, *bad.also):
                self._columns[each.field] += 1
                if each.may_be_missing:
                    self._may_be_missing[each.field] = None
            if self._count <= self._most:
                self._by_path.setdefault(path, []).append(bad)
            elif self._refused is None:
                self._refused = path, bad

    @property
    def refusal(self) -> FileError | None:
        """The error that names all columns with bad cells, if there is a row too many."""
        if self._refused is None:
            return None
        path, first = self._refused
        words = [str(first.refuse(path))]
        if self._count > 1 or len(self._columns) > 1:
            told = [f"{shown(name) or 'cells'} {count:,}" for name, count in self._columns.most_common()]
            of_columns = f", in {', '.join(told[:NAMES_SHOWN])}" if len(told) > 1 else ""
            more = " and more columns" * (len(told) > NAMES_SHOWN)
            rows = counted(self._count, "row is", "rows are")
            words.append(f"{'all ' * (self._count == self._total)}{rows} bad{of_columns}{more}")
        if self._may_be_missing:
            names = " ".join(shlex.quote(shown(name)) for name in islice(self._may_be_missing, NAMES_SHOWN))
            words.append(f"--bad-as-missing {names} takes such cells for missing")
        if self._most:
            words.append(f"--skip-bad leaves out at most {self._most:,}")
        elif self._count < self._total:
            words.append(f"--skip-bad {self._count} leaves them out")
        return FileError("; ".join(words))

    def write(self) -> None:
        """Write the file of each table that has bad rows."""
        for path, rows in self._by_path.items():
            out = path.with_name(f"{path.name}.bad.csv")
            try:
                with out.open("w", encoding="utf-8", newline="") as file:
                    table = csv.writer(file, lineterminator="\n")
                    table.writerow(BAD_COLUMNS)
                    table.writerows((bad.row, bad.field, _text(bad.value), bad.reason) for bad in rows)
            except OSError as error:
                raise FileError(f"{out}: {error.strerror or 'cannot be written'}") from None
            self._written.append(f"{counted(len(rows), 'bad row was', 'bad rows were')} left out: {out}")

    def lines(self) -> list[str]:
        """What was left out."""
        if self._written or not self._count:
            return self._written
        return [f"{counted(self._count, 'bad row', 'bad rows')} would be left out"]


def _text(value: object) -> str:
    text = value if isinstance(value, str) else "" if value is None else repr(value)
    return text[:MOST_VALUE_CHARS]
