"""Files of HNSW graphs: between runs, and for other processes. A graph is made here, or read.

A file has one graph, which is used only if every byte and every arm of it agrees.

Layout (little-endian)
    8       magic and format version
    4 + n   length of the header, header (JSON)
    8 x arms    revision of every label
    8 x arms    fingerprint of every label: the product of its features with a fixed vector, by which changed
                features are noticed
    ...     bytes of hnswlib
    32      BLAKE2b of everything before

A file is written under another name and renamed. Reading copies hnswlib's part to a private file while the
checksum is computed, and then loads the copy, so that only verified bytes are loaded (hnswlib #673).
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import IO

import msgspec
import numpy as np
from numpy.typing import NDArray

from shortlist.index.hnsw import GraphTuning, HnswGraph
from shortlist.index.index import Build, PublicationReader, PublicationWriter, Saving
from shortlist.index.probes import Groups
from shortlist.index.shared_format import linked, private_file
from shortlist.index.table import TableSnapshot
from shortlist.mips.exact import row_scores
from shortlist.types import Rows, Vector

_MAGIC = b"SLGRAPH1"
_LENGTH = struct.Struct("<I")
_LONGEST_HEADER = 4_096
_DIGEST_BYTES = 32
_CHUNK_BYTES = 1 << 20
_CHUNK_ROWS = 8_192
_LEAST_SHARE_ALIVE = 0.8
_NAME = "graph"  # in the folder of a publication


@dataclass(frozen=True, slots=True)
class GraphHeader:
    """The source of the graph.

    ``last_revision``: arms of later revisions are fresh. ``cut_norm``: the largest norm left out.
    """

    dim: int
    arms: int
    m: int
    ef_construction: int
    last_revision: int
    cut_norm: float
    payload_bytes: int


def write(path: Path, graph: HnswGraph, table: TableSnapshot) -> None:
    """Write the graph over ``table``, atomically, for the owner's eyes only. Raises OSError.

    The graph knows the ``checksum`` of its file from then on.
    """
    left_out = table.norms[np.setdiff1d(table.live_rows, graph.rows, assume_unique=True)]
    with private_file(path) as payload, private_file(path) as complete:
        graph.save(payload)
        header = GraphHeader(
            dim=table.dim,
            arms=graph.arms,
            m=graph.m,
            ef_construction=graph.ef_construction,
            last_revision=int(table.revisions.max()),
            cut_norm=float(left_out.max(initial=0.0)),
            payload_bytes=payload.stat().st_size,
        )
        revisions = np.where(graph.rows < 0, -1, table.revisions[graph.rows]).astype("<i8").tobytes()
        fingerprints = _fingerprints(table, graph.rows).astype("<f8").tobytes()
        text = json.dumps(asdict(header)).encode()
        head = _MAGIC + _LENGTH.pack(len(text)) + text + revisions + fingerprints
        digest = hashlib.blake2b(digest_size=_DIGEST_BYTES)
        with payload.open("rb") as source, complete.open("wb") as target:
            for chunk in chain((head,), iter(lambda: source.read(_CHUNK_BYTES), b"")):
                digest.update(chunk)
                target.write(chunk)
            target.write(digest.digest())
            target.flush()
            # Before it gets its name: else a power failure may leave the name of a file without its content.
            os.fsync(target.fileno())
        complete.replace(path)
        graph.checksum = digest.hexdigest()


def read(path: Path, table: TableSnapshot, *, m: int, ef_construction: int) -> HnswGraph | None:
    """The graph in the file, its dead arms marked; None when it does not fit the catalogue or was changed."""
    try:
        with path.open("rb") as source, private_file(path) as payload:
            header, revisions, fingerprints, checksum = _unpack(source, payload)
            if (header.dim, header.m, header.ef_construction) != (table.dim, m, ef_construction):
                return None
            rows = _rows(table, header, revisions, fingerprints)
            if rows is None:
                return None
            covered = int(table.revisions.searchsorted(header.last_revision, side="right"))
            return _loaded(payload, header, checksum, rows, covered)
    # Whatever is wrong with a cache, the graph is built again. To say which would help nobody.
    except (OSError, ValueError, TypeError, RuntimeError):
        return None


def load(path: Path, checksum: str, rows: Rows, *, dim: int, covered: int) -> HnswGraph:
    """The graph of this checksum. ``rows``: of its labels, -1 for the dead.

    Raises OSError, ValueError, TypeError, RuntimeError (it was changed, or is another one).
    """
    with path.open("rb") as source, private_file(path) as payload:
        header, _, _, file_checksum = _unpack(source, payload)
        if file_checksum != checksum or (header.dim, header.arms) != (dim, len(rows)):
            raise ValueError("the graph is another one")
        return _loaded(payload, header, checksum, rows, covered)


def _loaded(payload: Path, header: GraphHeader, checksum: str, rows: Rows, covered: int) -> HnswGraph:
    shape = {"dim": header.dim, "m": header.m, "ef_construction": header.ef_construction}
    graph = HnswGraph.load_verified(payload, rows, covered=covered, **shape)
    graph.checksum = checksum
    return graph


def make(table: TableSnapshot, rows: Rows, build: Build, *, m: int, ef_construction: int) -> HnswGraph:
    """The graph in the file of ``build`` if there is one of these arms, else one over live ``rows`` (n,).

    It is written to the file, but for an interim one: that depends on when arms came, and is replaced soon.
    """
    if build.load_from is not None:
        loaded = read(build.load_from, table, m=m, ef_construction=ef_construction)
        if loaded is not None:
            return loaded
        with suppress(OSError):  # nobody is to wait for it
            build.load_from.unlink(missing_ok=True)
    graph = HnswGraph.grown_from(build.growing, table, rows, build)
    if graph is None:
        graph = HnswGraph.build(
            table, rows, m=m, ef_construction=ef_construction, seed=build.seed, threads=build.threads,
            check=build.check, advance=build.advance,
        )  # fmt: skip
    graph.is_interim = build.growing is not None
    if build.save_to is not None and not graph.is_interim:
        # If the cache cannot be written, the next start builds the graph again.
        with suppress(OSError):
            write(build.save_to, graph, table)
    return graph


class SavedGraph(msgspec.Struct, frozen=True):
    """A published graph: how it is searched, and its file. ``rows``: of its labels, -1 for the dead."""

    tuning: GraphTuning
    checksum: str
    rows: Rows
    substitutes: Rows
    appearances: NDArray[np.float32]
    winners: Rows
    groups: Groups


def _save(graph: HnswGraph, to: PublicationWriter) -> SavedGraph:
    _link_or_write(graph, to)
    position, state = np.append(to.positions, -1), graph.degradation
    substitutes = position[graph.substitutes]
    return SavedGraph(
        tuning=graph.tuning,
        checksum=graph.checksum,
        rows=position[graph.rows],
        substitutes=substitutes[substitutes >= 0],
        appearances=state.appearances,
        winners=state.winners,
        groups=state.groups,
    )


def _link_or_write(graph: HnswGraph, to: PublicationWriter) -> None:
    """Mostly its file was written when it was made, or is in the last publication."""
    path, last = to.folder / _NAME, None if to.last is None else to.last / _NAME
    for source in (last, to.cache):
        if source is None:
            continue
        with suppress(FileNotFoundError):
            # A second name of the same bytes: a graph of hundreds of megabytes is not written again.
            linked(source, path)
            # The cache may have been replaced by a newer graph since this one was read from it.
            if checksum_of(path) == graph.checksum:
                return
            path.unlink()
    write(path, graph, to.table)


def _load(at: PublicationReader) -> HnswGraph:
    saved = at.read(SavedGraph)
    graph = load(at.folder / _NAME, saved.checksum, saved.rows, dim=at.table.dim, covered=at.covered)
    graph.with_tuning(
        at.table,
        saved.tuning,
        substitutes=saved.substitutes,
        appearances=saved.appearances,
        winners=saved.winners,
        groups=saved.groups,
    )
    return graph


SAVING = Saving(_save, _load)


def checksum_of(path: Path) -> str:
    """The checksum in a graph file. Raises OSError."""
    with path.open("rb") as file:
        file.seek(max(os.fstat(file.fileno()).st_size - _DIGEST_BYTES, 0))
        return file.read().hex()


def _unpack(source: IO[bytes], payload: Path) -> tuple[GraphHeader, NDArray[np.int64], Vector, str]:
    """Verify the whole file and copy hnswlib's part to ``payload``. Raises ValueError, TypeError."""
    digest = hashlib.blake2b(digest_size=_DIGEST_BYTES)

    def take(count: int) -> bytes:
        data = source.read(count)
        if len(data) != count:
            raise ValueError("the file is too short")
        digest.update(data)
        return data

    if take(len(_MAGIC)) != _MAGIC:
        raise ValueError("not a graph file of this format")
    length = _LENGTH.unpack(take(_LENGTH.size))[0]
    # Before it is read: a damaged length would ask for gigabytes.
    if length > _LONGEST_HEADER:
        raise ValueError("the header is too long")
    header = GraphHeader(**json.loads(take(length)))
    start = len(_MAGIC) + _LENGTH.size + length
    expected = start + 16 * header.arms + header.payload_bytes + _DIGEST_BYTES
    # Before anything is allocated by these numbers.
    if header.arms < 1 or header.payload_bytes < 1 or os.fstat(source.fileno()).st_size != expected:
        raise ValueError("the file has another length than its header says")
    revisions = np.frombuffer(take(8 * header.arms), dtype="<i8").astype(np.int64)
    fingerprints = np.frombuffer(take(8 * header.arms), dtype="<f8").astype(np.float64)
    with payload.open("wb") as target:
        left = header.payload_bytes
        while left:
            left -= target.write(take(min(left, _CHUNK_BYTES)))
    if source.read() != digest.digest():
        raise ValueError("the checksum is wrong")
    return header, revisions, fingerprints, digest.hexdigest()


def _rows(
    table: TableSnapshot, header: GraphHeader, revisions: NDArray[np.int64], fingerprints: Vector
) -> Rows | None:
    """Row of every label, -1 where its arm is gone; None when the file is not of this catalogue."""
    live_rows = table.live_rows
    live_revisions = table.revisions[live_rows]
    # Arms are told by their revisions: two with the same one could not be told apart.
    if not table.in_order or not live_rows.size or (live_revisions[1:] == live_revisions[:-1]).any():
        return None
    positions = live_revisions.searchsorted(revisions).clip(max=live_rows.size - 1)
    alive = live_revisions[positions] == revisions
    rows = np.where(alive, live_rows[positions], -1)
    # With more dead a graph that is built again is quicker, and finds more.
    if alive.sum() < _LEAST_SHARE_ALIVE * header.arms:
        return None
    if not np.array_equal(_fingerprints(table, rows[alive]), fingerprints[alive]):
        return None
    older = live_rows[live_revisions <= header.last_revision]
    left_out = table.norms[np.setdiff1d(older, rows, assume_unique=True)]
    # An arm left out of the graph may be longer now than all arms left out for their length: it could win.
    return rows if left_out.max(initial=0.0) <= header.cut_norm else None


def _fingerprints(table: TableSnapshot, rows: Rows) -> Vector:
    direction = np.random.default_rng(0).standard_normal(table.dim)
    parts = [
        row_scores(table.features, rows[start : start + _CHUNK_ROWS], direction)
        for start in range(0, len(rows), _CHUNK_ROWS)
    ]
    return np.concatenate(parts) if parts else np.empty(0)
