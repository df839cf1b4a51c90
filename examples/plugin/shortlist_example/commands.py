"""A command: which plug-ins are loaded."""

from __future__ import annotations

import argparse

from shortlist_service.commands import Command, plugins


class Inside(Command):
    """``shortlist inside`` prints a line for each plug-in."""

    summary = "which plug-ins are loaded"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--names", action="store_true", help="only their names")

    def run(self, given: argparse.Namespace) -> int | None:
        for plugin in plugins():
            print(
                plugin.name
                if given.names
                else f"{plugin.name} {plugin.version}: {', '.join(plugin.provides)}"
            )
        return None
