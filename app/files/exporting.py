"""`shortlist export`: a catalogue, the learners of a bandit, or its decision log, into one file.

What is written gets its name when it is whole: a file that is there is never replaced, nor left half written.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from app.files.arm_files import kind_of
from app.files.arm_readers import ids_path
from app.files.arm_rows import FileError
from app.files.arm_writers import NpyWriter, ids_path_of_part
from app.files.learner_files import writer_of
from app.files.service import Service
from app.progress import meter

PAGE = 1_000
LOG_FORMATS = {".ndjson": "ndjson", ".jsonl": "ndjson", ".parquet": "parquet"}


def export_catalogue(service: Service, name: str, out: Path) -> str:
    """Write every arm, oldest features first; return a line that says what was done.

    Raises FileError, ServiceError.
    """
    kind = kind_of(out)
    names = [out, ids_path(out)] if kind.writer is NpyWriter else [out]
    with _made(*names) as parts:
        service.check()
        found = service.get("v1", "catalogues", name)
        dim = int(found["dim"])
        writer = kind.writer(parts[0], dim)
        count = 0
        try:
            with meter("arms", int(found["size"]), "arms") as advance:
                for arms in _pages(service, "v1", "catalogues", name, "arms", limit=PAGE):
                    writer.write(arms)
                    count += len(arms)
                    advance(len(arms))
        finally:
            writer.close()
    told = f"{count:,} arms in {out}"
    if isinstance(writer, NpyWriter):
        told += f", their ids in {names[1]}"
        if writer.bare:
            told += f"; tags and metadata of {writer.bare:,} are not in them"
    return told


def export_learners(service: Service, name: str, out: Path) -> str:
    """Write the whole state of every learner that has rewards; as ``export_catalogue``."""
    make = writer_of(out)
    with _made(out) as (part,):
        service.check()
        writer, count = make(part), 0
        try:
            with meter("learners", None, "learners") as advance:
                query = {"limit": PAGE, "include": "state"}
                for learners in _pages(service, "v1", "bandits", name, "learners", **query):
                    writer.write(learners)
                    count += len(learners)
                    advance(len(learners))
        finally:
            writer.close()
    return f"{count:,} learners in {out}"


def export_log(service: Service, name: str, out: Path) -> str:
    """Write the decision log of a bandit as the service streams it; as ``export_catalogue``."""
    if out.suffix.lower() not in LOG_FORMATS:
        raise FileError(f"{out}: a log is kept in {', '.join(LOG_FORMATS)}")
    with _made(out) as (part,):
        service.check()
        query = {"format": LOG_FORMATS[out.suffix.lower()]}
        count = 0
        with (
            part.open("wb") as file,
            meter("log", None, "bytes") as advance,
            service.stream("v1", "bandits", name, "log", "export", query=query) as pieces,
        ):
            for piece in pieces:
                file.write(piece)
                count += len(piece)
                advance(len(piece))
    return f"{count:,} bytes in {out}"


def _pages(service: Service, *path: str, **query: Any) -> Iterator[Sequence[Any]]:
    """The items of every page of a list."""
    cursor = None
    while True:
        page = service.get(*path, query={**query, "cursor": cursor})
        yield page["items"]
        cursor = page["next"]
        if cursor is None:
            return


@contextmanager
def _made(*names: Path) -> Iterator[Sequence[Path]]:
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
