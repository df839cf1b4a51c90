"""The known losses of the store, in a file which is whole or not there at all."""

from __future__ import annotations

import json
import logging
import os
import secrets
import zlib
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

_LOG = logging.getLogger("shortlist.store")
KEPT = 5


def write_sealed(path: Path, document: dict[str, Any]) -> None:
    """Replace the file in one step; the new one is synced first, so no crash leaves half a file. Raises
    OSError.

    The folder is not synced: after a power failure the file may be the one before.
    """
    new = path.with_name(f"{path.name}.{secrets.token_hex(4)}.new")  # several processes may write at a time
    try:
        with new.open("w", encoding="utf-8") as file:
            json.dump({"crc32": _seal(document), "document": document}, file)
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
    except BaseException:
        new.unlink(missing_ok=True)
        raise


def read_sealed(path: Path) -> dict[str, Any] | None:
    """The document, None without a file. Raises ValueError when the file was changed since the write."""
    try:
        sealed = json.loads(path.read_text("utf-8"))
        document: dict[str, Any] = sealed["document"]
        if sealed["crc32"] == _seal(document):
            return document
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise ValueError(f"{path.name} cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError):
        pass
    raise ValueError(f"{path.name} is damaged")


def _seal(document: dict[str, Any]) -> int:
    return zlib.crc32(json.dumps(document, sort_keys=True).encode())


@dataclass(frozen=True, slots=True)
class Loss:
    """A loss of data. ``at``: when noticed, in UTC (ISO 8601). ``what``: the lost data, for a human."""

    at: str
    what: str


class Losses:
    """The record of one data directory, in ``losses.json``; the newest ``KEPT`` of them."""

    def __init__(self, data_dir: Path) -> None:
        self.path = data_dir / "losses.json"

    def record(self, what: str) -> None:
        """Add a loss, unless it is the newest already: other processes on the folder notice the same loss."""
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
