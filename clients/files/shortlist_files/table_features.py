"""The features of arms out of a table: a column each, lists in one column, or a matrix beside it."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Sequence
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shortlist_files.arm_rows import MAX_FEATURE, BadRow, FileError, Floats, note_fault, wrong
from shortlist_files.cells import MAX_PART_CHARS, Column, list_of
from shortlist_files.matrices import Matrix, as_floats
from shortlist_files.tables import Rows, Table, listed, shown

A_LIST = "must be a list of numbers"


class TableFeatures:
    """``wanted``: columns by names or patterns, or an .npy file. ``dim``: of each arm; None: any, 0: none.

    Raises FileError: they are not there.
    """

    def __init__(self, tables: Sequence[Table], wanted: str | None, dim: int | None) -> None:
        self.dim = dim
        self._tables = tables
        self.matrix: Matrix | None = None
        names = list(dict.fromkeys(name for table in tables for name in table.names))
        usual = [name for name in names if name in {"features", "embedding"}][:1]
        if not usual:
            numbered = [name for name in names if re.fullmatch(r"x\d+", name) and "x0" in names]
            usual = sorted(numbered, key=lambda name: int(name[1:]))
        is_export = {*names} <= {"id", "tags", "metadata", *usual}
        self.ignored = usual if dim == 0 and is_export else []
        if dim == 0:
            if wanted is not None:
                raise FileError(
                    "--features: the catalogue makes the features of its arms from their metadata"
                )
            found = list[str]()
            for table in tables:
                if table.path.suffix.lower() == ".npy":
                    reason = (
                        "has no metadata, and the features of the catalogue are encoded from the metadata"
                    )
                    wrong(table.path, None, None, reason)
        elif wanted is not None and wanted.lower().endswith(".npy"):
            self.matrix, found = Matrix(Path(wanted)), []
            if dim not in {None, self.matrix.dim}:
                self._refuse_length(self.matrix.path, self.matrix.dim)
        else:
            found = usual if wanted is None else self._named(names, wanted)
        semicolons = any(table.delimiter == ";" for table in tables)
        is_text = all(table.is_text for table in tables)
        self.columns = {
            name: Column(name, of_texts=is_text, semicolons=semicolons, declared="number") for name in found
        }

    def _named(self, names: Sequence[str], wanted: str) -> list[str]:
        """The columns in the order of the numbers at the ends of their names."""
        found = list[str]()
        for pattern in map(str.strip, wanted.split(",")):
            some = [pattern] if pattern in names else [n for n in names if fnmatch.fnmatchcase(n, pattern)]
            if not some:
                here = listed(self._tables[0])
                raise FileError(f"--features: no column is named {shown(pattern)}; there are {here}")
            ends = {name: re.search(r"(\d+)$", name) for name in some}
            if all(ends.values()):
                some.sort(key=lambda name: int(ends[name][1]))  # type: ignore[index]
            found += [name for name in some if name not in found]
        return found

    def _refuse_length(self, path: Path, found: int) -> None:
        wrong(path, None, "features", f"{found} numbers, the catalogue has {self.dim}")

    def see(self, table: Table, rows: Rows) -> None:
        """Look at what may have a decimal comma: not at lists, which have commas between numbers."""
        for name, column in self.columns.items():
            cells = rows.cells.get(name, ())
            if table.is_text and "," in "".join(cells):
                short = (cell for cell in cells if len(cell) <= MAX_PART_CHARS)
                column.see([cell for cell in short if not cell.lstrip().startswith(("[", "("))])

    def of(
        self, table: Table, rows: Rows, places: NDArray[np.int64], faults: dict[int, BadRow]
    ) -> Floats | None:
        """Those of some rows, checked. ``places``: of the rows in all tables, from 0. Shape: (n, d)."""
        if self.dim == 0:
            return None
        label = next(iter(self.columns)) if len(self.columns) == 1 else ""
        if self.matrix is not None:
            label = self.matrix.path.name
            count = int(places[-1] - places[0]) + 1 if len(places) else 0
            found = self.matrix.rows(int(places[0]) if count else 0, count)
            found = found if count == len(places) else found[places - places[0]]
        elif not self.columns:
            many = "" if self.dim is None else f", and the catalogue has {self.dim} numbers for each arm"
            cure = "name the columns with --features, or make a catalogue from the table with --encode"
            wrong(table.path, None, None, f"has no features{many}: {cure}")
        else:
            missing = next((name for name in self.columns if name not in table.names), None)
            if missing is not None:
                wrong(table.path, None, None, f"has no column {shown(missing)}")
            found = self._vectors(table, rows, label, faults) if label else self._numbers(table, rows, faults)
        self.dim = found.shape[1]
        if found.size and not (found.min() >= -MAX_FEATURE and found.max() <= MAX_FEATURE):
            self._note_numbers(rows, found, label, faults)
        return found

    def _note_numbers(self, rows: Rows, found: Floats, label: str, faults: dict[int, BadRow]) -> None:
        bad = ~(np.abs(found) <= MAX_FEATURE)
        for place in np.flatnonzero(bad.any(axis=1)).tolist():
            at = int(bad[place].argmax())
            is_finite = np.isfinite(found[place, at])
            rule = f"must be at most {MAX_FEATURE:.0f} in magnitude" if is_finite else "must be finite"
            text, name = (f"number {at + 1} {rule}", label) if label else (rule, list(self.columns)[at])
            note_fault(faults, place, rows.fault(place, name, text, str(found[place, at])))

    def _numbers(self, table: Table, rows: Rows, faults: dict[int, BadRow]) -> Floats:
        """Features of a column each."""
        if self.dim not in {None, len(self.columns)}:
            self._refuse_length(table.path, len(self.columns))
        found = np.zeros((len(rows), len(self.columns)))
        for at, (name, column) in enumerate(self.columns.items()):
            cells = rows.cells[name]
            try:
                found[:, at] = _floats_of(cells, column.detail)
            except (ValueError, TypeError):
                for place, cell in enumerate(cells):
                    try:
                        found[place, at] = _number_of(column, cell)
                    except ValueError as error:
                        note_fault(faults, place, rows.fault(place, name, str(error), cell))
        return found

    def _vectors(self, table: Table, rows: Rows, name: str, faults: dict[int, BadRow]) -> Floats:
        """Features that are lists in one column, or a number alone."""
        column: Any = rows.cells[name]
        if isinstance(column, np.ndarray):  # of a matrix
            if self.dim not in {None, column.shape[1]}:
                self._refuse_length(table.path, column.shape[1])
            return column
        if (whole := _whole_column(column, self.dim)) is not None:
            return whole
        cells: Sequence[Any] = column if isinstance(column, list | tuple) else column.to_pylist()
        vectors = [self._vector(self.columns[name], cell) for cell in cells]
        if self.dim is None:
            self.dim = next((len(each) for each in vectors if isinstance(each, list)), 1)
        found = np.zeros((len(rows), self.dim))
        for place, vector in enumerate(vectors):
            if isinstance(vector, list) and len(vector) == self.dim:
                found[place] = vector
                continue
            reason = f"{len(vector)} numbers, the others have {self.dim}"
            note_fault(faults, place, rows.fault(place, name, vector if isinstance(vector, str) else reason))
        return found

    def _vector(self, column: Column, cell: Any) -> list[float] | str:
        """The numbers of a cell, or why there are none. A number alone is a list of one, as 0,5 is where
        nobody knows how many there are: lists have brackets.
        """
        if cell is None or (isinstance(cell, str) and not cell.strip()):
            return "is missing"
        if self.dim in {1, None} and not isinstance(cell, list):
            with suppress(ValueError):
                return [_number_of(column, cell)]
        value = list_of(cell.strip()) if isinstance(cell, str) else cell
        if not isinstance(value, list) or not value:
            return A_LIST
        if any(each is None or each != each for each in value):  # noqa: PLR0124 - NaN
            return "must not hold null or NaN"
        if any(isinstance(each, bool) or not isinstance(each, int | float | Decimal) for each in value):
            return A_LIST
        return [float(each) for each in value]


def _whole_column(column: Any, dim: int | None) -> Floats | None:
    """The numbers of a column of lists, if all have as many and none is missing. Shape: (n, d)."""
    if isinstance(column, list | tuple) or column.null_count or not len(column):
        return None
    counts = column.value_lengths().to_numpy(zero_copy_only=False)
    numbers = column.flatten()
    if (counts != (counts[0] if dim is None else dim)).any() or numbers.null_count or not counts[0]:
        return None
    return as_floats(numbers.to_numpy(zero_copy_only=False).reshape(len(counts), -1))


def _floats_of(cells: Sequence[Any], mark: str) -> list[float]:
    """Numbers that are written plainly, which a point of thousands is not. Raises ValueError, TypeError."""
    kinds = {*map(type, cells)}
    texts = cells if kinds == {str} else [cell for cell in cells if isinstance(cell, str)]
    # joined: to look into each cell would take longer than to read its number
    if mark == "," or "_" in "".join(texts):
        raise ValueError
    return [*map(float, cells)]


def _number_of(column: Column, cell: Any) -> float:
    """The number of a cell. Raises ValueError."""
    value = column.value(cell)
    if value is None:
        raise ValueError("is missing")
    return float(value)
