"""The files of a lake: Parquet tables that only grow, in a folder or an object store (extra ``lake``).

Layout
    _shortlist/manifest.json    which service the lake belongs to, and how far it goes
    _shortlist/staging/…        files of a commit that is under way; the next writer drops those of others
    TABLE/day=…/N-I.parquet     file I of commit N

A commit takes effect when its manifest is replaced. Its files are staged before, and get their names after;
the next writer names the files of a commit whose writer was killed in between. So each row is there once, and
no reader ever sees a part of a file. One process writes at a time: in a folder a lock makes sure of that.
``docs/decisions/0016-lake-format.md`` says why this is no Delta table.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypedDict

import fsspec
import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from app.lake.tables import SCHEMAS
from app.platform.errors import ShortlistError

TABLES = tuple(SCHEMAS)
LATER = {"expected", "effect", "effects_version"}  # columns that files of version 1.0.0 lack
FORMAT = 1
MAGIC = b"PAR1"  # a Parquet file begins and ends with it
HOME = "_shortlist"
MANIFEST, STAGING, LOCK = f"{HOME}/manifest.json", f"{HOME}/staging", f"{HOME}/lock"


class Manifest(TypedDict):
    """What a manifest must have. ``files``: the size of each."""

    format: int
    bandit: str
    terms: dict[str, Any]
    commit: int
    writer: str
    pending: dict[str, int]
    at: dict[str, Any]
    rows: dict[str, int]
    files: dict[str, int]


_NAME = re.compile(r"(decisions|rewards|arms|priors)/day=\d{4}-\d\d-\d\d/(\d{6,})-\d+\.parquet")


class Lake:
    """A lake that is there. ``address``: a folder, or an address that fsspec knows (``s3://bucket/lake``).

    ``manifest``: ``bandit``, ``terms`` (as the service answers them), ``commit``, ``at`` (how far each table
    goes; the writer's own), ``rows`` (of each table), ``files`` (bytes of each). Raises ShortlistError: it is
    none, or cannot be read.
    """

    def __init__(self, address: str) -> None:
        self.address = address
        self._fs, self._root = _file_system(address)
        self._is_local = "file" in _protocols(self._fs)
        self._lock: int | None = None
        self._writer = secrets.token_hex(4)
        self._sizes: dict[str, int] = {}
        with self._told():
            self.manifest = self._read_manifest()

    @classmethod
    def open_to_write(cls, address: str, bandit: str, terms: Mapping[str, Any]) -> Lake:
        """The lake of a bandit; one is made in a folder that is empty or not there.

        Raises ShortlistError, and nothing is changed: the folder holds something else, the lake is of another
        bandit, or somebody else writes to it.
        """
        fs, root = _file_system(address)
        with _told(address):
            fs.invalidate_cache()
            has_manifest, found = fs.exists(f"{root}/{MANIFEST}"), []
            if not has_manifest and fs.exists(root):
                found = [name for name in fs.find(root) if not name.startswith(f"{root}/{HOME}/")]
                if found or (fs.isfile(root)):
                    raise _refused(address, "is not empty, and no lake of this service; nothing was written")
            if not has_manifest:
                first = {"format": FORMAT, "bandit": bandit, "terms": terms, "commit": 0, "writer": ""}
                _write(
                    fs,
                    root,
                    MANIFEST,
                    {**first, "pending": {}, "at": {}, "rows": dict.fromkeys(TABLES, 0), "files": {}},
                )
        lake = cls(address)
        if lake.manifest["terms"]["id"] != terms["id"]:
            theirs = lake.manifest["bandit"]
            if theirs == bandit:
                raise _refused(address, f"is of a bandit {bandit} that was deleted; choose another folder")
            raise _refused(address, f"is the lake of the bandit {theirs}, not of {bandit}")
        if lake.manifest["terms"].get("space", 0) != terms.get("space", 0):
            raise _refused(address, f"is of what {bandit} was before it was moved; choose another folder")
        try:
            with lake._told():
                lake._take_lock()
                lake.manifest = lake._read_manifest()  # as the one before has left it
                lake._finish()
            # Whatever is wrong with the lake is said before anything is written to it.
            for table in TABLES:
                lake.files(table)
        except BaseException:
            lake.close()
            raise
        return lake

    def close(self) -> None:
        """Let others write."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def files(self, table: str, day: str | None = None) -> Sequence[str]:
        """The files of a table, in the order in which they were written; ``day``: those of one.

        Raises ShortlistError where there is a file that is not of this lake, where one is missing, or is not
        whole. Cost: a listing; in a folder both ends of each file are read. One that is not as long as it was
        written is opened.
        """
        where, pending, known = f"{table}/day={day or ''}", self.manifest["pending"], self.manifest["files"]
        found, result = self._found(f"{table}/day={day}" if day else table), []
        for name, size in found.items():
            match = _NAME.fullmatch(name)
            if match is None or int(match[2]) > self.manifest["commit"]:
                raise _refused(self.address, f"{name} is not of this lake")
            if name not in pending:
                result.append((int(match[2]), name))
                self._check(name, size, known.get(name))
        if missing := [
            name for name in known.keys() - found.keys() - pending.keys() if name.startswith(where)
        ]:
            raise _refused(self.address, f"{min(missing)} is missing")
        waiting = [name for name in pending if name.startswith(where)]
        return [name for _, name in sorted(result)] + sorted(waiting)

    def _found(self, folder: str) -> dict[str, int]:
        """What is there, by name, with its bytes."""
        with self._told():
            self._fs.invalidate_cache()
            where = f"{self._root}/{folder}"
            found = self._fs.find(where, detail=True) if self._fs.exists(where) else {}
            return {self._name(path): entry["size"] for path, entry in found.items()}

    def read(self, name: str, columns: Sequence[str] | None = None) -> Any:
        """The rows of a file. Raises ShortlistError where it is damaged."""
        return pa.concat_tables([pa.Table.from_batches([b]) for b in self.batches(name, 1 << 20, columns)])

    def batches(self, name: str, rows: int, columns: Sequence[str] | None = None) -> Iterator[Any]:
        """The rows of a file, so many at a time. Raises as ``read``."""
        with self._parquet(name) as found:
            there, columns = set(found.schema_arrow.names), list(columns or found.schema_arrow.names)
            if lacking := set(columns) - there - LATER:
                raise _refused(self.address, f"{name} has no column {min(lacking)}")
            own = [each for each in columns if each in there]
            for batch in found.iter_batches(batch_size=rows, columns=own):
                batch.validate(full=True)  # else text that is not UTF-8 is an error where it is used
                yield self._typed(name, batch, [each for each in columns if each not in there])

    def _typed(self, name: str, batch: Any, absent: Sequence[str] = ()) -> Any:
        """A batch with the types of its table: who deletes rows may have written other ones.

        ``absent``: columns that came later, and are null here.
        """
        own, columns = SCHEMAS[name.partition("/")[0]], dict[str, Any]()
        for column in batch.schema.names:
            columns[column] = batch[column]
            if column in own.names and batch[column].type != (wanted := own.field(column).type):
                try:
                    columns[column] = batch[column].cast(wanted)
                except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
                    reason = f"the column {column} of {name} is {batch[column].type}, and not {wanted}"
                    raise _refused(self.address, reason) from None
        columns |= {column: pa.nulls(batch.num_rows, own.field(column).type) for column in absent}
        return pa.RecordBatch.from_pydict(columns)

    def _check(self, name: str, size: int, written: int | None) -> None:
        """Raise where a file of so many bytes is not whole."""
        if size != written:  # rows were deleted, or it is damaged
            with self._parquet(name) as found:  # its end says what is in it
                if "time" not in found.schema_arrow.names:
                    raise _refused(self.address, f"{name} has no column time")
            self._sizes[name] = size
        # What an object store has it has as a whole. After a crash a disk may have zeros of the same length.
        elif self._is_local:
            with self._told(), self._fs.open(f"{self._root}/{name}", "rb") as file:
                begins, _ = file.read(len(MAGIC)), file.seek(-len(MAGIC), os.SEEK_END)
                if {begins, file.read()} != {MAGIC}:
                    raise _damaged(self.address, name)

    @contextmanager
    def _parquet(self, name: str) -> Iterator[Any]:
        with self._told():
            path = f"{self._root}/{name}"
            if name in self.manifest["pending"] and not self._fs.exists(path):
                path = self._staged(name)
            try:
                with self._fs.open(path, "rb") as file, pq.ParquetFile(file) as found:
                    yield found
            except FileNotFoundError:
                raise _refused(self.address, f"{name} is missing") from None
            except (pa.ArrowInvalid, pa.ArrowTypeError, EOFError):
                raise _damaged(self.address, name) from None
            except OSError as error:
                if error.errno is not None:
                    raise
                raise _damaged(self.address, name) from None  # Arrow cannot unpack it

    def commit(
        self,
        tables: Mapping[tuple[str, str], Any],
        at: Mapping[str, Any],
        terms: Mapping[str, Any] | None = None,
    ) -> None:
        """Add rows, all or none: by table and day, as Arrow tables; and say how far the lake goes now.

        ``terms``: those of the bandit, which may tell more than before.

        Raises ShortlistError: a name is taken, or somebody else has written meanwhile; nothing is changed.
        """
        number, pending = self.manifest["commit"] + 1, dict[str, int]()
        rows = dict(self.manifest["rows"])
        with self._told():
            for place, ((table, day), data) in enumerate(sorted(tables.items())):
                name = f"{table}/day={day}/{number:06}-{place}.parquet"
                if self._fs.exists(f"{self._root}/{name}"):
                    raise _refused(self.address, f"{name} exists already; nothing was overwritten")
                pending[name] = self._stage(name, data)
                rows[table] += data.num_rows
            # Just before it is replaced: an object store has no compare and set for all that fsspec knows.
            if self._read_manifest() != self.manifest:
                raise _refused(self.address, "somebody else writes to it; nothing was changed")
            new = {"commit": number, "writer": self._writer, "pending": pending, "at": dict(at), "rows": rows}
            files = {**self.manifest["files"], **self._sizes, **pending}
            new |= {"terms": terms or self.manifest["terms"], "files": files}
            self.manifest = {**self.manifest, **new}
            # From here on the commit counts. Names are given by whoever comes next, if this process dies.
            _write(self._fs, self._root, MANIFEST, self.manifest)
            self._finish()

    def _stage(self, name: str, data: Any) -> int:
        sink = pa.BufferOutputStream()
        pq.write_table(data, sink, compression="zstd")
        # In memory first: object stores take a whole file, and its length goes into the manifest.
        content = sink.getvalue().to_pybytes()
        _put(self._fs, f"{self._root}/{STAGING}/{self._writer}/{name}", content)
        return len(content)

    def _staged(self, name: str) -> str:
        """Where a file of the last commit was staged: each writer has a folder of its own."""
        return f"{self._root}/{STAGING}/{self.manifest['writer']}/{name}"

    def _finish(self) -> None:
        """Give the files of the last commit their names, and drop what no commit has."""
        self._fs.invalidate_cache()
        for name, size in self.manifest["pending"].items():
            staged, path = self._staged(name), f"{self._root}/{name}"
            if self._fs.exists(staged):
                if self._is_local:
                    self._fs.makedirs(path.rpartition("/")[0], exist_ok=True)
                self._fs.mv(staged, path)
            # Neither staged nor named: somebody has deleted it.
            elif not self._fs.exists(path):
                raise _refused(self.address, f"{name} is missing")
            self._check(name, self._fs.size(path), size)
        if self._fs.exists(f"{self._root}/{STAGING}"):
            # What is left there belongs to no commit: its writer was killed before its manifest.
            self._fs.rm(f"{self._root}/{STAGING}", recursive=True)

    def _read_manifest(self) -> dict[str, Any]:
        path = f"{self._root}/{MANIFEST}"
        self._fs.invalidate_cache()
        if not self._fs.exists(path):
            raise _refused(self.address, f"is no lake of this service: it has no {MANIFEST}")
        try:
            found: dict[str, Any] = json.loads(self._fs.cat_file(path))
            is_known = found["format"] == FORMAT
            if is_known:
                msgspec.convert(found, Manifest)
        except (ValueError, KeyError, TypeError, RecursionError, msgspec.ValidationError):
            raise _refused(self.address, f"{MANIFEST} is damaged") from None
        if not is_known:
            raise _refused(self.address, f"{MANIFEST} is of another version of the service")
        return found

    def _take_lock(self) -> None:
        """In a folder. An object store has no locks: see ``commit``."""
        if not self._is_local:
            return
        descriptor = os.open(f"{self._root}/{LOCK}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise _refused(self.address, "another export writes to it") from None
        self._lock = descriptor

    def _name(self, path: str) -> str:
        return path[len(self._root) + 1 :]

    def _told(self) -> Any:
        return _told(self.address)


def _file_system(address: str) -> tuple[Any, str]:
    with _told(address):
        fs, root = fsspec.core.url_to_fs(address)
    return fs, root.rstrip("/")


def _protocols(fs: Any) -> Sequence[str]:
    return (fs.protocol,) if isinstance(fs.protocol, str) else tuple(fs.protocol)


def _write(fs: Any, root: str, name: str, document: Mapping[str, Any]) -> None:
    """Replace a file as a whole."""
    part, path = f"{root}/{name}.part", f"{root}/{name}"
    _put(fs, part, json.dumps(document, indent=1).encode())
    fs.mv(part, path)


def _put(fs: Any, path: str, content: bytes) -> None:
    is_local = "file" in _protocols(fs)
    if is_local:
        fs.makedirs(path.rpartition("/")[0], exist_ok=True)
    with fs.open(path, "wb") as file:
        file.write(content)
        if is_local:
            file.flush()
            os.fsync(file.fileno())


@contextmanager
def _told(address: str) -> Iterator[None]:
    """What goes wrong with files is one line."""
    try:
        yield
    except (OSError, ImportError, ValueError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or error
        raise _refused(address, f"cannot be read or written: {reason}") from None


def _damaged(address: str, name: str) -> ShortlistError:
    return _refused(address, f"{name} is damaged, or half written")


def _refused(address: str, reason: str) -> ShortlistError:
    return ShortlistError(f"{address}: {reason}")
