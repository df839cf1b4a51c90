"""Finished runs kept in a folder, so that a long experiment can be broken off, and shared by processes.

One file a run, written whole or not at all. A file says what was run and with which version; a run that was
made otherwise is made again.
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from studies.experiments.play import Run


class KeptRuns:
    """``folder`` None: nothing is kept."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)

    def get(self, name: str, what: dict[str, Any], make: Callable[[], Run]) -> Run:
        """The kept run of this name if it is of ``what``; else a new one. One process at a time makes it."""
        if self._folder is None:
            return make()
        path = self._folder / f"{name}.json"
        with (self._folder / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            found = _read(path, what)
            if found is None:
                found = make()
                unfinished = path.with_suffix(".new")
                unfinished.write_text(json.dumps({"what": what, "run": asdict(found)}))
                unfinished.replace(path)
        return found


def _read(path: Path, what: dict[str, Any]) -> Run | None:
    with suppress(OSError, ValueError, KeyError, TypeError):
        kept = json.loads(path.read_text())
        if kept["what"] == what:
            return Run(**kept["run"])
    return None
