"""What `shortlist export log NAME --out DIR_OR_URL --partition day` runs."""

from __future__ import annotations

import argparse
from importlib import import_module

from shortlist_service.commands import Command, connect


class ExportByDay(Command):
    """Bring the lake of a bandit up to now. The options are those of ``shortlist export``."""

    summary = "a lake: a folder, or an address such as s3://bucket/lake, that is brought up to now"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """None of its own."""

    def run(self, given: argparse.Namespace) -> int | None:
        # Here, because other commands need not load it; the first one says which package is missing.
        import_module("shortlist_service.lake")
        exporting = import_module("shortlist_lake.exporting")
        with connect(given) as client:
            print(exporting.export_lake(client, given.name, given.out))
        return None
