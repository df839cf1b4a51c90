"""Files, opened: what the system refuses is an error of one line. pyarrow, for Parquet, is an extra."""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from shortlist_files.arm_rows import FileError, wrong

BUFFER_BYTES = 1 << 20  # of a column; without it, all of a column's row group is read at once


def check_file(path: Path) -> None:
    """Raise FileError for a pipe or a device: to open one may wait for ever, and files are read twice."""
    if path.exists() and not (path.is_file() or path.is_dir()):
        wrong(path, None, None, "is a pipe or a device, and files are read several times: save it first")


@contextmanager
def opened(path: Path, mode: str = "r") -> Iterator[IO[Any]]:
    """The file, after the mark of byte order that spreadsheets begin UTF-8 with. Raises FileError."""
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


def arrow() -> tuple[Any, Any]:
    """The modules pyarrow and pyarrow.parquet. Raises FileError where they are not installed."""
    try:
        import pyarrow as pa  # noqa: PLC0415 - an extra
        import pyarrow.parquet as pq  # noqa: PLC0415 - as above
    except ImportError:
        raise FileError("Parquet files need pyarrow: pip install pyarrow") from None
    return pa, pq


@contextmanager
def parquet_file(path: Path) -> Iterator[Any]:
    """A ``pyarrow.parquet.ParquetFile`` to read. Raises FileError, also while it is read and converted."""
    pa, pq = arrow()
    check_file(path)
    try:
        with pq.ParquetFile(path, buffer_size=BUFFER_BYTES) as file:
            yield file
    except OSError as error:
        wrong(path, None, None, error.strerror or "is not a Parquet file, or is damaged")
    except UnicodeDecodeError:
        wrong(path, None, None, "has text that is not UTF-8")
    except (pa.ArrowException, OverflowError):  # OverflowError: a time that Python's cannot be
        wrong(path, None, None, "is not a Parquet file, or is damaged")
