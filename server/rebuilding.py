"""`shortlist rebuild --log DIR_OR_URL --out FILE`: the learners of a lake, as a file to import."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from pathlib import Path

from app.lake.files import Lake
from app.lake.rebuild import rebuilt
from app.records.records import LearnerState, state_to_bytes
from server.exporting_lake import tell_missing
from shortlist_client.answers import LearnerCopy
from shortlist_client.files.exporting import made
from shortlist_client.files.learner_files import writer_of


def rebuild(log: str, out: Path) -> str:
    """Write the learners; return a line that says how many. Raises ShortlistError, FileError."""
    writer_of(out)  # refuses the name before the work
    lake = Lake(log)
    learners = rebuilt(lake)
    write(learners, out)
    tell_missing(lake)
    return f"{len(learners):,} learners of {lake.manifest['bandit']} in {out}"


def write(learners: Mapping[str, LearnerState], out: Path) -> None:
    """Write learners as `shortlist export learners` does. Raises FileError: the name is taken."""
    make = writer_of(out)
    with made(out) as (part,):
        writer = make(part)
        try:
            for key in sorted(learners):
                state = learners[key]
                data = base64.b64encode(state_to_bytes(state)).decode()
                writer.write([LearnerCopy(key, state.version, state.sums.observations, data)])
        finally:
            writer.close()
