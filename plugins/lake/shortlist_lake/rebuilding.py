"""`shortlist rebuild --log DIR_OR_URL --out FILE`: the learners of a lake, as a file to import.

With `--arms FILE` also the sums of its arms, from which effects are fitted.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from pathlib import Path

from shortlist_client.answers import LearnerCopy
from shortlist_client.phrases import counted
from shortlist_files.exporting import made
from shortlist_files.writers import writer_of
from shortlist_lake.files import Lake
from shortlist_lake.rebuild import rebuilt
from shortlist_lake.rebuilt_arms import rebuilt_arms, write_table
from shortlist_service.learners import ArmSums, LearnerState, state_to_bytes


def rebuild(log: str, out: Path, arms: Path | None = None) -> str:
    """Write the learners, and the sums of arms; return a line with their numbers.

    Raises ShortlistError, FileError.
    """
    writer_of(out)  # refuses the name before the work
    lake = Lake(log)
    learners = rebuilt(lake)
    write(learners, out)
    done = f"{counted(len(learners), 'learner', 'learners')} of {lake.manifest['bandit']} in {out}"
    if arms is not None:
        sums = rebuilt_arms(lake)
        write_arms(sums, arms)
        done += f", {counted(len(sums), 'arm', 'arms')} in {arms}"
    lake.tell_missing()
    return done


def write(learners: Mapping[str, LearnerState], out: Path) -> None:
    """Write learners as `shortlist export learners` does. Raises FileError: the name is taken."""
    make = writer_of(out)
    with made(out) as (part,), make(part) as append:
        for key in sorted(learners):
            state = learners[key]
            data = base64.b64encode(state_to_bytes(state)).decode()
            append([LearnerCopy(key, state.version, state.sums.observations, data)])


def write_arms(sums: Mapping[str, ArmSums], out: Path) -> None:
    """Write the sums of arms. Raises FileError: the name is taken."""
    names = sorted(sums)
    columns = {
        name: [getattr(sums[arm], name) for arm in names] for name in ("revision", "decisions", *"nFRQ")
    }
    with made(out) as (part,):
        write_table(part, {"arm": names, **columns})
