"""The format of shared files: mapped files of numbers, written once, and never changed.

They are for the owner's eyes only. Pages read by processes are in memory once for all of them, and written
ones are the process's own (copy on write). A file may be longer than its content: the room takes no space on
disk and is not read.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import FileIO
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Contents = TypeVar("Contents")

_BORDER = 8


def write(path: Path, array: Array, *, length: int = 0) -> None:
    """A new file of these numbers, of ``length`` bytes if they are fewer. Raises OSError."""
    with created(path) as file:
        write_all(file, array)
        file.truncate(max(length, array.nbytes))


def created(path: Path) -> FileIO:
    """A new file for the owner's eyes only. Raises OSError."""
    # Without a buffer: arrays are written in large pieces as they are.
    return FileIO(path, "xb", opener=lambda name, flags: os.open(name, flags, 0o600))


def write_all(file: FileIO, array: Array) -> None:
    """A file may take less than it is given, as on a disk that is nearly full. Raises OSError."""
    left = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    while left.size:
        left = left[file.write(left.data) :]


def mapped(path: Path, dtype: np.dtype[Any] | type[Any], numbers: int) -> Array:
    """The numbers in a file; what is written to them is not written to the file.

    Raises OSError, ValueError (the file has another length).
    """
    with path.open("rb") as file:
        length = os.fstat(file.fileno()).st_size
        if length != numbers * np.dtype(dtype).itemsize:
            raise ValueError(f"{path.parent.name}/{path.name} has {length} bytes")
        if not length:
            return np.empty(0, dtype=dtype)
        # The mapping outlives the file's descriptor, and its name: a publication can be removed while it is
        # read.
        return np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY), dtype=dtype)


def linked(source: Path, path: Path) -> None:
    """The same file under another name; a copy where the file system has no such links. Raises OSError."""
    try:
        os.link(source, path)
    # Not to be copied: there is nothing.
    except FileNotFoundError:
        raise
    except OSError:
        with source.open("rb") as read, created(path) as file:
            shutil.copyfileobj(read, file, 1 << 20)


@contextmanager
def private_file(path: Path) -> Iterator[Path]:
    """A temporary file in the folder of ``path`` for the owner only (0600), removed unless it was renamed."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f"{path.name}.", suffix=".part")
    os.close(handle)
    try:
        yield Path(name)
    finally:
        Path(name).unlink(missing_ok=True)


def sweep(path: Path) -> None:
    """Remove the private files that an interruption left in the folder of ``path``."""
    for left in path.parent.glob(f"{path.name}.*.part"):
        left.unlink(missing_ok=True)


def digest_of(*parts: bytes | Array) -> str:
    """SHA-256, hexadecimal. It takes half of the time of BLAKE2b."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part if isinstance(part, bytes) else part.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


class ArrayPlace(msgspec.Struct, frozen=True, array_like=True):
    """The place of an array in a file: its type, its first byte, its count of numbers."""

    dtype: str
    begin: int
    numbers: int

    def of(self, data: Array) -> Array:
        """The array (numbers,), in a file's bytes."""
        dtype = np.dtype(self.dtype)
        return data[self.begin : self.begin + self.numbers * dtype.itemsize].view(dtype)


class Packed(msgspec.Struct, frozen=True):
    """The header of a file of several arrays. ``contents``: where they are. ``digest``: of all else."""

    format: int
    data_bytes: int
    contents: msgspec.Raw
    digest: str


def packed_names(name: str) -> tuple[str, str]:
    """The two files of ``write_packed``."""
    return name, f"{name}.header"


def write_packed(
    folder: Path, name: str, contents: msgspec.Struct, *, number: int, check: Callable[[], None]
) -> None:
    """A file of the arrays in ``contents``, and a header of all else. ``number``: of the format.

    Raises OSError, and what ``check`` raises.
    """
    data_name, header_name = packed_names(name)
    with created(folder / data_name) as file:

        def written(array: Array) -> ArrayPlace:
            check()
            begin = -(-file.tell() // _BORDER) * _BORDER
            file.seek(begin)
            write_all(file, array)
            return ArrayPlace(array.dtype.str, begin, array.size)

        encoded = msgspec.json.encode(contents, enc_hook=written)
        data_bytes = file.tell()
        file.truncate(data_bytes)
    digest = _packed_digest(number, encoded, mapped(folder / data_name, np.uint8, data_bytes))
    header = msgspec.json.encode(Packed(number, data_bytes, msgspec.Raw(encoded), digest))
    write(folder / header_name, np.frombuffer(header, dtype=np.uint8))


def read_packed(folder: Path, name: str, kind: type[Contents], *, number: int) -> tuple[Contents, Array]:
    """Read the files of ``write_packed``: the contents, and the bytes of the file.

    Raises OSError, ValueError (a changed file, or another format).
    """
    data_name, header_name = packed_names(name)
    try:
        header = msgspec.json.decode((folder / header_name).read_bytes(), type=Packed)
        if header.format != number:
            raise ValueError(f"{folder.name}/{name} has format {header.format}, not {number}")
        data = mapped(folder / data_name, np.uint8, header.data_bytes)
        if _packed_digest(number, bytes(header.contents), data) != header.digest:
            raise ValueError(f"the checksum of {folder.name}/{name} is wrong")
        return unpacked(msgspec.json.decode(header.contents), kind, data), data
    except msgspec.MsgspecError as error:
        raise ValueError(f"the header of {folder.name}/{name} is damaged: {error}") from None


def unpacked(contents: Any, kind: type[Contents], data: Array) -> Contents:
    """Decode the argument of ``write_packed``, from JSON types and ``data``. Its arrays have one dimension.

    Raises msgspec.ValidationError.
    """

    def array(_: type, place: Any) -> Array:
        return msgspec.convert(place, ArrayPlace).of(data)

    return msgspec.convert(contents, kind, dec_hook=array, str_keys=True)


def _packed_digest(number: int, contents: bytes, data: Array) -> str:
    return digest_of(f"{number} {len(contents)} ".encode(), contents, data)
