"""A catalogue, the learners of a bandit, or its decision log, into one file.

What is written gets its name when it is whole: a file that is there is never replaced, nor left half written.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from shortlist_client.answers import LearnerCopy, Page
from shortlist_client.bodies import ExportFormat
from shortlist_client.client import Client
from shortlist_client.phrases import counted
from shortlist_client.progress import meter
from shortlist_files.arm_rows import FileError
from shortlist_files.matrices import ids_path
from shortlist_files.versions import check_version
from shortlist_files.writers import arm_writer_of, ids_path_of_part, npy_writer, writer_of

T = TypeVar("T")

PAGE = 1_000
LOG_FORMATS: Mapping[str, ExportFormat] = {".ndjson": "ndjson", ".jsonl": "ndjson", ".parquet": "parquet"}


def export_catalogue(client: Client, name: str, out: Path) -> str:
    """Write every arm, oldest features first; return a line that says what was done.

    Raises FileError, ShortlistError.
    """
    make, count, bare = arm_writer_of(out), 0, 0
    names = [out, ids_path(out)] if make is npy_writer else [out]
    with made(*names) as parts:
        check_version(client)
        found = client.get_catalogue(name)
        is_fitted = found.reduction is None or found.reduction.state != "not_fitted"
        dim = found.dim if is_fitted else found.given
        with make(parts[0], dim) as write, meter("arms", found.size, "arms") as advance:
            for arms in pages(lambda cursor: client.list_arms(name, cursor=cursor, limit=PAGE)):
                write(arms)
                bare += sum(1 for arm in arms if arm.tags or arm.metadata)
                advance(len(arms))
                count += len(arms)
    told = f"{counted(count, 'arm', 'arms')} in {out}"
    if make is npy_writer:
        told += f", their ids in {names[1]}"
        if bare:
            told += f"; tags and metadata of {bare:,} are not in them"
    if is_fitted and found.given != found.dim:
        told += (
            f"; their features are the {found.dim:,} numbers that are searched, for a catalogue with "
            f"dim {found.dim}: what embeddings of {found.given:,} numbers were is not in them"
        )
    return told


def export_learners(client: Client, name: str, out: Path) -> str:
    """Write the whole state of every learner that has rewards; as ``export_catalogue``."""
    make, count = writer_of(out), 0

    def page(cursor: str | None) -> Page[LearnerCopy]:
        return client.list_learners(name, cursor=cursor, limit=PAGE, include="state")

    with made(out) as (part,):
        check_version(client)
        with make(part) as write, meter("learners", None, "learners") as advance:
            for learners in pages(page):
                write([_with_state(client, name, learner) for learner in learners])
                advance(len(learners))
                count += len(learners)
    return f"{counted(count, 'learner', 'learners')} in {out}"


def _with_state(client: Client, bandit: str, learner: LearnerCopy) -> LearnerCopy:
    """A learner whose state is too long for a list has it read by itself."""
    if learner.state is not None:
        return learner
    state = client.get_learner_state(bandit, learner.key)
    return replace(learner, state=base64.b64encode(state).decode())


def export_log(client: Client, name: str, out: Path) -> str:
    """Write the decision log of a bandit as the service streams it; as ``export_catalogue``.

    The versions of its learned prior that the rows name go into a file beside it (``priors_path``), if it has
    any.
    """
    if out.suffix.lower() not in LOG_FORMATS:
        raise FileError(f"{out}: a log is kept in {', '.join(LOG_FORMATS)}")
    if priors_path(out).exists():  # of another export: to be said before the log is written
        raise FileError(f"{priors_path(out)}: exists already")
    with made(out) as (part,):
        check_version(client)
        with part.open("wb") as file, meter("log", None, "bytes") as advance:
            client.export_log(name, Counted(file, advance), format=LOG_FORMATS[out.suffix.lower()])
            count = file.tell()
    told = f"{count:,} bytes in {out}"
    if client.get_bandit(name).log is None:
        told += f": {name} logs no decision, until its setting log is an object, such as {{}}"
    priors = export_priors(client, name, priors_path(out))
    return f"{told}, {priors}" if priors else told


def priors_path(log: Path) -> Path:
    """Where the priors of a log are: beside it, as NDJSON."""
    return log.with_suffix(".priors.ndjson")


def export_priors(client: Client, name: str, out: Path) -> str | None:
    """Write the versions of the learned prior of a bandit, the oldest first; None: it has none."""
    if not client.list_priors(name, limit=1).items:
        return None
    count = 0
    with made(out) as (part,), part.open("w", encoding="utf-8") as file:
        # its page is a type of its own, with the fields of Page
        of_priors: Any = partial(client.list_priors, name, limit=PAGE)
        for versions in pages(lambda cursor: of_priors(cursor=cursor)):
            file.writelines(json.dumps(asdict(version)) + "\n" for version in versions)
            count += len(versions)
    return f"{count:,} versions of its prior in {out}"


def pages(page: Callable[[str | None], Page[T]]) -> Iterator[Sequence[T]]:
    """The items of every page of a list."""
    cursor = None
    while True:
        found = page(cursor)
        yield found.items
        cursor = found.next
        if cursor is None:
            return


class Counted:
    """A file that tells ``advance`` how much is written to it."""

    def __init__(self, file: BinaryIO, advance: Callable[[int], object]) -> None:
        self._file, self._advance = file, advance

    def write(self, data: bytes) -> None:
        """Write it, and tell."""
        self._file.write(data)
        self._advance(len(data))


@contextmanager
def made(*names: Path) -> Iterator[Sequence[Path]]:
    """Files that are written beside ``names`` and get these names when all went well; else they go.

    Two names are a matrix and its ids. Raises FileError: a name is taken, or the system refuses.
    """
    for name in names:
        if name.exists():
            raise FileError(f"{name}: exists already")
    first = names[0].with_name(f".{names[0].name}.{os.getpid()}.part")
    parts = [first, ids_path_of_part(first)][: len(names)]
    try:
        yield parts
        for part, name in zip(parts, names, strict=True):
            os.link(part, name)  # refuses a name that was taken meanwhile
    except OSError as error:
        raise FileError(f"{names[0]}: cannot be written: {error.strerror or error}") from None
    finally:
        for part in parts:
            part.unlink(missing_ok=True)
