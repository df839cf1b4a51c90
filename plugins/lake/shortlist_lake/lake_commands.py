"""The commands `shortlist export log NAME --out DIR_OR_URL --partition day` and `shortlist rebuild`."""

from __future__ import annotations

import argparse
from importlib import import_module
from pathlib import Path
from typing import Any

from shortlist_service.commands import Command, client_errors, connect
from shortlist_service.errors import ShortlistError


class ExportByDay(Command):
    """Bring the lake of a bandit up to now. The options are those of ``shortlist export``."""

    summary = "a lake: a folder, or an address such as s3://bucket/lake, that is brought up to now"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """None of its own."""

    def run(self, parsed: argparse.Namespace) -> int | None:
        exporting = _module("exporting")
        with connect(parsed) as client:
            print(exporting.export_lake(client, parsed.name, parsed.out))
        return None


class Rebuild(Command):
    """Compute the learners of a lake, as a file to import."""

    summary = "compute learners again from a log exported as a lake"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--log", required=True, metavar="DIR_OR_URL", help="the lake")
        parser.add_argument(
            "--out", type=Path, required=True, metavar="FILE", help="a new file of learners, to import"
        )
        parser.add_argument(
            "--arms",
            type=Path,
            metavar="FILE",
            help="a new Parquet file of what arms were taught: arm effects",
        )

    def run(self, parsed: argparse.Namespace) -> int | None:
        rebuilding = _module("rebuilding")
        with client_errors():
            print(rebuilding.rebuild(parsed.log, parsed.out, parsed.arms))
        return None


def _module(name: str) -> Any:
    """A module of this package: other commands need not load it. Raises ShortlistError."""
    try:
        import_module("fsspec")
        import_module("pyarrow")
    except ImportError:
        message = "a lake needs the extra lake of the service: pip install -e '.[lake]' in a checkout"
        raise ShortlistError(message) from None
    return import_module(f"shortlist_lake.{name}")
