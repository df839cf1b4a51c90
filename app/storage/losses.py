"""What the store is known to have lost: recorded in the data directory until an operator removes the file."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from app.storage.sealed_file import read_sealed, write_sealed

_LOG = logging.getLogger("shortlist.store")

KEPT = 5


@dataclass(frozen=True, slots=True)
class Loss:
    """``at``: when it was noticed, in UTC (ISO 8601). ``what``: which data, for a human."""

    at: str
    what: str


class Losses:
    """The record of one data directory, in ``losses.json``; the newest ``KEPT`` of them."""

    def __init__(self, data_dir: Path) -> None:
        self.path = data_dir / "losses.json"

    def record(self, what: str) -> None:
        """Add one, unless it is the newest already: other processes on the folder see it too."""
        items = self._items()
        if not items or items[-1].what != what:
            items.append(Loss(datetime.now(UTC).isoformat(timespec="seconds"), what))
        try:
            write_sealed(self.path, {"losses": [[item.at, item.what] for item in items[-KEPT:]]})
        except OSError as error:
            _LOG.error("the loss cannot be recorded in %s: %s", self.path, error.strerror)

    def known(self) -> Loss | None:
        """All of them as one, with the time of the newest; None when nothing was lost."""
        items = self._items()
        return Loss(items[-1].at, "; ".join(item.what for item in items)) if items else None

    def _items(self) -> list[Loss]:
        try:
            document = read_sealed(self.path)
        except ValueError as error:
            return [Loss("", str(error))]
        return [Loss(at, what) for at, what in (document or {"losses": []})["losses"]]
