"""A command: which plug-ins are loaded."""

from __future__ import annotations

import argparse

from shortlist_service.commands import Command, plugins


class Inside(Command):
    """``shortlist inside`` prints a line for each plug-in."""

    summary = "which plug-ins are loaded"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--names", action="store_true", help="only their names")

    def run(self, given: argparse.Namespace) -> None:
        for plugin in plugins():
            provides = "" if given.names else f" {plugin.version}: {', '.join(plugin.provides)}"
            print(f"{plugin.name}{provides}")
