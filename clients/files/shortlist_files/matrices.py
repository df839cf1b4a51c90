"""Matrices of .npy files: their rows are read, and not mapped.

Pages that are mapped count as memory of ours, and end the process where a file becomes shorter.
"""

from __future__ import annotations

from pathlib import Path
from tokenize import TokenError
from typing import Any

import numpy as np

from shortlist_files.arm_rows import Floats, wrong
from shortlist_files.opening import check_file

FLOAT32_BYTES = 4


class Matrix:
    """A matrix of numbers, a row for each arm. Shape: (len, dim). Raises FileError: it is none."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._mapped = _mapped(path)
        shape = self._mapped.shape
        if len(shape) not in {1, 2} or self._mapped.dtype.kind not in "fiu":
            wrong(path, None, None, "must be a matrix of numbers, a row for each arm")
        self.dim = int(shape[1]) if len(shape) == 2 else 1

    def __len__(self) -> int:
        return len(self._mapped)

    def rows(self, start: int, count: int) -> Floats:
        """Some rows. Raises FileError: the file has become shorter."""
        mapped = self._mapped
        if not mapped.flags.c_contiguous:  # columns that follow each other: a row is all over the file
            return as_floats(mapped[start : start + count])
        offset = mapped.offset + start * self.dim * mapped.itemsize
        numbers = np.fromfile(self.path, dtype=mapped.dtype, count=count * self.dim, offset=offset)
        if len(numbers) < count * self.dim:
            wrong(self.path, None, None, "became shorter while it was read")
        return as_floats(numbers.reshape(count, self.dim))


def _mapped(path: Path) -> np.memmap[Any, Any]:
    """The head of the file is Python, which fails in many ways where it is damaged."""
    check_file(path)
    try:
        with np.errstate(over="ignore"):  # of a shape beyond 64 bits
            found = np.load(path, mmap_mode="r", allow_pickle=False)
            if isinstance(found, np.memmap):
                return found
            found.close()  # an .npz, whatever its name is
            wrong(path, None, None, "is an archive of arrays: save the one of the features with numpy.save")
    except OSError as error:
        wrong(path, None, None, error.strerror or "cannot be read")
    except (ValueError, TypeError, OverflowError, EOFError, SyntaxError, MemoryError, TokenError):
        wrong(path, None, None, "is not an .npy file of numbers, or is damaged")


def as_floats(numbers: np.ndarray[Any, Any]) -> Floats:
    """The numbers, float32 where that holds them all, else float64. No copy where they are so."""
    is_short = numbers.dtype.kind == "f" and numbers.dtype.itemsize <= FLOAT32_BYTES
    return numbers.astype("<f4" if is_short else "<f8", copy=False)


def ids_path(path: Path) -> Path:
    """Where the ids of a matrix are."""
    return path.with_suffix(".ids")
