"""The command `shortlist upgrade`: its options."""

from __future__ import annotations

import argparse
from importlib import import_module

from shortlist_service.commands import Command, add_settings, settings_of


class Upgrade(Command):
    """Convert the store of a stopped installation."""

    summary = "convert a stopped store of version 2.x for version 3"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        add_settings(parser, "data_dir", "redis_url")
        parser.add_argument(
            "--check",
            action="store_true",
            help="say what becomes of each bandit, and change nothing; exits with 1 if something stops it",
        )
        parser.add_argument(
            "--no-copy", action="store_true", help="do not copy the files of an embedded store first"
        )
        parser.add_argument(
            "--drop-learners",
            nargs="+",
            default=[],
            metavar="BANDIT",
            help="learners that version 3 cannot read go; the bandit and its decision log stay",
        )

    def run(self, parsed: argparse.Namespace) -> int | None:
        settings = settings_of(parsed)
        # Here: other commands need not load it.
        upgrade = import_module("shortlist_upgrade.upgrade").upgrade
        with import_module("shortlist_upgrade.server").opened(
            settings, reads_only=parsed.check, copies=not parsed.no_copy
        ) as server:
            goes = upgrade(
                server,
                reads_only=parsed.check,
                dropped=parsed.drop_learners,
                rewarded_s=settings.token_ttl_s,
                say=print,
            )
        return None if goes else 1
