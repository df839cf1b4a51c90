"""Arms out of tables as people have them: which column is what, and what is wrong with which row.

A table is read three times: to see of what kind its columns are, to check every row, and to send.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from shortlist_files.arm_rows import (
    ID_RULE,
    IDENTIFIER,
    MAX_TAG_CHARS,
    MAX_TAGS,
    ArmRows,
    BadRow,
    FileError,
    metadata_fault,
    note_fault,
    wrong,
)
from shortlist_files.cells import KINDS, Column, Kind, composed, list_of, plain
from shortlist_files.spellings import Spellings
from shortlist_files.table_features import TableFeatures
from shortlist_files.tables import Rows, Table, listed, open_tables, shown

EXACT_FLOATS = 2**53
INNER = ("tags", "metadata")  # columns that are read as an export has them


@dataclass(frozen=True, slots=True)
class ImportOptions:
    """How arms are read and imported.

    ``id``        the column of ids
    ``features``  columns by names or patterns, or an .npy file beside the table
    ``metadata``  a second table, by the same ids
    ``texts``     columns that stay texts
    ``bad_as_missing``  columns whose bad cells are missing ones, by names or patterns
    ``encode``    make the catalogue, with fields for the columns
    ``reduce``    make the catalogue, with so many principal components of the embeddings
    ``skip_bad``  how many bad rows may be left out, and written beside
    ``replace_features``  also where they have little to do with those that bandits have learned from
    ``tidy``      join values that differ only in case or blanks
    """

    id: str = "id"
    features: str | None = None
    metadata: Path | None = None
    encoding: str | None = None
    texts: Sequence[str] = ()
    bad_as_missing: Sequence[str] = ()
    encode: bool = False
    reduce: int | None = None
    dry_run: bool = False
    skip_bad: int = 0
    replace_features: bool = False
    tidy: bool = False

    @property
    def makes(self) -> bool:
        """Whether a catalogue is made that is not there."""
        return self.encode or self.reduce is not None


@dataclass(frozen=True, slots=True)
class Taken:
    """What a catalogue takes. ``dim``: numbers of each arm, None where any number will do, 0 where none do.

    ``fields``: those that it declares, by name.
    """

    dim: int | None
    fields: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


class TableArms:
    """The arms of some files. Raises FileError: a file cannot be read, or lacks a column."""

    def __init__(self, files: Sequence[Path], options: ImportOptions, taken: Taken) -> None:
        self._options, self._taken = options, taken
        self.tables = [table for path in files for table in self._open(path)]
        self._side = [] if options.metadata is None else self._open(options.metadata)
        self.features = TableFeatures(self.tables, options.features, taken.dim)
        self.columns = self._columns([*self.tables, *self._side])
        self._side_rows: dict[str, dict[str, Any]] = {}
        self.side_bad = list[tuple[Path, BadRow]]()
        self.rows_total = 0
        self.without_metadata = 0
        self.taken_for_missing: dict[str, list[int]] = {}  # numbers of rows, by column
        self._side_taken: dict[str, list[int]] = {}
        self.spellings: Spellings | None = None  # that are joined from now on
        self._forgiven = self._bad_as_missing()
        self.notes = [f"{t.path.name} {t.note}" for t in (*self.tables, *self._side) if t.note]

    def _open(self, path: Path) -> list[Table]:
        tables = open_tables(path, id_column=self._options.id, encoding=self._options.encoding)
        for table in tables:
            if self._options.id not in table.names:
                name = shown(self._options.id)
                reason = f"has no column {name}; --id names the column of ids, of {listed(table)}"
                wrong(table.path, None, None, reason)
        return tables

    def _bad_as_missing(self) -> frozenset[str]:
        """The columns whose bad cells are taken for missing. Raises FileError."""
        found = set[str]()
        for pattern in self._options.bad_as_missing:
            some = [name for name in self.columns if name == pattern or fnmatch.fnmatchcase(name, pattern)]
            if not some:
                raise FileError(f"--bad-as-missing: no column of metadata is named {shown(pattern)}")
            found.update(some)
        return frozenset(found)

    def _columns(self, tables: Sequence[Table]) -> dict[str, Column]:
        """Those of metadata, each with its own kind."""
        others = {self._options.id, *self.features.columns, *self.features.ignored, *INNER}
        found = dict[str, Column]()
        for name in dict.fromkeys(name for table in tables for name in table.names):
            if name in others:
                continue
            own = self._taken.fields.get(name)
            stays: Kind | None = "text" if name in self._options.texts else None
            found[name] = Column(
                name,
                of_texts=all(table.is_text for table in tables if name in table.names),
                semicolons=any(table.delimiter == ";" for table in tables if name in table.names),
                declared=stays if own is None else KINDS[own["kind"]],
                parameters=own,
            )
        return found

    def declared_values(self) -> dict[str, Sequence[str]]:
        """The values that fields of the catalogue have, by name."""
        fields = self._taken.fields.items()
        return {name: tuple(each["values"]) for name, each in fields if each.get("values")}

    def names(self) -> set[str]:
        """The columns of all files, also those of ids and features."""
        return {name for table in (*self.tables, *self._side) for name in table.names}

    def declare(self, kinds: Mapping[str, Kind]) -> None:
        """Take columns for ones of these kinds from now on."""
        for name in kinds.keys() & self.columns.keys():
            self.columns[name].declare(kinds[name])
        self._read_side()

    def look(self) -> None:
        """Find of what kind the columns are. Cost: the files are read once. Raises FileError."""
        for table in (*self.tables, *self._side):
            mine = [name for name in table.names if name in self.columns]
            features = [name for name in table.names if table.is_text and name in self.features.columns]
            for rows in table.rows([*mine, *features, self._options.id]):
                for name in mine:
                    self.columns[name].see(_cells(rows.cells[name]))
                self.features.see(table, rows)
                if table in self.tables:
                    self.rows_total += len(rows) + len(rows.bad)
        everyone = (*self.columns.values(), *self.features.columns.values())
        for column in everyone:
            column.settle()
        self.notes += [note for column in everyone for note in column.notes]
        if not self.rows_total:
            wrong(self.tables[0].path, None, None, "there are no arms in it")
        matrix = self.features.matrix
        if matrix is not None and len(matrix) != self.rows_total:
            wrong(matrix.path, None, None, f"{len(matrix):,} rows, and the table has {self.rows_total:,}")
        self._read_side()

    def _read_side(self) -> None:
        """All of the second table is kept in memory."""
        self._side_taken, self.side_bad, self._side_rows = {}, [], {}
        for table in self._side:
            for rows in table.rows():
                faults: dict[int, BadRow] = {}
                ids, tags, found = self._described(rows, faults, self._side_taken)
                self.side_bad += [(table.path, bad) for bad in _in_order(rows.bad, faults)]
                for place, name in enumerate(ids):
                    if place not in faults:
                        more = {"tags": tags[place]} if tags[place] else {}
                        self._side_rows[name] = found[place] | more

    def rows(self) -> Generator[ArmRows, None, None]:
        """The arms, some at a time, without the rows that are bad, which are told beside."""
        first = self.without_metadata = 0
        self.taken_for_missing = {name: numbers.copy() for name, numbers in self._side_taken.items()}
        for table in self.tables:
            for rows in table.rows():
                yield self._arms(table, rows, _places(rows, first))
                first += len(rows) + len(rows.bad)

    def _arms(self, table: Table, rows: Rows, places: NDArray[np.int64]) -> ArmRows:
        faults = dict[int, BadRow]()
        ids, tags, metadata = self._described(rows, faults, self.taken_for_missing)
        features = self.features.of(table, rows, places, faults)
        for place, name in enumerate(ids):
            document = metadata[place]
            if self._side:
                more = dict(self._side_rows.get(name, {}))
                self.without_metadata += name not in self._side_rows
                tags[place] = more.pop("tags", tags[place])
                document |= more
            if self.spellings is not None:
                metadata[place] = document = self.spellings.tidy(document)
            if document and (reason := metadata_fault(document)):
                note_fault(faults, place, rows.fault(place, "metadata", reason))
        bad = _in_order(rows.bad, faults)
        good = [place for place in range(len(ids)) if place not in faults]
        if faults:
            ids, tags, metadata = ([column[place] for place in good] for column in (ids, tags, metadata))  # type: ignore[assignment]
            features = None if features is None else features[good]
        return ArmRows(table.path, [rows.numbers[p] for p in good], ids, features, tags, metadata, bad)

    def _described(
        self, rows: Rows, faults: dict[int, BadRow], forgiven: dict[str, list[int]]
    ) -> tuple[list[str], list[list[str]], list[dict[str, Any]]]:
        """Ids, tags and metadata of each row, without what is missing; what is wrong is noted."""
        ids, tags, metadata = (
            [""] * len(rows),
            [list[str]() for _ in rows.numbers],
            [dict[str, Any]() for _ in rows.numbers],
        )

        def each_of(name: str, parse: Any, into: Any) -> None:
            for place, cell in enumerate(_cells(rows.cells[name])):
                try:
                    into(place, parse(cell))
                except ValueError as error:
                    if name in self._forgiven:
                        forgiven.setdefault(name, []).append(rows.numbers[place])
                        continue
                    bad = rows.fault(place, name, str(error), cell)
                    note_fault(faults, place, replace(bad, may_be_missing=name in self.columns))

        each_of(self._options.id, identifier_of, ids.__setitem__)
        if "metadata" in rows.cells and self._options.id != "metadata":
            each_of("metadata", _document_of, lambda place, value: metadata[place].update(value))
        if "tags" in rows.cells and self._options.id != "tags":
            each_of("tags", _tags_of, tags.__setitem__)
        for name, column in self.columns.items():
            if name in rows.cells:

                def put(place: int, value: Any, name: str = name) -> None:
                    if value is not None:
                        metadata[place][name] = value

                each_of(name, column.value, put)
        return ids, tags, metadata


def _places(rows: Rows, first: int) -> NDArray[np.int64]:
    """Which rows of all they are, from 0: bad ones count too, and lines of NDJSON that are blank do not."""
    if not rows.bad:
        return first + np.arange(len(rows))
    everyone = sorted([*rows.numbers, *(bad.row for bad in rows.bad)])
    return first + np.searchsorted(np.array(everyone), np.array(list(rows.numbers), dtype=np.int64))


def _in_order(bad: Sequence[BadRow], faults: Mapping[int, BadRow]) -> list[BadRow]:
    return sorted([*bad, *faults.values()], key=lambda each: each.row)


def _cells(column: Any) -> Sequence[Any]:
    return column if isinstance(column, list | tuple) else column.to_pylist()


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


def _tags_of(cell: Any) -> list[str]:
    if isinstance(cell, str) and cell:
        cell = list_of(cell) if cell.startswith("[") else re.split(r"\s*[|;,]\s*", cell.strip())
    elif cell is None or cell == "":
        return []
    if not isinstance(cell, list) or any(isinstance(each, dict | list) for each in cell):
        raise ValueError("must be a list of texts")
    tags = [composed(str(each)) for each in cell if each is not None and each != ""]
    if len(tags) > MAX_TAGS or any(len(tag) > MAX_TAG_CHARS for tag in tags):
        raise ValueError(f"at most {MAX_TAGS} tags of {MAX_TAG_CHARS} characters")
    return tags


def _document_of(cell: Any) -> dict[str, Any]:
    """A column that is named metadata holds the fields themselves, as an export writes them."""
    if cell is None or (isinstance(cell, str) and not cell.strip()):
        return {}
    if isinstance(cell, str) and cell.strip().startswith("{"):
        try:
            return dict(msgspec.json.decode(cell))
        except (ValueError, RecursionError):
            raise ValueError("must be the text of a JSON object") from None
    if isinstance(cell, dict):  # as it is: null may stand within a list
        return {str(name): value for name, value in cell.items() if value is not None}
    return {"metadata": plain(cell)}


def arms_of(path: Path) -> Iterator[ArmRows]:
    """The arms of a file, checked, some at a time. Raises FileError, also of the first bad row."""
    arms = TableArms([path], ImportOptions(), Taken(None))
    arms.look()
    for rows in arms.rows():
        for bad in rows.bad:
            raise bad.refuse(rows.path)
        yield rows
