"""What the embedded server's files must hold: noted while it writes them, compared before it reads them.

The server takes a log that was cut short, emptied or changed for whole as long as it can read it. So the
service keeps a note of its own, ``expected-files.json``: of each file that the server would read at its start
a number of bytes that are known to be synced, and their CRC-32.

Every such file is appended to, and nothing else, until the server rewrites its log: it opens a new increment,
writes all data to a new base, and then names both in its manifest and drops the older ones, in one rename.
The note may be older than that. So a noted file may be gone, but only if what is there now takes its place: a
base with a higher number, and after it an increment with a higher number than each that is gone. Servers
before Redis 7 have one file, which a rewrite replaces: then it is another inode, and begins as a base.

More than what is noted is legal: it came later, or is the torn end of a write that was not acknowledged.
"""

from __future__ import annotations

import os
import threading
import zlib
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, NamedTuple

from app.storage.sealed_file import read_sealed, write_sealed

_FOLDER, _MANIFEST, _WHOLE = "appendonlydir", "appendonly.aof.manifest", "appendonly.aof"
_BASE_BEGINS = b"REDIS", b"VALKEY"
_CHUNK = 1 << 20

Kind = Literal["base", "increment", "whole"]
_KINDS: dict[str, Kind] = {"b": "base", "i": "increment"}


class LiveFile(NamedTuple):
    """A file that the server reads when it starts; ``number`` is the manifest's, of a whole log its inode."""

    kind: Kind
    number: int
    name: str


class Prefix(NamedTuple):
    """The first ``length`` bytes of a file."""

    length: int = 0
    crc32: int = 0


class AppendOnlyFiles:
    """The files below ``data_dir``. ``sizes`` and ``note`` may be called while the server writes them."""

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir
        self.note_file = data_dir / "expected-files.json"
        self._noted: Mapping[LiveFile, Prefix] = {}
        self._busy = threading.Lock()

    @property
    def manifest(self) -> Path:
        return self.data_dir / _FOLDER / _MANIFEST

    def sizes(self) -> dict[LiveFile, int]:
        """Every file that the server would read, and how long it is now.

        Raises OSError when one of them is not there, ValueError for a damaged manifest.
        """
        return {file: self.path(file).stat().st_size for file in self.listed()}

    def path(self, file: LiveFile) -> Path:
        return self.data_dir / file.name if file.kind == "whole" else self.manifest.with_name(file.name)

    def listed(self) -> list[LiveFile]:
        """Every file that the server would read, there or not. Raises ValueError for a damaged manifest."""
        try:
            return list(_listed(self.manifest.read_text("utf-8")))
        except FileNotFoundError:
            pass
        try:
            return [LiveFile("whole", (self.data_dir / _WHOLE).stat().st_ino, _WHOLE)]
        except FileNotFoundError:
            return []

    def is_noted(self, sizes: Mapping[LiveFile, int]) -> bool:
        return sizes == {file: prefix.length for file, prefix in self._noted.items()}

    def note(self, sizes: Mapping[LiveFile, int]) -> None:
        """Note that so much of each file is synced, from now on and for good.

        Reads what came since the last note, and all of a new file. Raises OSError; ValueError when a file has
        become shorter: then the old note stands.
        """
        with self._busy:
            noted = {file: self._continued(file, size) for file, size in sizes.items()}
            write_sealed(
                self.note_file,
                {
                    "at": datetime.now(UTC).isoformat(timespec="seconds"),
                    "files": [[*file, *prefix] for file, prefix in noted.items()],
                },
            )
            self._noted = noted

    def compare(self) -> str:
        """What the files lack of what was noted, for a human; empty when all is well, or nothing was noted.

        Reads all that was noted. Does not change the files.
        """
        with self._busy:
            self._noted = {}
            try:
                noted, at = self._read_note()
            except ValueError as error:
                return f"{error}; it says what the files must hold, so they cannot be compared"
            wrong = "; ".join(self._wrong(noted))
            if wrong:
                return f"{wrong}, as was noted at {at}"
            self._noted = {file: noted[file] for file in self.listed() if file in noted}
            return ""

    def is_unknown(self) -> bool:
        """Whether there are files, and no note of them: nothing can be compared."""
        return not self.note_file.exists() and (self.manifest.exists() or bool(self.listed()))

    def forget(self) -> None:
        """The next note is of what is there then, whatever was noted."""
        self._noted = {}

    def last_listed(self) -> list[LiveFile]:
        """The files by the note, for when the manifest does not tell; none when the note is damaged too."""
        try:
            return list(self._read_note()[0])
        except ValueError:
            return []

    def _read_note(self) -> tuple[dict[LiveFile, Prefix], str]:
        document = read_sealed(self.note_file) or {"files": [], "at": ""}
        return {LiveFile(*words[:3]): Prefix(*words[3:]) for words in document["files"]}, document["at"]

    def _wrong(self, noted: Mapping[LiveFile, Prefix]) -> Iterator[str]:
        try:
            listed = self.listed()
        except ValueError as error:
            yield str(error)
            return
        if not listed and noted:
            yield "the append-only file is gone"
            return
        for file in listed:
            length = self._length(file)
            if length is None:
                yield f"{file.name} is gone"
            elif file in noted:
                yield from self._differs(file, length, noted[file])
            elif file.kind == "base" and not length:  # the server would take it for one without data
                yield f"{file.name} is empty"
        for file in noted:
            if file not in listed and not self._is_replaced(file, noted, listed):
                yield f"{file.name} is no longer part of the append-only file"

    def _length(self, file: LiveFile) -> int | None:
        try:
            return self.path(file).stat().st_size
        except FileNotFoundError:
            return None

    def _differs(self, file: LiveFile, length: int, prefix: Prefix) -> Iterator[str]:
        if length < prefix.length:
            yield f"{file.name} has {length:,} bytes, and {prefix.length:,} were stored"
            return
        try:
            same = _checksum(self.path(file), Prefix(), prefix.length) == prefix.crc32
        except OSError as error:
            yield f"{file.name} cannot be read: {error}"
            return
        if not same:
            yield f"{file.name} has other bytes than were stored, somewhere in its first {prefix.length:,}"

    def _is_replaced(self, file: LiveFile, noted: Mapping[LiveFile, Prefix], listed: list[LiveFile]) -> bool:
        """Whether the server has rewritten its log after the note, and has no need of this file any more."""
        if file.kind == "whole":
            return any(other.kind == "base" or _begins_as_a_base(self.path(other)) for other in listed)
        if _newest("base", listed) <= _newest("base", noted):
            return False
        return file.kind == "base" or _newest("increment", listed) > file.number

    def _continued(self, file: LiveFile, size: int) -> Prefix:
        before = self._noted.get(file, Prefix())
        if size < before.length:
            raise ValueError(f"{file.name} has become shorter: {before.length:,} bytes were stored")
        return Prefix(size, _checksum(self.path(file), before, size))


def _listed(manifest: str) -> Iterator[LiveFile]:
    """The files of lines such as ``file NAME seq NUMBER type b``, without those of type h: history."""
    lines = [line.split() for line in manifest.splitlines() if line and not line.startswith("#")]
    if not lines:
        raise ValueError(f"{_MANIFEST} is empty")
    for words in lines:
        fields = dict(zip(words[::2], words[1::2], strict=False))
        name, number, kind = fields.get("file"), fields.get("seq", ""), fields.get("type", "")
        if name is None or os.sep in name or not number.isdecimal() or kind not in {*_KINDS, "h"}:
            raise ValueError(f"{_MANIFEST} is damaged")
        if kind != "h":
            yield LiveFile(_KINDS[kind], int(number), name)


def _newest(kind: Kind, files: Mapping[LiveFile, Prefix] | list[LiveFile]) -> int:
    return max((file.number for file in files if file.kind == kind), default=0)


def _begins_as_a_base(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(8).startswith(_BASE_BEGINS)


def _checksum(path: Path, before: Prefix, length: int) -> int:
    """CRC-32 of the first ``length`` bytes, given that of fewer. Raises OSError when the file is shorter."""
    crc = before.crc32
    with path.open("rb", buffering=0) as file:
        file.seek(before.length)
        left = length - before.length
        while left:
            chunk = file.read(min(left, _CHUNK))
            if not chunk:
                raise OSError(f"{path.name} became shorter while it was read")
            crc = zlib.crc32(chunk, crc)
            left -= len(chunk)
    return crc
