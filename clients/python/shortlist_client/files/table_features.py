"""Numbers out of cells: a column each, lists in one column, or a matrix beside a table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shortlist_client.files.arm_readers import mapped
from shortlist_client.files.arm_rows import wrong
from shortlist_client.files.cells import MISSING_VALUES, list_of, number_of, plain

Floats = NDArray[np.floating]


def npy_of(features: str | None) -> Path | None:
    """The matrix that ``--features`` names, if it names one."""
    return Path(features) if features is not None and features.lower().endswith(".npy") else None


def usual_columns(names: Sequence[str], dim: int | None) -> list[str]:
    """Columns that are named as an export names them."""
    for name in ("features", "embedding"):
        if name in names:
            return [name]
    numbered = [f"x{number}" for number in range(dim or 0)]
    return numbered if numbered and set(numbered) <= set(names) else []


def matrix_of(path: Path) -> NDArray[Any]:
    """The matrix of a file, mapped. Raises FileError."""
    found = mapped(path)
    if found.ndim != 2 or found.dtype.kind not in "fiu":
        wrong(path, None, None, "must be a matrix of numbers, a row for each row of the table")
    return found  # type: ignore[no-any-return]


def whole_column(column: Any, dim: int | None) -> Floats | None:
    """The numbers of a column of lists, if all have as many and none is missing. Shape: (n, d)."""
    lengths = column.value_lengths()
    if column.null_count or not len(lengths):
        return None
    counts = lengths.to_numpy(zero_copy_only=False)
    numbers = column.flatten()
    if (counts != (counts[0] if dim is None else dim)).any() or numbers.null_count or not counts[0]:
        return None
    found = numbers.to_numpy(zero_copy_only=False).reshape(len(counts), -1)
    return found.astype(  # type: ignore[no-any-return]
        np.float64 if found.dtype.itemsize > 4 or found.dtype.kind != "f" else np.float32
    )


def floats_of(cells: Sequence[Any]) -> list[float]:
    """Numbers that are written plainly. Raises ValueError, TypeError."""
    if any(isinstance(cell, bool) or "_" in cell for cell in cells if isinstance(cell, bool | str)):
        raise ValueError
    return [float(cell) for cell in cells]


def feature_of(cell: Any) -> float | str:
    """The number of a cell, also with a decimal comma; or why there is none."""
    try:
        if isinstance(cell, str) and cell.strip().lower() not in MISSING_VALUES:
            return float(number_of(cell.strip(), "," if "," in cell and "." not in cell else "."))
        value = None if isinstance(cell, str) else plain(cell)
    except ValueError as error:
        return str(error)
    if value is None:
        return "is missing"
    return (
        float(value) if isinstance(value, int | float) and not isinstance(value, bool) else "must be a number"
    )


def vector_of(cell: Any) -> list[float] | str:
    """The numbers of a cell, or why there are none."""
    try:
        value = list_of(cell.strip()) if isinstance(cell, str) and cell.strip() else cell or None
        if value is None:
            return "must be a list of numbers" if cell else "is missing"
        if isinstance(value, list | tuple) and any(each is None or each != each for each in value):  # noqa: PLR0124
            return "must not hold null or NaN"
        value = plain(value)
    except (ValueError, TypeError):
        return "must be a list of finite numbers"
    if not isinstance(value, list) or not value:
        return "must be a list of numbers"
    if any(isinstance(each, bool) or not isinstance(each, int | float) for each in value):
        return "must be a list of numbers"
    return [float(each) for each in value]
