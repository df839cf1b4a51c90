"""Arms out of files, some rows at a time. The columns of each kind: ``arm_files``."""

from __future__ import annotations

import csv
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from tokenize import TokenError
from typing import IO, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from shortlist_files.arm_rows import ArmRows, check_file, json_fault, rows_at_once, wrong
from shortlist_files.parquet import arrow, parquet_file

COLUMNS = frozenset({"id", "features", "tags", "metadata"})
GZIP = b"\x1f\x8b"


class Line(msgspec.Struct, forbid_unknown_fields=True):
    """An arm as a line of JSON; ``metadata`` stays as it is written."""

    id: str
    features: list[float]
    tags: list[str] | None = None
    metadata: msgspec.Raw = msgspec.Raw(b"")


@contextmanager
def opened(path: Path, mode: str = "r") -> Iterator[IO[Any]]:
    """The file, after the mark of byte order that spreadsheets begin UTF-8 with.

    Raises FileError where the system refuses.
    """
    check_file(path)
    text: dict[str, Any] = {} if "b" in mode else {"encoding": "utf-8-sig", "newline": ""}
    try:
        with path.open(mode, **text) as file:
            if "b" in mode and file.read(len(BOM_UTF8)) != BOM_UTF8:
                file.seek(0)
            yield file
    except OSError as error:
        wrong(path, None, None, error.strerror or "cannot be opened")
    except UnicodeDecodeError:
        wrong(path, None, None, "is not UTF-8")


def read_ndjson(path: Path, dim: int) -> Iterator[ArmRows]:
    """Rows are lines, blank ones too, so that the number of a row is that of its line."""
    decode = msgspec.json.Decoder(Line).decode

    def line_of(row: int, text: bytes) -> Line:
        try:
            return decode(text)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
            wrong(path, row, *_place_of(error, text))

    with opened(path, "rb") as file:
        numbered = ((row, text) for row, text in enumerate(file, start=1) if text.strip())
        while some := list(islice(numbered, rows_at_once(dim))):
            lines = [line_of(row, text) for row, text in some]
            yield from _one_by_one_if_gaps([row for row, _ in some], _rows_of(path, some[0][0], lines, dim))


def _one_by_one_if_gaps(numbers: Sequence[int], rows: ArmRows) -> Iterator[ArmRows]:
    """Rows with blank lines between them are cut there: what is wrong is named by its own line."""
    start = 0
    for end in range(1, len(numbers) + 1):
        if end == len(numbers) or numbers[end] != numbers[end - 1] + 1:
            cut = slice(start, end)
            tags = None if rows.tags is None else rows.tags[cut]
            metadata = None if rows.metadata is None else rows.metadata[cut]
            yield ArmRows(numbers[start], rows.ids[cut], rows.features[cut], tags, metadata)
            start = end


def _rows_of(path: Path, first: int, lines: Sequence[Line], dim: int) -> ArmRows:
    lengths = [len(line.features) for line in lines]
    _same_length(path, first, lengths, dim)
    tags = [line.tags or [] for line in lines] if any(line.tags for line in lines) else None
    metadata = [bytes(line.metadata).decode() for line in lines]
    metadata = ["" if text == "null" else text for text in metadata]
    features = np.array([line.features for line in lines], dtype=np.float64)
    return ArmRows(first, [line.id for line in lines], features, tags, metadata if any(metadata) else None)


def _same_length(path: Path, first: int, lengths: Sequence[int], dim: int) -> None:
    for place, length in enumerate(lengths):
        if length != dim:
            wrong(path, first + place, "features", f"{length} numbers, the catalogue has {dim}")


def _place_of(error: Exception, line: bytes) -> tuple[str | None, str]:
    """The column, and what is wrong with it; nothing of what the file holds is repeated."""
    text = str(error)
    if isinstance(error, msgspec.ValidationError):
        reason, _, at = text.partition(" - at `$.")
        return (at.rstrip("`").partition("[")[0] or None), reason
    fault = json_fault(line)
    return (None, "is not JSON") if fault is None else (str(fault[0][0]), fault[1])


def read_csv(path: Path, dim: int) -> Iterator[ArmRows]:
    """Rows are counted without the head."""
    with opened(path) as file:
        table = csv.reader(file)
        try:
            head = next(table, [])
            columns = _columns(path, head, dim)
            first = 1
            while some := list(islice(table, rows_at_once(dim))):
                yield _csv_rows(path, first, some, columns, len(head))
                first += len(some)
        except csv.Error as error:
            wrong(path, table.line_num, None, str(error))


@dataclass(frozen=True, slots=True)
class Columns:
    """Where each column of a CSV file stands; None: nowhere."""

    id: int
    features: Sequence[int]
    tags: int | None
    metadata: int | None


def _columns(path: Path, head: Sequence[str], dim: int) -> Columns:
    places = {name: place for place, name in enumerate(head)}
    wanted = ["id", *(f"x{number}" for number in range(dim))]
    missing = next((name for name in wanted if name not in places), None)
    if missing is not None:
        wrong(path, None, None, f"has no column {missing}; the catalogue has {dim} numbers, x0 to x{dim - 1}")
    known = {*wanted, "tags", "metadata"}
    for place, name in enumerate(head, start=1):
        if name not in known:
            wrong(path, None, f"column {place}", f"must be one of id, x0 to x{dim - 1}, tags and metadata")
    if len(places) < len(head):
        wrong(path, None, None, "has two columns of one name")
    features = [places[name] for name in wanted[1:]]
    return Columns(places["id"], features, places.get("tags"), places.get("metadata"))


def _csv_rows(
    path: Path, first: int, cells: Sequence[Sequence[str]], columns: Columns, width: int
) -> ArmRows:
    features = np.empty((len(cells), len(columns.features)))
    for place, row in enumerate(cells):
        if len(row) != width:
            wrong(path, first + place, None, f"{len(row)} cells, the head has {width}")
        for coordinate, column in enumerate(columns.features):
            try:
                features[place, coordinate] = _number(row[column])
            except ValueError:
                wrong(path, first + place, f"x{coordinate}", "must be a number")
    tags = metadata = None
    if columns.tags is not None:
        texts = [row[columns.tags] for row in cells]
        tags = [_tags_of(path, first + place, text) for place, text in enumerate(texts)]
    if columns.metadata is not None:
        metadata = [row[columns.metadata] for row in cells]
    return ArmRows(first, [row[columns.id] for row in cells], features, tags, metadata)


def _number(text: str) -> float:
    """Python also reads 1_0 and the digits of other scripts, which no other reader of CSV does."""
    if "_" in text or not text.isascii():
        raise ValueError
    return float(text)


def _tags_of(path: Path, row: int, text: str) -> Sequence[str]:
    try:
        return msgspec.json.decode(text, type=list[str]) if text else []
    except (msgspec.DecodeError, RecursionError):
        wrong(path, row, "tags", "must be a JSON list of strings")


def read_npy(path: Path, dim: int) -> Iterator[ArmRows]:
    """Little of the matrix is held at a time."""
    matrix = _matrix(path, dim)
    names = ids_path(path)
    with opened(names) as file:
        lines = (line.rstrip("\r\n") for line in file)
        for start in range(0, len(matrix), rows_at_once(dim)):
            block = _rows(path, matrix, start, min(rows_at_once(dim), len(matrix) - start))
            ids = list(islice(lines, len(block)))
            if len(ids) < len(block):
                wrong(names, None, None, f"{start + len(ids):,} ids for {len(matrix):,} rows")
            yield ArmRows(start + 1, ids, block)
        if next(lines, None) is not None:
            wrong(names, None, None, f"more ids than the {len(matrix):,} rows of {path.name}")


def _rows(path: Path, matrix: np.memmap[Any, Any], start: int, count: int) -> NDArray[np.floating]:
    """Some rows of a mapped matrix. They are read, since pages that were mapped count as memory of ours."""
    if not matrix.flags.c_contiguous:
        return matrix[start : start + count]  # columns that follow each other: a row is all over the file
    width = matrix.shape[1]
    offset = matrix.offset + start * width * matrix.itemsize
    numbers = np.fromfile(path, dtype=matrix.dtype, count=count * width, offset=offset)
    if len(numbers) < count * width:
        wrong(path, None, None, "became shorter while it was read")
    return numbers.reshape(count, width)


def _matrix(path: Path, dim: int) -> np.memmap[Any, Any]:
    matrix = mapped(path)
    kinds = (np.dtype("<f4"), np.dtype("<f8"))
    if not isinstance(matrix, np.memmap) or matrix.ndim != 2 or matrix.dtype not in kinds:
        wrong(path, None, None, "must be a matrix of little-endian float32 or float64")
    if matrix.shape[1] != dim:
        wrong(path, None, "features", f"{matrix.shape[1]} numbers a row, the catalogue has {dim}")
    return matrix


def mapped(path: Path) -> Any:
    """Raises FileError. The head of the file is Python, which fails in many ways where it is damaged."""
    check_file(path)
    try:
        with np.errstate(over="ignore"):  # of a shape beyond 64 bits
            found = np.load(path, mmap_mode="r", allow_pickle=False)
            if isinstance(found, np.ndarray):
                return found
            found.close()  # an .npz, whatever its name is
            wrong(path, None, None, "is an archive of arrays: save the one of the features with numpy.save")
    except OSError as error:
        wrong(path, None, None, error.strerror or "cannot be read")
    except (ValueError, TypeError, OverflowError, EOFError, SyntaxError, MemoryError, TokenError):
        wrong(path, None, None, "is not an .npy file of numbers, or is damaged")


def ids_path(path: Path) -> Path:
    """Where the ids of a matrix are."""
    return path.with_suffix(".ids")


def read_parquet(path: Path, dim: int) -> Iterator[ArmRows]:
    """Row group by row group, some rows at a time."""
    pa, _ = arrow()
    with parquet_file(path) as file:
        _check_schema(path, file.schema_arrow, pa)
        first = 1
        for batch in file.iter_batches(batch_size=rows_at_once(dim)):
            yield _parquet_rows(path, first, batch, dim)
            first += batch.num_rows


def _check_schema(path: Path, schema: Any, pa: Any) -> None:
    rules = _schema_rules(pa)
    for name in ("id", "features"):
        if schema.get_field_index(name) < 0:
            wrong(path, None, None, f"has no column {name}")
    for place, column in enumerate(schema, start=1):
        if column.name not in rules:
            wrong(path, None, f"column {place}", "must be one of id, features, tags and metadata")
        fits, rule = rules[column.name]
        if not fits(column.type):
            wrong(path, None, column.name, rule)


def _schema_rules(pa: Any) -> Mapping[str, tuple[Callable[[Any], bool], str]]:
    """By column of an export: whether a type fits, and what it must be."""
    types = pa.types

    def is_text(kind: Any) -> bool:
        return bool(types.is_string(kind) or types.is_large_string(kind))

    def is_list(kind: Any) -> bool:
        return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))

    return {
        "id": (is_text, "must be strings"),
        "features": (
            lambda kind: is_list(kind) and kind.value_type in {pa.float32(), pa.float64()},
            "must be lists of float32 or float64",
        ),
        "tags": (lambda kind: is_list(kind) and is_text(kind.value_type), "must be lists of strings"),
        "metadata": (is_text, "must be JSON texts"),
    }


def _parquet_rows(path: Path, first: int, batch: Any, dim: int) -> ArmRows:
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    for name in ("id", "features"):
        if columns[name].null_count:
            row = columns[name].is_null().to_pylist().index(True)
            wrong(path, first + row, name, "must not be null")
    vectors = columns["features"]
    numbers = vectors.flatten()
    if len(numbers) != dim * len(vectors) or not _of_length(vectors, dim):
        _same_length(path, first, vectors.value_lengths().to_pylist(), dim)
    if numbers.null_count:
        row = numbers.is_null().to_pylist().index(True) // dim
        wrong(path, first + row, "features", "must not hold null")
    features = numbers.to_numpy(zero_copy_only=False).reshape(-1, dim)
    tags = metadata = None
    if "tags" in columns:
        tags = [given or [] for given in _texts(path, first, "tags", columns["tags"])]
        place = next((place for place, given in enumerate(tags) if None in given), None)
        if place is not None:
            wrong(path, first + place, "tags", "must not hold null")
    if "metadata" in columns:
        metadata = [given or "" for given in _texts(path, first, "metadata", columns["metadata"])]
    return ArmRows(first, _texts(path, first, "id", columns["id"]), features, tags, metadata)


def _texts(path: Path, first: int, name: str, column: Any) -> list[Any]:
    """The values of a column of texts; Arrow does not look whether they are UTF-8."""
    found = list[Any]()
    try:
        found.extend(value.as_py() for value in column)
    except UnicodeDecodeError:
        wrong(path, first + len(found), name, "is not UTF-8")
    return found


def _of_length(vectors: Any, dim: int) -> bool:
    lengths = vectors.value_lengths()
    return not len(lengths) or bool((lengths.to_numpy(zero_copy_only=False) == dim).all())


class _Features(msgspec.Struct):
    features: list[float]


def ndjson_dim(path: Path) -> int:
    """How many features the first arm has, as the functions below; 0: there is none."""
    with opened(path, "rb") as file:
        first = next((line for line in file if line.strip()), None)
    return 0 if first is None else len(msgspec.json.decode(first, type=_Features).features)


def csv_dim(path: Path) -> int:
    with opened(path) as file:
        head = next(csv.reader(file), [])
    return sum(name.startswith("x") and name[1:].isdigit() for name in head)


def npy_dim(path: Path) -> int:
    matrix = mapped(path)
    return int(matrix.shape[1]) if matrix.ndim == 2 and len(matrix) else 0


def parquet_dim(path: Path) -> int:
    _, pq = arrow()
    with pq.ParquetFile(path) as file:
        if "features" not in file.schema_arrow.names:
            wrong(path, None, None, "has no column features")
        for batch in file.iter_batches(1, columns=["features"]):
            return len(batch.column(0)[0].as_py() or ())
    return 0


def is_ndjson_export(path: Path) -> bool:
    """Whether the columns are those of an export, as the functions below; also if they cannot be read."""
    with path.open("rb") as file:
        first = next((line for line in file if line.strip()), b"").removeprefix(BOM_UTF8)
    if first.startswith(GZIP):
        return False
    try:
        found = msgspec.json.decode(first)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return not first.lstrip().startswith(b"[{")
    return not isinstance(found, dict) or (found.keys() <= COLUMNS and "features" in found)


def is_csv_export(path: Path) -> bool:
    with path.open("rb") as file:
        line = file.readline(1 << 20).removeprefix(BOM_UTF8)
    if line.startswith(GZIP):
        return False
    head = next(csv.reader([line.decode("utf-8", "replace")]), [])
    names = {name for name in head if not (name.startswith("x") and name[1:].isdigit())}
    return not head or (len(names) < len(head) and names <= COLUMNS - {"features"})


def is_parquet_export(path: Path) -> bool:
    pa, pq = arrow()
    try:
        with pq.ParquetFile(path) as file:
            schema = file.schema_arrow
    except (OSError, pa.ArrowException):
        return True
    rules = _schema_rules(pa)
    return {"id", "features"} <= set(schema.names) and all(
        column.name in rules and rules[column.name][0](column.type) for column in schema
    )
