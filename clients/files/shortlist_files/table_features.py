"""Numbers out of cells: a column each, lists in one column, or a matrix beside a table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shortlist_files.arm_readers import mapped
from shortlist_files.arm_rows import wrong
from shortlist_files.cells import MISSING_VALUES, fault, list_of, number_of, plain

Floats = NDArray[np.floating]
REDUCED_TOGETHER = 256
FLOAT32_BYTES = 4


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
    if found.ndim == 1:
        found = found[:, None]
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
    return as_floats(found)


def as_floats(numbers: NDArray[Any]) -> Floats:
    """The numbers, float32 where that holds them all, else float64. No copy where they are so."""
    is_short = numbers.dtype.kind == "f" and numbers.dtype.itemsize <= FLOAT32_BYTES
    return numbers.astype("<f4" if is_short else "<f8", copy=False)


def reduced(rows: Floats, basis: NDArray[np.float32]) -> NDArray[np.float32]:
    """Embeddings times the basis of their catalogue. Shapes: (n, e), (to, e) -> (n, to).

    In float32 and in blocks of one size, as the service does it: the same arm has the same bits.
    """
    result = np.empty((len(rows), len(basis)), dtype=np.float32)
    block = np.zeros((REDUCED_TOGETHER, basis.shape[1]), dtype=np.float32)
    for start in range(0, len(rows), REDUCED_TOGETHER):
        some = rows[start : start + REDUCED_TOGETHER]
        block[: len(some)] = some
        block[len(some) :] = 0.0
        result[start : start + len(some)] = (block @ basis.T)[: len(some)]
    return result


def floats_of(cells: Sequence[Any], mark: str) -> list[float]:
    """Numbers that are written plainly, which a point of thousands is not. Raises ValueError, TypeError."""
    kinds = {*map(type, cells)}
    texts = cells if kinds == {str} else [cell for cell in cells if isinstance(cell, str)]
    # joined: to look into each cell would take longer than to read its number
    if mark != "." or bool in kinds or "_" in "".join(texts):
        raise ValueError
    return [*map(float, cells)]


def feature_of(cell: Any, mark: str = ".") -> float | str:
    """The number of a cell, with this decimal mark; or why there is none."""
    try:
        if isinstance(cell, str) and cell.strip().lower() not in MISSING_VALUES:
            return float(number_of(cell.strip(), mark))
        value = None if isinstance(cell, str) else plain(cell)
    except ValueError as error:
        return str(error)
    if value is None:
        return "is missing"
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    return str(fault("number", cell))


def vector_of(cell: Any, dim: int | None, mark: str = ".") -> list[float] | str:
    """The ``dim`` numbers of a cell, or why there are none. A number alone is a list of one, as 0,5 is where
    nobody knows how many there are: lists have brackets.
    """
    if dim in {1, None} and isinstance(number := feature_of(cell, mark), float):
        return [number]
    try:
        value = list_of(cell.strip()) if isinstance(cell, str) and cell.strip() else cell or None
        if value is None:
            return "must be a list of numbers" if cell else "is missing"
        if isinstance(value, list | tuple) and any(each is None or each != each for each in value):  # noqa: PLR0124
            return "must not hold null or NaN"
        value = plain(value)
    except (ValueError, TypeError):
        return "must be a list of finite numbers"
    is_list = isinstance(value, list) and bool(value)
    if not is_list or any(isinstance(each, bool) or not isinstance(each, int | float) for each in value):
        return "must be a list of numbers"
    return [float(each) for each in value]
