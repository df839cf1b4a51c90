"""Tables as people have them: CSV of any kind, Parquet, NDJSON, also compressed, and folders of such files.

A table is read some rows at a time, as often as it is asked for. Cells stay as the file has them: texts in
CSV, values elsewhere (``cells`` says what they mean).
"""

from __future__ import annotations

import bz2
import codecs
import csv
import datetime as dt
import gzip
import io
import lzma
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import IO, Any

import msgspec

from shortlist_files.arm_rows import NUMBERS, ROWS, FileError, check_file, wrong
from shortlist_files.parquet import parquet_file

SAMPLE_ROWS = 200
MOST_COLUMNS = 10_000  # an embedding of 4,096 numbers, and as much again
DELIMITERS = ",;\t|"
FALLBACK = "cp1252"  # what spreadsheets of the West write where they do not write UTF-8
CHUNK = 1 << 20
MAX_CELL_CHARS = 1 << 26
MOST_FAULTS = 20  # of a row: an embedding may be of 4,096 columns
OPENERS = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ\x00": lzma.open}
MARKS = {codecs.BOM_UTF8: "utf-8-sig", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
MISTAKEN = {
    b"PK\x03\x04": "is a spreadsheet or a zip archive: save it as CSV, or unpack it",
    b"\xd0\xcf\x11\xe0": "is an old spreadsheet: save it as CSV",
    b"(\xb5/\xfd": "is compressed with zstd: unpack it, or compress it with gzip",
    b"ORC": "is an ORC file: save it as Parquet",
    bytes(8): "begins with zeros: it is not a table of texts",
    b"\x93NUMPY": "has numbers without ids: name it with --features, beside a table with the ids",
}
TEXTS, PARQUETS, LINES = (".csv", ".tsv", ".txt", ".tab"), (".parquet", ".pq"), (".ndjson", ".jsonl", ".json")


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
class Rows:
    """Rows that follow each other: cells by column, numbers of the rows from 1, lines of a CSV file."""

    numbers: Sequence[int]
    cells: Mapping[str, Sequence[Any]]
    lines: Sequence[int] | None = None
    bad: list[BadRow] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.numbers)


@dataclass(frozen=True, slots=True)
class Table:
    """One file. ``names``: its columns, in order; ``is_text``: all cells are texts. ``reader`` reads it.

    ``note``: what the user should know of how it is read. ``delimiter``: of the cells of a CSV file.
    """

    path: Path
    names: Sequence[str]
    is_text: bool
    reader: Any
    note: str = ""
    delimiter: str = ""

    def rows(self, columns: Sequence[str] | None = None) -> Iterator[Rows]:
        """The rows, some at a time. ``columns``: those that are needed. Raises FileError."""
        yield from self.reader(self.names if columns is None else columns)


def open_tables(path: Path, *, id_column: str, encoding: str | None = None) -> list[Table]:
    """The tables of a file, or of the files in a folder, as Spark writes them. Raises FileError."""
    if path.is_dir():
        parts = [each for each in sorted(path.rglob("*")) if each.is_file() and _is_part(each, path)]
        if not parts:
            wrong(path, None, None, "is a folder without files of rows")
        tables = [_with_folders(_open(each, id_column, encoding), path) for each in parts]
    else:
        tables = [_open(path, id_column, encoding)]
    for table in tables:
        if len(table.names) > MOST_COLUMNS:
            count = f"has {len(table.names):,} columns, at most {MOST_COLUMNS:,}"
            wrong(table.path, None, None, f"{count}: put embeddings into an .npy file")
    return tables


def _is_part(path: Path, folder: Path) -> bool:
    return not any(part.startswith(("_", ".")) for part in path.relative_to(folder).parts)


def _with_folders(table: Table, folder: Path) -> Table:
    """Spark writes a column that it partitions by into the names of folders: ``brand=Aero``."""
    pairs = [part.split("=", 1) for part in table.path.relative_to(folder).parts[:-1] if "=" in part]
    if not pairs:
        return table
    constants = {name: None if value == "__HIVE_DEFAULT_PARTITION__" else value for name, value in pairs}

    def read(columns: Sequence[str]) -> Iterator[Rows]:
        for rows in table.rows([name for name in columns if name in table.names]):
            more = {name: [value] * len(rows) for name, value in constants.items() if name in columns}
            yield Rows(rows.numbers, {**rows.cells, **more}, rows.lines, rows.bad)

    return replace(table, names=[*table.names, *constants], reader=read)


def _open(path: Path, id_column: str, encoding: str | None) -> Table:
    check_file(path)
    head, ending = _head(path), path.with_suffix("").suffix.lower() if path.suffix.lower() in {
        ".gz", ".bz2", ".xz"
    } else path.suffix.lower()  # fmt: skip
    for mark, reason in MISTAKEN.items():
        if head.startswith(mark):
            wrong(path, None, None, reason)
    if head.startswith(b"PAR1"):
        return _parquet(path)
    if ending in PARQUETS:
        wrong(path, None, None, "is not a Parquet file, or is damaged")
    if ending in LINES:
        return _ndjson(path)
    if ending in TEXTS or not ending:
        return _csv(path, id_column, encoding)
    known = ", ".join((*TEXTS, *LINES, *PARQUETS))
    raise FileError(f"{path}: the name must end with {known}")


def _head(path: Path) -> bytes:
    try:
        with _unpacked(path) as file:
            return file.read(8)
    except OSError as error:
        wrong(path, None, None, error.strerror or "cannot be unpacked, it is damaged")
    except (EOFError, lzma.LZMAError):
        wrong(path, None, None, "cannot be unpacked, it is damaged")


@contextmanager
def _unpacked(path: Path) -> Iterator[IO[bytes]]:
    with path.open("rb") as file:
        start = file.read(6)
    opener: Any = next((opener for mark, opener in OPENERS.items() if start.startswith(mark)), open)
    with opener(path, "rb") as file:
        yield file


@contextmanager
def _reading(path: Path) -> Iterator[IO[bytes]]:
    """The unpacked bytes; what goes wrong while they are read is a FileError."""
    try:
        with _unpacked(path) as file:
            yield file
    except (EOFError, gzip.BadGzipFile, lzma.LZMAError):
        wrong(path, None, None, "cannot be unpacked, it is damaged or ends too early")
    except OSError as error:
        wrong(path, None, None, error.strerror or "cannot be unpacked, it is damaged")
    except (UnicodeDecodeError, UnicodeError) as error:
        name = getattr(error, "encoding", "UTF-8")
        name = "Windows-1252" if name == "charmap" else name  # as Python calls all such tables
        wrong(path, None, None, f"has bytes that are not {name}")


# CSV


@dataclass(frozen=True, slots=True)
class Dialect:
    """How a file separates cells; ``skip``: lines before the head."""

    encoding: str
    delimiter: str
    escape: str | None
    skip: int

    def rows(self, text: IO[str] | _Noted) -> Any:
        """A reader behind the lines that are skipped."""
        for _ in range(self.skip):
            text.readline()
        return self.reader(text)

    def reader(self, lines: Iterable[str], *, strict: bool = False) -> Any:
        """Blanks around quotes are read as people mean them, unless it is ``strict``."""
        return csv.reader(
            lines, delimiter=self.delimiter, escapechar=self.escape, skipinitialspace=True, strict=strict
        )


def _csv(path: Path, id_column: str, encoding: str | None) -> Table:
    csv.field_size_limit(MAX_CELL_CHARS)
    found = encoding or _encoding(path)
    dialect = _dialect(path, found, id_column)
    with _reading(path) as file, _text(file, path, dialect.encoding) as text:
        try:
            head: list[str] = next((row for row in dialect.rows(text) if any(map(str.strip, row))), [])
        except csv.Error as error:
            wrong(path, None, None, f"cannot be read as CSV: {error}")
    names = _names(path, head)
    note = "is not UTF-8: it is read as Windows-1252; --encoding says otherwise" if found == FALLBACK else ""

    def read(columns: Sequence[str]) -> Iterator[Rows]:
        yield from _csv_rows(path, dialect, names, columns)

    shown = [name for name in names if name]
    return Table(path, shown, True, read, note if encoding is None else "", dialect.delimiter)


@contextmanager
def _text(file: IO[bytes], path: Path, encoding: str) -> Iterator[IO[str]]:
    try:
        text = io.TextIOWrapper(file, encoding=encoding, newline="")
    except LookupError:
        raise FileError(f"--encoding: {path.name} cannot be read in an encoding of this name") from None
    yield text


def _encoding(path: Path) -> str:
    """UTF-8 if all of the file is, else what its mark of byte order says, else Windows-1252."""
    with _reading(path) as file:
        start = file.read(CHUNK)
        for mark, encoding in MARKS.items():
            if start.startswith(mark):
                return encoding
        if 5 * (odd := start[1:200:2]).count(0) > 2 * max(len(odd), 5):
            return "utf-16-le"
        decoder = codecs.getincrementaldecoder("utf-8")()
        try:
            while start:
                decoder.decode(start)
                start = file.read(CHUNK)
            decoder.decode(b"", final=True)
        except UnicodeDecodeError:
            return FALLBACK
    return "utf-8"


def _dialect(path: Path, encoding: str, id_column: str) -> Dialect:
    """The separator that gives the rows of a sample the same number of cells, and the head the id."""
    with _reading(path) as file, _text(file, path, encoding) as text:
        lines = _sample(text)
    skip = 0
    if lines and lines[0].strip().lower().startswith("sep=") and len(lines[0].strip()) == 5:
        return Dialect(encoding, lines[0].strip()[4], _escape(lines), 1)
    while skip < len(lines) and not lines[skip].strip():
        skip += 1
    best, chosen = (False, 0.0, 0), ","
    for delimiter in DELIMITERS:
        try:
            rows = [
                row
                for row in csv.reader(lines[skip:], delimiter=delimiter, skipinitialspace=True)
                if any(row)
            ]
        except csv.Error:
            continue
        if not rows or len(rows[0]) < 2:
            continue
        widths = Counter(map(len, rows))
        has_id = id_column in [cell.strip() for cell in rows[0]]
        score = has_id, round(widths[len(rows[0])] / len(rows), 2), len(rows[0])
        if score > best:
            best, chosen = score, delimiter
    return Dialect(encoding, chosen, _escape(lines), skip)


def _sample(text: IO[str]) -> list[str]:
    """The first lines, a megabyte of them at most."""
    lines, left = list[str](), CHUNK
    while left > 0 and len(lines) < SAMPLE_ROWS and (line := text.readline(left)):
        lines.append(line)
        left -= len(line)
    return lines if left > 0 or len(lines) < 2 else lines[:-1]  # the last one may be cut


def _escape(lines: Sequence[str]) -> str | None:
    r"""Spark and MySQL write a quote within quotes as \" and not as two."""
    return "\\" if any('\\"' in line and not line.rstrip().endswith('\\"') for line in lines) else None


def _names(path: Path, head: Sequence[str]) -> list[str]:
    """The columns; "" where a cell of the head is empty, as over the index of pandas: it is not read."""
    names = [unicodedata.normalize("NFC", cell.strip().strip("\ufeff")) for cell in head]
    if not any(names):
        wrong(path, None, None, "has no rows, and no head that names its columns")
    twice = next((name for name, count in Counter(filter(None, names)).items() if count > 1), None)
    if twice is not None:
        wrong(path, None, twice[:80], "two columns have this name")
    return names


class _Noted:
    """Lines of a text, each noted in ``record`` as it is read."""

    def __init__(self, text: IO[str], record: list[str]) -> None:
        self._text, self._record = text, record

    def readline(self) -> str:
        return self._text.readline()

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        line = next(self._text)
        self._record.append(line)
        return line


def _csv_rows(path: Path, dialect: Dialect, names: Sequence[str], columns: Sequence[str]) -> Iterator[Rows]:
    places = {name: place for place, name in enumerate(names) if name}
    width, at_once = len(names), max(1, min(ROWS, NUMBERS // max(1, len(columns))))
    with _reading(path) as file, _text(file, path, dialect.encoding) as text:
        record = list[str]()
        table = dialect.rows(_Noted(text, record))
        number, is_head = 0, True
        cells, numbers, lines, bad = list[list[str]](), list[int](), list[int](), list[BadRow]()

        def rows() -> Rows:
            by_column = list(zip(*cells, strict=True)) if cells else [()] * width
            return Rows(
                list(numbers),
                {name: by_column[places[name]] for name in columns},
                list(lines),
                list(bad),
            )

        try:
            for row in table:
                last = record.copy()
                record.clear()
                if not any(map(str.strip, row)):  # a blank line, or one of separators alone
                    continue
                if is_head:
                    is_head = False
                    continue
                number += 1
                line = table.line_num + dialect.skip
                while len(row) > width and not row[-1].strip():
                    row.pop()
                if len(row) != width:
                    reason = f"{len(row)} cells, the head has {width}"
                    bad.append(BadRow(number, "", reason, dialect.delimiter.join(row)[:1_000], line))
                else:
                    cells.append(row)
                    numbers.append(number)
                    lines.append(line)
                if len(cells) >= at_once or len(bad) >= at_once:
                    yield rows()
                    cells, numbers, lines, bad = [], [], [], []
            if number:  # a quote that does not end would make the rest of the file one cell
                number -= 1
                for _ in dialect.reader(last, strict=last[0].count('"') % 2 == 1):
                    pass
        except csv.Error as error:
            raise BadRow(number + 1, "", f"cannot be read as CSV: {error}", line=table.line_num).refuse(
                path
            ) from None
        if cells or bad:
            yield rows()


# NDJSON


def _ndjson(path: Path) -> Table:
    """The columns are the names in any of the lines."""
    names: dict[str, None] = {}
    for rows in _ndjson_rows(path, None):
        names.update(dict.fromkeys(rows.cells))

    def read(columns: Sequence[str]) -> Iterator[Rows]:
        yield from _ndjson_rows(path, columns)

    return Table(path, list(names), False, read)


def _ndjson_rows(path: Path, columns: Sequence[str] | None) -> Iterator[Rows]:
    decode = msgspec.json.Decoder(dict[str, Any]).decode
    with _reading(path) as file:
        numbered = _documents(path, file)
        while some := list(islice(numbered, ROWS)):
            numbers, found, bad = list[int](), list[dict[str, Any]](), list[BadRow]()
            for number, text in some:
                try:
                    found.append(text if isinstance(text, dict) else decode(text))
                except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
                    reason = _json_reason(text)
                    bad.append(BadRow(number, "", reason, text[:1_000].decode("utf-8", "replace")))
                else:
                    numbers.append(number)
            names = list(dict.fromkeys(key for each in found for key in each)) if columns is None else columns
            yield Rows(numbers, {name: [each.get(name) for each in found] for name in names}, None, bad)


def _json_reason(text: bytes) -> str:
    """Python's own reader takes NaN: then it is that which is wrong."""
    stripped = text.strip()
    if not stripped.startswith(b"{"):
        return "is not a JSON object"
    return "is not JSON" + (": NaN must be null" if b"NaN" in stripped or b"Infinity" in stripped else "")


def _documents(path: Path, file: IO[bytes]) -> Iterator[tuple[int, Any]]:
    """Lines with their numbers; or the objects of one list, as ``.json`` files often are."""
    first = True
    for number, line in enumerate(file, start=1):
        text = line.removeprefix(codecs.BOM_UTF8) if first else line
        if not text.strip():
            continue
        if first and text.lstrip().startswith(b"["):
            try:
                yield from enumerate(msgspec.json.decode(text + file.read(), type=list[dict[str, Any]]), 1)
            except (msgspec.DecodeError, RecursionError):
                wrong(path, None, None, "is not a JSON list of objects")
            return
        first = False
        yield number, text


# Parquet


def _parquet(path: Path) -> Table:
    with parquet_file(path) as file:
        names = [name for name in file.schema_arrow.names if not name.startswith("__index_level_")]
    twice = next((name for name, count in Counter(names).items() if count > 1), None)
    if twice is not None:
        wrong(path, None, twice[:80], "two columns have this name")

    def read(columns: Sequence[str]) -> Iterator[Rows]:
        first = 1
        with parquet_file(path) as file:
            at_once = max(1, min(ROWS, NUMBERS // max(1, len(columns))))
            for batch in file.iter_batches(batch_size=at_once, columns=list(columns)):
                arrays = dict(zip(batch.schema.names, batch.columns, strict=True))
                cells = {name: _values(path, first, name, arrays[name]) for name in columns}
                yield Rows(range(first, first + batch.num_rows), cells)
                first += batch.num_rows

    return Table(path, names, False, read)


def _values(path: Path, first: int, name: str, array: Any) -> Sequence[Any]:
    """A column as Python's values; a list of numbers stays an array of Arrow's, which is read at once."""
    import pyarrow as pa  # noqa: PLC0415 - an extra, and it is there: a file of it is open

    kind = array.type
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_timestamp(kind) and kind.unit == "ns":  # as_py would need pandas
        array = array.cast(pa.timestamp("us", tz=kind.tz), safe=False)
    if _is_list(pa, kind) and _is_number(pa, kind.value_type):
        return array  # type: ignore[no-any-return]
    found = list[Any]()
    try:
        found.extend(value.as_py() for value in array)
    except UnicodeDecodeError:
        wrong(path, first + len(found), name, "is not UTF-8")
    except (OverflowError, ValueError):  # a date beyond those of Python
        wrong(path, first + len(found), name, f"is a time outside of the years 1 to {dt.MAXYEAR}")
    return found


def _is_list(pa: Any, kind: Any) -> bool:
    types = pa.types
    tests = (types.is_list, types.is_large_list, types.is_fixed_size_list)
    return any(test(kind) for test in tests)


def _is_number(pa: Any, kind: Any) -> bool:
    return bool(pa.types.is_floating(kind) or pa.types.is_integer(kind))
