"""The files of a lake: growing Parquet tables, in a folder or an object store.

Layout
    _shortlist/manifest.json    which service the lake belongs to, and how far it goes
    _shortlist/staging/…        files of a commit under way; the next writer drops those of others
    TABLE/day=…/N-I.parquet     file I of commit N

A commit takes effect when its manifest is replaced. Its files are staged before, and get their names after;
the next writer names the files of a commit whose writer was killed in between. So each row is there once, and
no reader ever sees a part of a file. ``writing`` writes them.
``docs/decisions/0016-lake-format.md`` says why this is no Delta table.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypedDict

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from shortlist_client.phrases import counted
from shortlist_lake.schemas import SCHEMAS
from shortlist_lake.storage import Storage
from shortlist_service.errors import ShortlistError

TABLES = tuple(SCHEMAS)
LATER = {"expected", "effect", "effects_version", "candidates", "agreement", "weight", "age"}  # not in 1.0.0
FORMAT = 1
MAGIC = b"PAR1"  # a Parquet file begins and ends with it
HOME = "_shortlist"
MANIFEST, STAGING = f"{HOME}/manifest.json", f"{HOME}/staging"
_NAME = re.compile(r"(decisions|rewards|arms|priors)/day=\d{4}-\d\d-\d\d/(\d{6,})-\d+\.parquet")


class Manifest(TypedDict):
    """The fields of a manifest. ``files``: the size of each."""

    format: int
    bandit: str
    terms: dict[str, Any]
    commit: int
    writer: str
    pending: dict[str, int]
    at: dict[str, Any]
    rows: dict[str, int]
    files: dict[str, int]


class Lake:
    """An existing lake. ``address``: a folder, or an address known to fsspec (``s3://bucket/lake``).

    ``manifest``: ``bandit``, ``terms`` (as the service answers them), ``commit``, ``at`` (how far each table
    goes; the writer's own), ``rows`` (of each table), ``files`` (bytes of each). ``changed_sizes``: the bytes
    of files changed since they were written, as far as looked at. Raises ShortlistError: no lake, or an
    unreadable one.
    """

    def __init__(self, address: str) -> None:
        self.address = address
        self.storage = Storage(address)
        self.changed_sizes: dict[str, int] = {}
        with self.storage.guard():
            self.manifest = self.read_manifest()

    def files(self, table: str, day: str | None = None) -> Sequence[str]:
        """The files of a table, in the order in which they were written; ``day``: those of one.

        Raises ShortlistError for a foreign, a missing or a broken file. Cost: a listing; in a folder both
        ends of each file are read. A file of another length than written is opened.
        """
        where, pending, written_sizes = (
            f"{table}/day={day or ''}",
            self.manifest["pending"],
            self.manifest["files"],
        )
        with self.storage.guard():
            sizes, result = self.storage.sizes(f"{table}/day={day}" if day else table), []
        for name, size in sizes.items():
            match = _NAME.fullmatch(name)
            if match is None or int(match[2]) > self.manifest["commit"]:
                raise self.storage.refusal(f"{name} is not of this lake")
            if name not in pending:
                result.append((int(match[2]), name))
                self.check(name, size, written_sizes.get(name))
        if missing := [
            name for name in written_sizes.keys() - sizes.keys() - pending.keys() if name.startswith(where)
        ]:
            raise self.storage.refusal(f"{min(missing)} is missing")
        waiting = [name for name in pending if name.startswith(where)]
        return [name for _, name in sorted(result)] + sorted(waiting)

    def read(self, name: str, columns: Sequence[str] | None = None) -> Any:
        """The rows of a file. Raises ShortlistError where it is damaged."""
        return pa.concat_tables([pa.Table.from_batches([b]) for b in self.batches(name, 1 << 20, columns)])

    def batches(self, name: str, rows: int, columns: Sequence[str] | None = None) -> Iterator[Any]:
        """The rows of a file, so many at a time. Raises as ``read``."""
        with self._parquet(name) as parquet:
            file_columns, columns = (
                set(parquet.schema_arrow.names),
                list(columns or parquet.schema_arrow.names),
            )
            if lacking := set(columns) - file_columns - LATER:
                raise self.storage.refusal(f"{name} has no column {min(lacking)}")
            stored_columns = [column for column in columns if column in file_columns]
            for batch in parquet.iter_batches(batch_size=rows, columns=stored_columns):
                batch.validate(full=True)  # else text that is not UTF-8 is an error where it is used
                yield self._typed(name, batch, [column for column in columns if column not in file_columns])

    def _typed(self, name: str, batch: Any, absent: Sequence[str] = ()) -> Any:
        """A batch with the types of its table: who deletes rows may have written other ones.

        ``absent``: later columns, null here.
        """
        schema, columns = SCHEMAS[name.partition("/")[0]], dict[str, Any]()
        for column in batch.schema.names:
            columns[column] = batch[column]
            if column in schema.names and batch[column].type != (wanted := schema.field(column).type):
                try:
                    columns[column] = batch[column].cast(wanted)
                except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
                    reason = f"the column {column} of {name} is {batch[column].type}, and not {wanted}"
                    raise self.storage.refusal(reason) from None
        columns |= {column: pa.nulls(batch.num_rows, schema.field(column).type) for column in absent}
        return pa.RecordBatch.from_pydict(columns)

    def check(self, name: str, size: int, written: int | None) -> None:
        """Raise ShortlistError where a file of so many bytes is not whole."""
        if size != written:  # rows were deleted, or it is damaged
            with self._parquet(name) as parquet:  # its end says what is in it
                if "time" not in parquet.schema_arrow.names:
                    raise self.storage.refusal(f"{name} has no column time")
            self.changed_sizes[name] = size
        # Files of an object store are whole. After a crash a disk may have zeros of the same length.
        elif self.storage.is_local:
            with self.storage.guard(), self.storage.fs.open(self.storage.path(name), "rb") as file:
                begins, _ = file.read(len(MAGIC)), file.seek(-len(MAGIC), os.SEEK_END)
                if {begins, file.read()} != {MAGIC}:
                    raise self._damaged(name)

    @contextmanager
    def _parquet(self, name: str) -> Iterator[Any]:
        with self.storage.guard():
            where = name
            if name in self.manifest["pending"] and not self.storage.exists(name):
                where = self.staged(name)
            try:
                with (
                    self.storage.fs.open(self.storage.path(where), "rb") as file,
                    pq.ParquetFile(file) as parquet,
                ):
                    yield parquet
            except FileNotFoundError:
                raise self.storage.refusal(f"{name} is missing") from None
            except (pa.ArrowInvalid, pa.ArrowTypeError, EOFError):
                raise self._damaged(name) from None
            except OSError as error:
                if error.errno is not None:
                    raise
                raise self._damaged(name) from None  # Arrow cannot unpack it

    def staged(self, name: str) -> str:
        """The place where a file of the last commit was staged: each writer has a folder of its own."""
        return f"{STAGING}/{self.manifest['writer']}/{name}"

    def tell_missing(self) -> None:
        """Say on standard error how much of the reward log the lake cannot have."""
        if missing := self.manifest["at"].get("missing"):
            whose = "trimmed, of learners that were forgotten, or of bandits that were deleted"
            log, told = "of the reward log", "gone unread"
            were = counted(missing, f"entry {log} was {told}", f"entries {log} were {told}")
            print(f"shortlist: {were}: {whose}", file=sys.stderr)

    def read_manifest(self) -> dict[str, Any]:
        """The present manifest. Raises ShortlistError for a missing or damaged one."""
        self.storage.fs.invalidate_cache()
        if not self.storage.exists(MANIFEST):
            raise self.storage.refusal(f"is no lake of this service: it has no {MANIFEST}")
        try:
            manifest: dict[str, Any] = json.loads(self.storage.fs.cat_file(self.storage.path(MANIFEST)))
            is_known = manifest["format"] == FORMAT
            if is_known:
                msgspec.convert(manifest, Manifest)
        except (ValueError, KeyError, TypeError, RecursionError, msgspec.ValidationError):
            raise self.storage.refusal(f"{MANIFEST} is damaged") from None
        if not is_known:
            raise self.storage.refusal(f"{MANIFEST} is of another version of the service")
        return manifest

    def _damaged(self, name: str) -> ShortlistError:
        return self.storage.refusal(f"{name} is damaged, or half written")
