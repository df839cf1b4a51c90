"""Arms out of tables as people have them: which column is what, and what is wrong with which row.

A table is read three times: to see of what kind its columns are, to check every row, and to send.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from shortlist_files.arm_rows import (
    ID_RULE,
    IDENTIFIER,
    MAX_FEATURE,
    MAX_TAG_CHARS,
    MAX_TAGS,
    FileError,
    metadata_fault,
    wrong,
)
from shortlist_files.cells import KINDS, MAX_PART_CHARS, Column, Kind, list_of, plain
from shortlist_files.spellings import Spellings
from shortlist_files.table_features import (
    Floats,
    as_floats,
    feature_of,
    floats_of,
    matrix_of,
    npy_of,
    usual_columns,
    vector_of,
    whole_column,
)
from shortlist_files.tables import BadRow, Rows, Table, note_fault, open_tables

NAMES_SHOWN, NAME_CHARS = 12, 40
EXACT_FLOATS = 2**53


@dataclass(frozen=True, slots=True)
class TableOptions:
    """How tables are read.

    ``id``        the column of ids
    ``features``  columns by names or patterns, or an .npy file beside the table
    ``metadata``  a second table, by the same ids
    ``texts``     columns that stay texts
    ``bad_as_missing``  columns whose bad cells are missing ones, by names or patterns
    """

    id: str = "id"
    features: str | None = None
    metadata: Path | None = None
    encoding: str | None = None
    texts: Sequence[str] = ()
    bad_as_missing: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Taken:
    """What a catalogue takes. ``dim``: numbers of each arm, None where any number will do, 0 where none do.

    ``fields``: those that it declares, by name.
    """

    dim: int | None
    fields: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


@dataclass(slots=True)
class BadCells:
    """Cells of a column that are taken for missing. ``first``: number of the row of the first one."""

    first: int
    count: int = 0


@dataclass(slots=True)
class TableRows:
    """Arms that follow each other. Shape: features (n, d), None where a catalogue encodes the metadata."""

    path: Path
    numbers: Sequence[int]
    ids: list[str]
    features: Floats | None
    tags: list[list[str]]
    metadata: list[dict[str, Any]]
    bad: list[BadRow]

    def __len__(self) -> int:
        return len(self.ids)


class TableArms:
    """The arms of some files. Raises FileError: a file cannot be read, or lacks a column."""

    def __init__(self, files: Sequence[Path], options: TableOptions, taken: Taken) -> None:
        self._options, self._taken = options, taken
        self._matrix_path = npy_of(options.features)
        mains, side = list(files), options.metadata
        if len(mains) == 1 and mains[0].suffix.lower() == ".npy" and side is not None:
            self._matrix_path, mains = mains[0], []
        if not mains and side is not None:
            mains, side = [side], None
        self.tables = [each for path in mains for each in self._open(path)]
        self._side = [] if side is None else self._open(side)
        for table in (*self.tables, *self._side):
            if options.id not in table.names:
                reason = (
                    f"has no column {shown(options.id)}; --id names the column of ids, of {listed(table)}"
                )
                wrong(table.path, None, None, reason)
        names = list(dict.fromkeys(name for table in self.tables for name in table.names))
        self.feature_columns = self._feature_columns(names)
        self.columns = self._columns(self.tables, {*self.feature_columns})
        self._feature_texts: dict[str, Column] = {}
        self._side_columns = self._columns(self._side, set())
        self._side_rows: dict[str, dict[str, Any]] = {}
        self._side_faults: dict[str, tuple[str, str]] = {}
        self._matrix = None if self._matrix_path is None else matrix_of(self._matrix_path)
        self.dim = taken.dim
        self.rows_total = 0
        self.without_metadata = 0
        self.taken_for_missing: dict[str, BadCells] = {}  # by column
        self.spellings: Spellings | None = None  # that are joined from now on
        self._forgiven = self._bad_as_missing()
        self._side_forgiven: dict[str, BadCells] = {}
        self.notes = [f"{table.path.name} {table.note}" for table in self.tables if table.note]

    def _open(self, path: Path) -> list[Table]:
        return open_tables(path, id_column=self._options.id, encoding=self._options.encoding)

    def _feature_columns(self, names: Sequence[str]) -> list[str]:
        """The columns of features in the order of their numbers. Raises FileError."""
        if self._matrix_path is not None or self._taken.dim == 0:
            if self._taken.dim == 0 and self._options.features is not None:
                raise FileError(
                    "--features: the catalogue makes the features of its arms from their metadata"
                )
            return []
        if self._options.features is None:
            return usual_columns(names, self._taken.dim)
        found = list[str]()
        for pattern in map(str.strip, self._options.features.split(",")):
            some = [pattern] if pattern in names else [n for n in names if fnmatch.fnmatchcase(n, pattern)]
            if not some:
                here = listed(self.tables[0])
                raise FileError(f"--features: no column is named {shown(pattern)}; there are {here}")
            numbered = [(re.search(r"(\d+)$", name), name) for name in some]
            if all(number for number, _ in numbered):
                some.sort(key=lambda name: int(re.search(r"(\d+)$", name)[1]))  # type: ignore[index]
            found += [name for name in some if name not in found]
        return found

    def _bad_as_missing(self) -> frozenset[str]:
        """The columns whose bad cells are taken for missing. Raises FileError."""
        names, found = self.columns_of_all(), set[str]()
        for pattern in self._options.bad_as_missing:
            some = [name for name in names if name == pattern or fnmatch.fnmatchcase(name, pattern)]
            if not some:
                raise FileError(f"--bad-as-missing: no column of metadata is named {shown(pattern)}")
            found.update(some)
        return frozenset(found)

    def _columns(self, tables: Sequence[Table], features: set[str]) -> dict[str, Column]:
        found = dict[str, Column]()
        for table in tables:
            for name in table.names:
                if name not in features and name not in found and name != self._options.id:
                    own = self._taken.fields.get(name)
                    stays: Kind | None = "text" if name in self._options.texts else None
                    found[name] = Column(
                        name,
                        of_texts=all(t.is_text for t in tables if name in t.names),
                        semicolons=_has_semicolons(tables),
                        declared=stays if own is None else KINDS[own["kind"]],
                        parameters=own,
                    )
        return found

    def declared_values(self) -> dict[str, Sequence[str]]:
        """The values that fields of the catalogue have, by name."""
        fields = self._taken.fields.items()
        return {name: tuple(field["values"]) for name, field in fields if field.get("values")}

    def names(self) -> set[str]:
        """The columns of all files, also those of ids and features."""
        return {name for table in (*self.tables, *self._side) for name in table.names}

    def columns_of_all(self) -> dict[str, Column]:
        """The columns of both tables, by name."""
        return self.columns | self._side_columns

    def declare(self, name: str, kind: Kind) -> None:
        """Take a column for one of this kind from now on."""
        for columns in (self.columns, self._side_columns):
            if name in columns:
                columns[name].declare(kind)
        if name in self._side_columns:
            self._read_side()

    def look(self) -> None:
        """Find of what kind the columns are. Cost: the files are read once. Raises FileError."""
        for tables, columns in ((self.tables, self.columns), (self._side, self._side_columns)):
            for table in tables:
                mine = [name for name in table.names if name in columns]
                features = [name for name in table.names if table.is_text and name in self.feature_columns]
                for rows in table.rows([*mine, *features, self._options.id]):
                    for name in mine:
                        columns[name].see(_cells(rows.cells[name]))
                    for name in features:
                        self._see_features(name, rows.cells[name])
                    if columns is self.columns:
                        self.rows_total += len(rows) + len(rows.bad)
            for column in columns.values():
                column.settle()
        for column in self._feature_texts.values():
            column.settle()
        everyone = (*self.columns.values(), *self._side_columns.values(), *self._feature_texts.values())
        self.notes += [note for column in everyone for note in column.notes]
        if (
            self._matrix is not None
            and self._matrix_path is not None
            and len(self._matrix) != self.rows_total
        ):
            reason = f"{len(self._matrix):,} rows, and the table has {self.rows_total:,}"
            wrong(self._matrix_path, None, None, reason)
        if self._side:
            self._read_side()
        if not self.rows_total:
            wrong(self.tables[0].path, None, None, "there are no arms in it")

    def _see_features(self, name: str, cells: Sequence[str]) -> None:
        """Look at what may have a decimal comma: not at lists, which have commas between numbers."""
        if "," not in "".join(cells):
            return
        texts = [
            cell for cell in cells if len(cell) <= MAX_PART_CHARS and not cell.lstrip().startswith(("[", "("))
        ]
        if "," in "".join(texts):
            semicolons = _has_semicolons(self.tables)
            column = Column(name, of_texts=True, semicolons=semicolons, declared="number")
            self._feature_texts.setdefault(name, column).see(texts)

    def _read_side(self) -> None:
        """All of the second table is kept in memory."""
        self._side_forgiven = {}
        for table in self._side:
            for rows in table.rows():
                for bad in rows.bad:
                    raise bad.refuse(table.path)
                faults: dict[int, BadRow] = {}
                ids = self._ids(rows, faults)
                found = self._metadata(rows, self._side_columns, faults, self._side_forgiven)
                for place, name in enumerate(ids):
                    if place in faults:
                        bad = faults[place]
                        if bad.field == self._options.id:
                            raise bad.refuse(table.path)
                        where = f"{table.path.name}: row {bad.row:,}: {bad.field}"
                        self._side_faults[name] = where, bad.reason
                    self._side_rows[name] = found[place]

    def rows(self) -> Generator[TableRows, None, None]:
        """The arms, some at a time, without the rows that are bad, which are told beside."""
        first = 0
        self.without_metadata = 0
        self.taken_for_missing = {name: replace(cells) for name, cells in self._side_forgiven.items()}
        for table in self.tables:
            for rows in table.rows():
                places = _places(rows, first)
                yield self._arms(table, rows, places)
                first += len(rows) + len(rows.bad)

    def _arms(self, table: Table, rows: Rows, places: NDArray[np.int64]) -> TableRows:
        faults = dict[int, BadRow]()
        ids = self._ids(rows, faults)
        features = self._features(table, rows, places, faults)
        metadata = self._metadata(rows, self.columns, faults, self.taken_for_missing)
        if self._side:
            for place, name in enumerate(ids):
                more = self._side_rows.get(name)
                self.without_metadata += more is None
                metadata[place] |= more or {}
                if name in self._side_faults:
                    where, reason = self._side_faults[name]
                    note_fault(faults, place, _bad(rows, place, self._options.id, f"{where}: {reason}", name))
        tags = [list[str]() for _ in ids]
        for place, document in enumerate(metadata):
            try:
                tags[place] = _tags_of(document.pop("tags", None))
                metadata[place] = _unfolded(document)
                if self.spellings is not None:
                    metadata[place] = self.spellings.tidy(metadata[place])
            except ValueError as error:
                field_of = "tags" if "tag" in str(error) else "metadata"
                note_fault(faults, place, _bad(rows, place, field_of, str(error), None))
            if (reason := metadata_fault(_json(metadata[place]))) and metadata[place]:
                note_fault(faults, place, _bad(rows, place, "metadata", reason, None))
        good = [place for place in range(len(ids)) if place not in faults]
        if len(good) < len(ids):
            ids, tags, metadata = ([column[place] for place in good] for column in (ids, tags, metadata))  # type: ignore[assignment]
            features = None if features is None else features[good]
        bad = sorted([*rows.bad, *faults.values()], key=lambda each: each.row)
        return TableRows(table.path, [rows.numbers[p] for p in good], ids, features, tags, metadata, bad)

    def _metadata(
        self,
        rows: Rows,
        columns: Mapping[str, Column],
        faults: dict[int, BadRow],
        forgiven: dict[str, BadCells],
    ) -> list[dict[str, Any]]:
        """The metadata of each row, without what is missing; what is wrong is noted."""
        result = [dict[str, Any]() for _ in range(len(rows))]
        for name, column in columns.items():
            if name not in rows.cells:
                continue
            value_of = column.value
            for place, cell in enumerate(_cells(rows.cells[name])):
                if cell is None or cell == "":
                    continue
                try:
                    value = value_of(cell)
                except ValueError as error:
                    if name in self._forgiven:
                        forgiven.setdefault(name, BadCells(rows.numbers[place])).count += 1
                    else:
                        bad = _bad(rows, place, name, str(error), cell)
                        note_fault(faults, place, replace(bad, may_be_missing=True))
                else:
                    if value is not None:
                        result[place][name] = value
        return result

    def _ids(self, rows: Rows, faults: dict[int, BadRow]) -> list[str]:
        name, result = self._options.id, list[str]()
        for place, cell in enumerate(_cells(rows.cells[name])):
            try:
                result.append(identifier_of(cell))
            except ValueError as error:
                faults[place] = _bad(rows, place, name, str(error), cell)
                result.append("")
        return result

    def _features(
        self, table: Table, rows: Rows, places: NDArray[np.int64], faults: dict[int, BadRow]
    ) -> Floats | None:
        if self.dim == 0 and self._matrix is None:
            return None
        label = self.feature_columns[0] if len(self.feature_columns) == 1 else ""
        if self._matrix is not None:
            label = Path(str(self._matrix_path)).name
            if self.dim not in {None, self._matrix.shape[1]}:
                reason = f"{self._matrix.shape[1]} numbers a row, the catalogue has {self.dim}"
                wrong(Path(str(self._matrix_path)), None, "features", reason)
            found = as_floats(self._matrix[_slice_of(places)])
        else:
            missing = next((name for name in self.feature_columns if name not in table.names), None)
            if missing is not None:
                wrong(table.path, None, None, f"has no column {shown(missing)}")
            if not self.feature_columns:
                many = "numbers" if self.dim is None else f"{self.dim} numbers"
                raise FileError(
                    f"{table.path}: the catalogue has {many} for each arm: name the columns with --features, "
                    f"or make a catalogue from the table with --encode"
                )
            found = self._vectors(rows, label, faults) if label else self._numbers(rows, faults)
        self.dim = found.shape[1]
        self._check_numbers(rows, found, label, faults)
        return found

    def _check_numbers(self, rows: Rows, found: Floats, label: str, faults: dict[int, BadRow]) -> None:
        if not found.size or (found.min() >= -MAX_FEATURE and found.max() <= MAX_FEATURE):
            return  # NaN is not: it is the least and the largest then
        bad = ~(np.abs(found) <= MAX_FEATURE)
        for place in np.flatnonzero(bad.any(axis=1)).tolist():
            at = int(bad[place].argmax())
            number = found[place, at]
            rule = "be finite" if not np.isfinite(number) else f"be at most {MAX_FEATURE:.0f} in magnitude"
            text = f"must {rule}" if not label else f"number {at + 1} must {rule}"
            note_fault(faults, place, _bad(rows, place, label or self.feature_columns[at], text, str(number)))

    def _numbers(self, rows: Rows, faults: dict[int, BadRow]) -> Floats:
        """Features of a column each."""
        if self.dim not in {None, len(self.feature_columns)}:
            raise FileError(
                f"--features: {len(self.feature_columns)} columns, the catalogue has {self.dim} numbers"
            )
        found = np.empty((len(rows), len(self.feature_columns)))
        for at, name in enumerate(self.feature_columns):
            cells = _cells(rows.cells[name])
            mark = self._mark_of(name)
            try:
                found[:, at] = floats_of(cells, mark)
            except (ValueError, TypeError):
                for place, cell in enumerate(cells):
                    number = feature_of(cell, mark)
                    if isinstance(number, str):
                        note_fault(faults, place, _bad(rows, place, name, number, cell))
                    found[place, at] = 0.0 if isinstance(number, str) else number
        return found

    def _mark_of(self, name: str) -> str:
        """The decimal mark of a column of features."""
        return self._feature_texts[name].detail if name in self._feature_texts else "."

    def _vectors(self, rows: Rows, name: str, faults: dict[int, BadRow]) -> Floats:
        """Features that are lists in one column, or a number alone."""
        column = rows.cells[name]
        if not isinstance(column, list | tuple):
            whole = whole_column(column, self.dim)
            if whole is not None:
                return whole
        mark = self._mark_of(name)
        vectors = [vector_of(cell, self.dim, mark) for cell in _cells(column)]
        if self.dim is None:
            self.dim = next((len(each) for each in vectors if isinstance(each, list)), 1)
        found = np.zeros((len(rows), self.dim))
        for place, vector in enumerate(vectors):
            if isinstance(vector, list) and len(vector) == self.dim:
                found[place] = vector
            else:
                reason = (
                    vector
                    if isinstance(vector, str)
                    else f"{len(vector)} numbers, the others have {self.dim}"
                )
                note_fault(faults, place, _bad(rows, place, name, reason, None))
        return found


def _has_semicolons(tables: Sequence[Table]) -> bool:
    return any(table.delimiter == ";" for table in tables)


def _places(rows: Rows, first: int) -> NDArray[np.int64]:
    """Which rows of all they are, from 0: bad ones count too, and lines of NDJSON that are blank do not."""
    if not rows.bad:
        return first + np.arange(len(rows))
    everyone = sorted([*rows.numbers, *(bad.row for bad in rows.bad)])
    return first + np.searchsorted(np.array(everyone), np.array(list(rows.numbers), dtype=np.int64))


def _slice_of(places: NDArray[np.int64]) -> slice | NDArray[np.int64]:
    """The same places as a slice, if they follow each other: of a mapped file that is no copy."""
    if not len(places) or places[-1] - places[0] + 1 != len(places):
        return places
    return slice(int(places[0]), int(places[-1]) + 1)


def _cells(column: Any) -> Sequence[Any]:
    return column if isinstance(column, list | tuple) else column.to_pylist()


def _bad(rows: Rows, place: int, name: str, reason: str, value: object) -> BadRow:
    return BadRow(rows.numbers[place], name, reason, value, None if rows.lines is None else rows.lines[place])


def identifier_of(cell: Any) -> str:
    """The id of a cell: a text, or a whole number, also as a float of pandas. Raises ValueError."""
    if isinstance(cell, float) and cell.is_integer():
        if abs(cell) >= EXACT_FLOATS:
            raise ValueError("is a float above 2^53, which has lost digits: write ids as texts or integers")
        cell = int(cell)
    value = cell if isinstance(cell, int) else plain(cell)
    text = "" if value is None else str(value).strip()
    if not text:
        raise ValueError("is missing")
    if not IDENTIFIER.fullmatch(text):
        raise ValueError(ID_RULE)
    return text


def _tags_of(value: Any) -> list[str]:
    if value is None or value == "":
        return []
    if isinstance(value, str):
        value = list_of(value) if value.startswith("[") else re.split(r"\s*[|;,]\s*", value.strip())
    if not isinstance(value, list) or any(isinstance(each, dict | list) for each in value):
        raise ValueError("tags must be a list of texts")
    tags = [str(each) for each in value if each is not None and each != ""]
    if len(tags) > MAX_TAGS or any(len(tag) > MAX_TAG_CHARS for tag in tags):
        raise ValueError(f"at most {MAX_TAGS} tags of {MAX_TAG_CHARS} characters")
    return tags


def _unfolded(document: dict[str, Any]) -> dict[str, Any]:
    """A column that is named metadata holds the fields themselves, as an export writes them."""
    inner = document.get("metadata")
    if isinstance(inner, str) and inner.strip().startswith("{"):
        try:
            inner = msgspec.json.decode(inner)
        except (ValueError, RecursionError):
            raise ValueError("must be the text of a JSON object") from None
    if not isinstance(inner, dict):
        return document
    del document["metadata"]
    return {**plain(inner), **document}


def _json(document: Mapping[str, Any]) -> str:
    return msgspec.json.encode(document).decode()


def shown(name: str) -> str:
    """A name of a column, not too long."""
    return name if len(name) <= NAME_CHARS else name[:NAME_CHARS] + "..."


def listed(table: Table) -> str:
    """The columns of a table, not too many."""
    names = [shown(name) for name in table.names[:NAMES_SHOWN]]
    return ", ".join(names) + (
        f" and {len(table.names) - NAMES_SHOWN} more" * (len(table.names) > NAMES_SHOWN)
    )
