"""pyarrow, which only Parquet files need: an extra."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from shortlist_files.arm_rows import FileError, check_file, wrong

BUFFER_BYTES = 1 << 20  # of a column; without it, all of a column's row group is read at once


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
