"""pyarrow, which only Parquet files need: an extra."""

from __future__ import annotations

from typing import Any

from app.files.arm_rows import FileError


def arrow() -> tuple[Any, Any]:
    """The modules pyarrow and pyarrow.parquet. Raises FileError where they are not installed."""
    try:
        import pyarrow as pa  # noqa: PLC0415 - an extra
        import pyarrow.parquet as pq  # noqa: PLC0415 - as above
    except ImportError:
        raise FileError("Parquet files need pyarrow: pip install 'shortlist[parquet]'") from None
    return pa, pq
