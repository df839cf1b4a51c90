"""Files of arms into a catalogue, or of learners into a bandit.

All files are read and checked before anything is sent: a mistake in any row of any file changes nothing.
Arms are sent in order, some thousand in a request, each request all or nothing by blocks of a thousand. What
is there as it is stays untouched, so an import that was interrupted is run again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from shortlist_client.answers import Catalogue
from shortlist_client.client import Client
from shortlist_client.errors import NotFound
from shortlist_client.phrases import counted
from shortlist_client.progress import meter
from shortlist_files.arm_files import kind_of
from shortlist_files.arm_rows import ArmRows, FileError, check
from shortlist_files.learner_files import LearnerRow, learners_of
from shortlist_files.replacing import check_replaced
from shortlist_files.versions import check_version

REQUEST_BYTES = 1 << 22
HEAD_BYTES = 4


def catalogue_of(client: Client, name: str) -> Catalogue:
    """Raises FileError: there is none, and how to make one."""
    try:
        return client.get_catalogue(name)
    except NotFound:
        message = f"there is no catalogue {name}: make it first, by PUT /v1/catalogues/{name}"
        raise FileError(f"{message}, or from the columns of a table with --encode") from None


def import_arms(
    client: Client,
    catalogue: str,
    files: Sequence[Path],
    *,
    replace_features: bool = False,
    request_bytes: int = REQUEST_BYTES,
) -> str:
    """Send the arms of all files; a line that says what was done. Raises FileError, ShortlistError.

    ``request_bytes``: a request is sent once it has so many.
    ``replace_features``: also where they have little to do with those that bandits have learned from.
    """
    readers = [(path, kind_of(path).read) for path in files]
    check_version(client)
    dim = catalogue_of(client, catalogue).given
    ids: list[NDArray[np.int64]] = [np.empty(0, np.int64)]  # their hashes: eight bytes an arm
    with meter("checked", None, "arms") as advance:
        for path, read in readers:
            for rows in read(path, dim):
                check(path, rows, dim)
                ids.append(np.fromiter(map(hash, rows.ids), np.int64, len(rows)))
                advance(len(rows))
    count, arms = sum(map(len, ids)), len(np.unique(np.concatenate(ids)))
    if not replace_features:
        check_replaced(client, catalogue, (rows for path, read in readers for rows in read(path, dim)))
    added = 0
    with meter("sent", count, "arms") as advance:
        all_rows = (rows for path, read in readers for rows in read(path, dim))
        for number, body in block_bodies(all_rows, request_bytes):
            done = client.import_blocks(catalogue, body)
            added += done.added
            advance(number)
    return imported(arms, added, count - arms)


def imported(arms: int, added: int, replaced: int) -> str:
    """What is said of an import. ``replaced``: rows by later ones."""
    there = counted(arms - added, "was there", "were there")
    again = counted(replaced, "row was replaced by a later one", "rows were replaced by later ones")
    return f"{counted(arms, 'arm', 'arms')}: {added:,} added, {there}" + f"; {again}" * bool(replaced)


def block_bodies(
    all_rows: Iterator[ArmRows], request_bytes: int = REQUEST_BYTES
) -> Iterator[tuple[int, bytes]]:
    """Bodies of some blocks each, and how many arms they hold."""
    count, body = 0, bytearray()
    for rows in all_rows:
        for block in _blocks(rows):
            body += len(block).to_bytes(HEAD_BYTES, "little") + block
        count += len(rows)
        if len(body) >= request_bytes:
            yield count, bytes(body)
            count, body = 0, bytearray()
    if body:
        yield count, bytes(body)


def _blocks(rows: ArmRows) -> Iterator[bytes]:
    """The rows as a block; as several where an id comes again, since the last one counts."""
    start, seen = 0, set[str]()
    if len(set(rows.ids)) < len(rows):
        for place, name in enumerate(rows.ids):
            if name in seen:
                yield _block(rows, start, place)
                start, seen = place, set()
            seen.add(name)
    yield _block(rows, start, len(rows))


def _block(rows: ArmRows, start: int, end: int) -> bytes:
    some = slice(start, end)
    features = rows.features[some]
    document: dict[str, object] = {
        "ids": rows.ids[some],
        "features": features.tobytes(),
        "dtype": features.dtype.str,
    }
    if rows.reduced:
        document["reduced"] = True
    if rows.tags is not None:
        document["tags"] = rows.tags[some]
    if rows.metadata is not None:
        document["metadata"] = rows.metadata[some]
    return msgspec.msgpack.encode(document)


def import_learners(client: Client, bandit: str, files: Sequence[Path]) -> str:
    """Give the learners of all files to a bandit; a line that says what was done.

    Only a learner without rewards takes a state. Raises FileError, ShortlistError.
    """
    readers: list[Callable[[], Iterator[LearnerRow]]] = [learners_of(path) for path in files]
    check_version(client)
    client.get_bandit(bandit)
    count = 0
    with meter("checked", None, "learners") as advance:
        for read in readers:
            for _ in read():
                count += 1
                advance(1)
    with meter("sent", count, "learners") as advance:
        for read in readers:
            for row in read():
                client.put_learner(bandit, row.key, state=row.state)
                advance(1)
    return f"{count:,} learners are as in the files"
