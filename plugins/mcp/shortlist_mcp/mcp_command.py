"""The command `shortlist mcp`: its options."""

from __future__ import annotations

import argparse
from importlib import import_module

from shortlist_service.commands import Command, add_service, connect


class Mcp(Command):
    """``shortlist mcp`` runs until its standard input ends, or with ``--port`` until stopped."""

    summary = "tools for an agent (Model Context Protocol): choose, reward, explain, report, add_arms, status"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "--port",
            type=int,
            metavar="PORT",
            help="serve http://127.0.0.1:PORT/mcp, where each request brings its own API key. "
            "Default: standard input and output, with --key.",
        )
        add_service(parser, "choose and reward, read for explain, report and status, admin for add_arms")

    def run(self, given: argparse.Namespace) -> int | None:
        tools = import_module("shortlist_mcp.tools")  # other commands need not load it
        with connect(given):  # an address or a key that cannot be is said at once
            tools.serve(given.url, given.key, port=given.port)
        return None
