"""Tables as people have them: CSV of any kind, Parquet, NDJSON, matrices, compressed, and folders of such.

A table is read some rows at a time, as often as it is asked for. Cells stay as the file has them: texts in
CSV, values elsewhere (``cells`` says what they mean).
"""

from __future__ import annotations

import bz2
import codecs
import csv
import gzip
import io
import lzma
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import IO, Any

import msgspec

from shortlist_files.arm_rows import NUMBERS, ROWS, BadRow, FileError, wrong
from shortlist_files.matrices import Matrix, ids_path
from shortlist_files.opening import check_file, opened, parquet_file

NAMES_SHOWN, NAME_CHARS = 12, 40
SAMPLE_ROWS = 200
MOST_COLUMNS = 10_000  # an embedding of 4,096 numbers, and as much again
DELIMITERS = ",;\t|"
FALLBACK = "cp1252"  # what spreadsheets of the West write where they do not write UTF-8
CHUNK = 1 << 20
MAX_CELL_CHARS = 1 << 26
OPENERS = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ\x00": lzma.open}
MARKS = {codecs.BOM_UTF8: "utf-8-sig", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
MISTAKEN = {
    b"PK\x03\x04": "is a spreadsheet or a zip archive: save it as CSV, or unpack it",
    b"\xd0\xcf\x11\xe0": "is an old spreadsheet: save it as CSV",
    b"(\xb5/\xfd": "is compressed with zstd: unpack it, or compress it with gzip",
    bytes(8): "begins with zeros: it is not a table of texts",
}
TEXTS, PARQUETS, LINES = (".csv", ".tsv", ".txt", ".tab"), (".parquet", ".pq"), (".ndjson", ".jsonl", ".json")


@dataclass(slots=True)
class Rows:
    """Rows that follow each other: cells by column, numbers of the rows from 1, lines of a CSV file."""

    numbers: Sequence[int]
    cells: Mapping[str, Sequence[Any]]
    lines: Sequence[int] | None = None
    bad: list[BadRow] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.numbers)

    def fault(self, place: int, name: str, reason: str, value: object = None) -> BadRow:
        """What is wrong with the cell at a place."""
        line = None if self.lines is None else self.lines[place]
        return BadRow(self.numbers[place], name, reason, value, line)


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

    def rows(self, columns: Sequence[str] | None = None, at_once: int = ROWS) -> Iterator[Rows]:
        """The rows, ``at_once`` together at most. ``columns``: those that are needed. Raises FileError."""
        names = self.names if columns is None else columns
        yield from self.reader(names, max(1, min(at_once, NUMBERS // max(1, len(names)))))


def shown(name: str) -> str:
    """A name of a column, not too long."""
    return name if len(name) <= NAME_CHARS else name[:NAME_CHARS] + "..."


def listed(table: Table) -> str:
    """The columns of a table, not too many."""
    more = len(table.names) - NAMES_SHOWN
    return ", ".join(map(shown, table.names[:NAMES_SHOWN])) + f" and {more} more" * (more > 0)


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
        twice = next((name for name, count in Counter(table.names).items() if count > 1), None)
        if twice is not None:
            wrong(table.path, None, shown(twice), "two columns have this name")
    return tables


def _is_part(path: Path, folder: Path) -> bool:
    return not any(part.startswith(("_", ".")) for part in path.relative_to(folder).parts)


def _with_folders(table: Table, folder: Path) -> Table:
    """Spark writes a column that it partitions by into the names of folders: ``brand=Aero``."""
    pairs = [part.split("=", 1) for part in table.path.relative_to(folder).parts[:-1] if "=" in part]
    if not pairs:
        return table
    constants = {name: None if value == "__HIVE_DEFAULT_PARTITION__" else value for name, value in pairs}

    def read(columns: Sequence[str], at_once: int) -> Iterator[Rows]:
        for rows in table.reader([name for name in columns if name in table.names], at_once):
            more = {name: [value] * len(rows) for name, value in constants.items() if name in columns}
            yield replace(rows, cells={**rows.cells, **more})

    return replace(table, names=[*table.names, *constants], reader=read)


def _open(path: Path, id_column: str, encoding: str | None) -> Table:
    check_file(path)
    endings = [each.lower() for each in path.suffixes]
    if endings and endings[-1] in {".gz", ".bz2", ".xz"}:
        endings.pop()
    ending = endings[-1] if endings else ""
    if ending == ".npy":
        return _npy(path)
    with _reading(path) as file:
        head = file.read(8)
    for mark, reason in MISTAKEN.items():
        if head.startswith(mark):
            wrong(path, None, None, reason)
    if head.startswith(b"PAR1") or ending in PARQUETS:
        return _parquet(path)
    if ending in LINES:
        return _ndjson(path)
    if ending in TEXTS or not ending:
        return _csv(path, id_column, encoding)
    raise FileError(f"{path}: the name must end with {', '.join((*TEXTS, *LINES, *PARQUETS, '.npy'))}")


@contextmanager
def _reading(path: Path, encoding: str | None = None) -> Iterator[IO[Any]]:
    """The unpacked bytes, or their text; what goes wrong while they are read is a FileError."""
    try:
        with path.open("rb") as file:
            start = file.read(6)
        opener: Any = next((opener for mark, opener in OPENERS.items() if start.startswith(mark)), open)
        with opener(path, "rb") as file:
            yield file if encoding is None else io.TextIOWrapper(file, encoding=encoding, newline="")
    except (EOFError, gzip.BadGzipFile, lzma.LZMAError):
        wrong(path, None, None, "cannot be unpacked, it is damaged or ends too early")
    except OSError as error:
        wrong(path, None, None, error.strerror or "cannot be unpacked, it is damaged")
    except UnicodeError as error:
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

    def reader(self, lines: Iterator[str] | Sequence[str], *, strict: bool = False) -> Any:
        """Blanks around quotes are read as people mean them, unless it is ``strict``."""
        return csv.reader(
            lines, delimiter=self.delimiter, escapechar=self.escape, skipinitialspace=True, strict=strict
        )


def _csv(path: Path, id_column: str, encoding: str | None) -> Table:
    csv.field_size_limit(MAX_CELL_CHARS)
    try:
        found = codecs.lookup(encoding).name if encoding else _encoding(path)
    except LookupError:
        raise FileError(f"--encoding: {path.name} cannot be read in an encoding of this name") from None
    dialect = _dialect(path, found, id_column)
    head = next((row for _, row in _records(path, dialect)), [])
    # A cell of the head is empty over the index of pandas: it is not read.
    names = [unicodedata.normalize("NFC", cell.strip().strip("\ufeff")) for cell in head]
    if not any(names):
        wrong(path, None, None, "has no rows, and no head that names its columns")
    guessed = not encoding and found == FALLBACK
    note = "is not UTF-8: it is read as Windows-1252; --encoding says otherwise" if guessed else ""

    def read(columns: Sequence[str], at_once: int) -> Iterator[Rows]:
        yield from _csv_rows(path, dialect, names, columns, at_once)

    return Table(path, [name for name in names if name], True, read, note, dialect.delimiter)


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
    with _reading(path, encoding) as text:
        left, lines = CHUNK, list[str]()
        while left > 0 and len(lines) < SAMPLE_ROWS and (line := text.readline(left)):
            lines.append(line)
            left -= len(line)
    if left <= 0 and len(lines) > 1:
        lines.pop()  # it may be cut
    skip = 0
    if lines and lines[0].strip().lower().startswith("sep=") and len(lines[0].strip()) == 5:
        return Dialect(encoding, lines[0].strip()[4], None, 1)
    while skip < len(lines) and not lines[skip].strip():
        skip += 1
    # Spark and MySQL write a quote within quotes as \" and not as two, which JSON in a cell has too: \"".
    escapes: list[str | None] = [None]
    if any('\\"' in line for line in lines):
        escapes = ["\\"] if any(re.search(r'\\"[^"\r\n]', line) for line in lines) else [None, "\\"]
    best, chosen = (False, 0.0, 0), Dialect(encoding, ",", escapes[0], skip)
    for dialect in (Dialect(encoding, mark, escape, skip) for mark in DELIMITERS for escape in escapes):
        try:
            rows = [row for row in dialect.reader(lines[skip:]) if any(row)]
        except csv.Error:
            continue
        if rows and len(rows[0]) >= 2:
            has_id = id_column in [cell.strip() for cell in rows[0]]
            alike = sum(len(row) == len(rows[0]) for row in rows) / len(rows)
            score = has_id, round(alike, 2), len(rows[0])
            if score > best:
                best, chosen = score, dialect
    return chosen


def _records(path: Path, dialect: Dialect) -> Iterator[tuple[int, list[str]]]:
    """Rows that are not blank, the head first, each with the number of its last line. Raises FileError."""
    record, last, count = list[str](), list[str](), 0

    def noted(text: IO[str]) -> Iterator[str]:
        for line in text:
            record.append(line)
            yield line

    with _reading(path, dialect.encoding) as text:
        for _ in range(dialect.skip):
            text.readline()
        table = dialect.reader(noted(text))
        try:
            for row in table:
                last, count = record.copy(), count + 1
                record.clear()
                if any(map(str.strip, row)):  # and not a line of separators alone
                    yield table.line_num + dialect.skip, row
                else:
                    count -= 1
            # A quote that does not end would make the rest of the file one cell.
            if count > 1 and last[0].count('"') % 2:
                count -= 1
                for _ in dialect.reader(last, strict=True):
                    pass
        except csv.Error as error:
            reason, line = f"cannot be read as CSV: {error}", table.line_num + dialect.skip
            if not count:
                wrong(path, None, None, reason)
            raise BadRow(count, "", reason, line=line).refuse(path) from None


def _csv_rows(
    path: Path, dialect: Dialect, names: Sequence[str], columns: Sequence[str], at_once: int
) -> Iterator[Rows]:
    places, width = [names.index(name) for name in columns], len(names)
    records = enumerate(islice(_records(path, dialect), 1, None), start=1)
    while some := list(islice(records, at_once)):
        numbers, lines, good, bad = list[int](), list[int](), list[list[str]](), list[BadRow]()
        for number, (line, row) in some:
            while len(row) > width and not row[-1].strip():
                row.pop()
            if len(row) == width:
                numbers.append(number)
                lines.append(line)
                good.append(row)
            else:
                reason = f"{len(row)} cells, the head has {width}"
                bad.append(BadRow(number, "", reason, dialect.delimiter.join(row)[:1_000], line))
        by_column = list(zip(*good, strict=True)) if good else [()] * width
        cells = {name: by_column[place] for name, place in zip(columns, places, strict=True)}
        yield Rows(numbers, cells, lines, bad)


# NDJSON


def _ndjson(path: Path) -> Table:
    """The columns are the names in any of the lines."""
    names, bad = dict[str, None](), list[BadRow]()
    for rows in _ndjson_rows(path, None, ROWS):
        names.update(dict.fromkeys(rows.cells))
        bad += rows.bad[:1]
    if not names:
        raise bad[0].refuse(path) if bad else FileError(f"{path}: there are no rows in it")

    def read(columns: Sequence[str], at_once: int) -> Iterator[Rows]:
        yield from _ndjson_rows(path, columns, at_once)

    return Table(path, list(names), False, read)


def _ndjson_rows(path: Path, columns: Sequence[str] | None, at_once: int) -> Iterator[Rows]:
    decode = msgspec.json.Decoder(dict[str, Any]).decode
    with _reading(path) as file:
        numbered = _documents(path, file)
        while some := list(islice(numbered, at_once)):
            numbers, found, bad = list[int](), list[dict[str, Any]](), list[BadRow]()
            for number, text in some:
                try:
                    found.append(text if isinstance(text, dict) else decode(text))
                    numbers.append(number)
                except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
                    is_nan = b"NaN" in text or b"Infinity" in text  # Python's own reader takes it
                    reason = "is not a JSON object" + ": NaN must be null" * is_nan
                    bad.append(BadRow(number, "", reason, text[:1_000].decode("utf-8", "replace")))
            names = list(dict.fromkeys(key for each in found for key in each)) if columns is None else columns
            yield Rows(numbers, {name: [each.get(name) for each in found] for name in names}, None, bad)


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
            except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
                wrong(path, None, None, "is not a JSON list of objects")
            return
        first = False
        yield number, text


# Parquet and matrices


def _parquet(path: Path) -> Table:
    with parquet_file(path) as file:
        names = [name for name in file.schema_arrow.names if not name.startswith("__index_level_")]

    def read(columns: Sequence[str], at_once: int) -> Iterator[Rows]:
        first = 1
        with parquet_file(path) as file:
            for batch in file.iter_batches(batch_size=at_once, columns=list(columns)):
                arrays = dict(zip(batch.schema.names, batch.columns, strict=True))
                cells = {name: _values(arrays[name]) for name in columns}
                yield Rows(range(first, first + batch.num_rows), cells)
                first += batch.num_rows

    return Table(path, names, False, read)


def _values(array: Any) -> Sequence[Any]:
    """A column as Python's values; a list of numbers stays an array of Arrow's, which is read at once."""
    import pyarrow as pa  # noqa: PLC0415 - an extra, and it is there: a file of it is open

    types, kind = pa.types, array.type
    if types.is_timestamp(kind) and kind.unit == "ns":  # to_pylist would need pandas
        array = array.cast(pa.timestamp("us", tz=kind.tz), safe=False)
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        of = kind.value_type
        if types.is_floating(of) or types.is_integer(of):
            return array  # type: ignore[no-any-return]
    return array.to_pylist()  # type: ignore[no-any-return]


def _npy(path: Path) -> Table:
    """A matrix, whose ids are lines of the file of the same name that ends with .ids."""
    matrix, names = Matrix(path), ids_path(path)

    def read(columns: Sequence[str], at_once: int) -> Iterator[Rows]:
        at_once = max(1, min(at_once, NUMBERS // max(1, matrix.dim)))
        with opened(names) as file:
            lines = (line.rstrip("\r\n") for line in file)
            for start in range(0, len(matrix), at_once):
                ids = list(islice(lines, min(at_once, len(matrix) - start)))
                if len(ids) < min(at_once, len(matrix) - start):
                    wrong(names, None, None, f"{start + len(ids):,} ids for {len(matrix):,} rows")
                cells: dict[str, Any] = {"id": ids}
                if "features" in columns:
                    cells["features"] = matrix.rows(start, len(ids))
                yield Rows(range(start + 1, start + 1 + len(ids)), cells)
            if next(lines, None) is not None:
                wrong(names, None, None, f"more ids than the {len(matrix):,} rows of {path.name}")

    return Table(path, ["id", "features"], False, read)
