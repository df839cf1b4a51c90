"""Damaged files of the embedded store are refused before the server reads them, or accepted as a loss."""

from __future__ import annotations

import logging
import re
import threading
from pathlib import Path

from app.errors import StartupError
from app.storage.append_only_files import AppendOnlyFiles
from app.storage.losses import Losses
from app.storage.salvage import salvage
from app.storage.server_socket import connected, pings

_LOG = logging.getLogger("shortlist.store")

NOTE_S = 1.0
_CUT_OFF = re.compile(r"Truncating the AOF\b.* at offset (\d+)")


class DamageCheck:
    """Knows what the files in ``data_dir`` must hold; notes it every ``NOTE_S`` while the server runs.

    In this order: ``compare`` before each start of the server, ``begin`` once it answers, ``end`` when it has
    ended. ``accept_loss``: what is missing is logged and recorded, and what is left is used.
    """

    def __init__(self, data_dir: Path, *, accept_loss: bool) -> None:
        self._data_dir = data_dir
        self._accept_loss = accept_loss
        self._files, self._losses = AppendOnlyFiles(data_dir), Losses(data_dir)
        self._socket_path = data_dir
        self._ending = threading.Event()
        self._notes = threading.Thread(target=self._keep_notes, name="store-notes", daemon=True)

    def compare(self, binary: Path) -> None:
        """Raise StartupError when something is missing; accepted, it is made readable for ``binary``."""
        if self._files.is_unknown():
            _LOG.warning(
                "%s is not there: the store's files are taken as they are. An older version left none; "
                "if it was deleted, damage from before this start is not noticed",
                self._files.note_file,
            )
        lost = self._files.compare()
        if lost:
            self._accept(lost)
            salvage(self._files, binary)

    def begin(self, socket_path: Path, server_log: str) -> None:
        """Note what the server has read, and from now on what it writes. Raises StartupError."""
        self._socket_path = socket_path
        cut_off = _CUT_OFF.search(server_log)
        if cut_off:
            _LOG.warning(
                "the store's log ended in the middle of a write, which was cut off at byte %s: it was not "
                "acknowledged, unless the disk lost what came after it",
                cut_off[1],
            )
        try:
            self._note()
        except ValueError as error:  # it has cut off more than that
            self._accept(str(error))
            self._files.forget()
            self._note()
        except OSError as error:
            _complain(error)
        self._notes.start()

    def end(self, *, clean: bool) -> None:
        """The server has ended; ``clean``: by itself, with everything synced."""
        self._ending.set()
        if not self._notes.is_alive():
            return
        self._notes.join()
        if clean:
            try:
                self._files.note(self._files.sizes())
            except (OSError, ValueError) as error:
                _complain(error)

    def _accept(self, lost: str) -> None:
        if not self._accept_loss:
            raise StartupError(
                f"the data in {self._data_dir} are damaged: {lost}. Acknowledged writes may be missing or "
                "changed. Put a backup back, or start once with --accept-loss to go on with what is left"
            )
        _LOG.error("the data in %s are damaged, and the loss is accepted: %s", self._data_dir, lost)
        self._losses.record(lost)

    def _keep_notes(self) -> None:
        complaint = ""
        while not self._ending.wait(NOTE_S):
            try:
                self._note()
                complaint = ""
            except (OSError, ValueError) as error:
                if str(error) != complaint:
                    _complain(error)
                complaint = str(error)

    def _note(self) -> None:
        """Note what is synced by now. Raises OSError; ValueError when a file has become shorter.

        The server syncs what it has written before it answers anything else: so what was there before a
        question is synced once that is answered. Two questions on one connection: it is one server, and it
        has read its files, of which it may cut off an end, before the sizes are taken.
        """
        try:
            if self._files.is_noted(self._files.sizes()):
                return
            with connected(self._socket_path) as server:
                if pings(server):
                    sizes = self._files.sizes()
                    if pings(server):
                        self._files.note(sizes)
        except (ConnectionError, TimeoutError, FileNotFoundError):
            pass  # the server is being started again, or has just rewritten its log: soon it is as before


def _complain(error: Exception) -> None:
    _LOG.error("what the store's files must hold cannot be noted: %s", error)
