"""A lake under writing: one process at a time, in commits of which each counts as a whole.

``Lake`` says how files and the manifest lie. In a folder a lock makes sure that one process writes; an object
store has none, so the manifest is compared just before it is replaced.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
from collections.abc import Mapping
from typing import Any, Self

import pyarrow as pa
import pyarrow.parquet as pq

from shortlist_lake.files import FORMAT, HOME, MANIFEST, STAGING, TABLES, Lake
from shortlist_lake.storage import Storage

LOCK = f"{HOME}/lock"


class LakeWriter(Lake):
    """A lake that this process writes to, from ``open`` to ``close``."""

    def __init__(self, address: str) -> None:
        super().__init__(address)
        self._lock: int | None = None
        self._writer = secrets.token_hex(4)

    @classmethod
    def open(cls, address: str, bandit: str, terms: Mapping[str, Any]) -> Self:
        """The lake of a bandit; one is made in an empty or missing folder.

        Raises ShortlistError, and nothing is changed: the folder holds something else, the lake is of another
        bandit, or somebody else writes to it.
        """
        storage = Storage(address)
        with storage.guard():
            storage.fs.invalidate_cache()
            if not storage.exists(MANIFEST):
                _make(storage, bandit, terms)
        lake = cls(address)
        if lake.manifest["terms"]["id"] != terms["id"]:
            theirs = lake.manifest["bandit"]
            if theirs == bandit:
                raise storage.refusal(f"is of a bandit {bandit} that was deleted; choose another folder")
            raise storage.refusal(f"is the lake of the bandit {theirs}, not of {bandit}")
        if lake.manifest["terms"].get("space", 0) != terms.get("space", 0):
            raise storage.refusal(f"is of what {bandit} was before it was moved; choose another folder")
        try:
            with storage.guard():
                lake._take_lock()
                lake.manifest = lake.read_manifest()  # as the one before has left it
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
        with self.storage.guard():
            for place, ((table, day), data) in enumerate(sorted(tables.items())):
                name = f"{table}/day={day}/{number:06}-{place}.parquet"
                if self.storage.exists(name):
                    raise self.storage.refusal(f"{name} exists already; nothing was overwritten")
                pending[name] = self._stage(name, data)
                rows[table] += data.num_rows
            # Just before it is replaced: an object store has no compare and set for all that fsspec knows.
            if self.read_manifest() != self.manifest:
                raise self.storage.refusal("somebody else writes to it; nothing was changed")
            new = {"commit": number, "writer": self._writer, "pending": pending, "at": dict(at), "rows": rows}
            files = {**self.manifest["files"], **self.changed_sizes, **pending}
            new |= {"terms": terms or self.manifest["terms"], "files": files}
            self.manifest = {**self.manifest, **new}
            # From here on the commit counts. Names are given by whoever comes next, if this process dies.
            _replace_manifest(self.storage, self.manifest)
            self._finish()

    def _stage(self, name: str, data: Any) -> int:
        sink = pa.BufferOutputStream()
        pq.write_table(data, sink, compression="zstd")
        # In memory first: object stores take a whole file, and its length goes into the manifest.
        content = sink.getvalue().to_pybytes()
        self.storage.write(f"{STAGING}/{self._writer}/{name}", content)
        return len(content)

    def _finish(self) -> None:
        """Give the files of the last commit their names, and drop what no commit has."""
        storage = self.storage
        storage.fs.invalidate_cache()
        for name, size in self.manifest["pending"].items():
            if storage.exists(self.staged(name)):
                storage.move(self.staged(name), name)
            # Neither staged nor named: somebody has deleted it.
            elif not storage.exists(name):
                raise storage.refusal(f"{name} is missing")
            self.check(name, storage.fs.size(storage.path(name)), size)
        if storage.exists(STAGING):
            # What is left there belongs to no commit: its writer was killed before its manifest.
            storage.fs.rm(storage.path(STAGING), recursive=True)

    def _take_lock(self) -> None:
        """In a folder. An object store has no locks: see ``commit``."""
        if not self.storage.is_local:
            return
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        descriptor = os.open(self.storage.path(LOCK), flags, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise self.storage.refusal("another export writes to it") from None
        self._lock = descriptor


def _make(storage: Storage, bandit: str, terms: Mapping[str, Any]) -> None:
    """Make a lake without rows. Raises ShortlistError: something else is there."""
    others = [name for name in storage.sizes() if not name.startswith(f"{HOME}/")]
    if others or storage.fs.isfile(storage.path()):
        raise storage.refusal("is not empty, and no lake of this service; nothing was written")
    first = {"format": FORMAT, "bandit": bandit, "terms": terms, "commit": 0, "writer": ""}
    rows = dict.fromkeys(TABLES, 0)
    _replace_manifest(storage, {**first, "pending": {}, "at": {}, "rows": rows, "files": {}})


def _replace_manifest(storage: Storage, manifest: Mapping[str, Any]) -> None:
    """Replace it as a whole."""
    storage.write(f"{MANIFEST}.part", json.dumps(manifest, indent=1).encode())
    storage.move(f"{MANIFEST}.part", MANIFEST)
