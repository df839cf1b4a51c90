"""The commands `shortlist embed` and `shortlist begin`."""

from __future__ import annotations

import argparse
import os
from importlib import import_module
from pathlib import Path
from typing import Any

from shortlist_service.commands import (
    Command,
    add_history_options,
    add_service,
    connect,
    flag_of,
    given_options,
    history_options,
)
from shortlist_service.errors import ShortlistError

OF_LOGS = {"bandit", "catalogue", "dim", "signal", "url", "key", "run"}
"""What may be given with ``--bandit``."""


class Embed(Command):
    """Make a catalogue of what keys liked."""

    summary = "make a catalogue whose features are what people like, from tables of clicks"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        add = parser.add_argument
        add("--history", nargs="+", type=Path, metavar="FILE", help="as of import --history")
        add("--catalogue", required=True, metavar="NEW", help="the catalogue to make")
        add("--from", dest="source", metavar="OLD", help="whose arms it has, and follows")
        add(
            "--bandit",
            metavar="BANDIT",
            help="judge its own log, without --history, and move it if that gains",
        )
        add(
            "--dim",
            type=_dim,
            metavar="N",
            help="numbers of an arm. Default: auto, as many as are real, from 32 on; 8 with --bandit.",
        )
        add(
            "--signal",
            metavar="SIGNAL",
            help="with --bandit: judge this one. Default: the weighted sum of all.",
        )
        add_history_options(parser, parser)
        add(
            "--liked",
            type=float,
            metavar="VALUE",
            help="values from here on mean liked. Default: all above 0, where some are not.",
        )
        add(
            "--since",
            metavar="FIELD",
            help="metadata that says when an arm came: newer ones were not passed over",
        )
        add(
            "--without-prior",
            action="store_true",
            help="keep nothing of what the history says of keys, with which new bandits begin",
        )
        add("--dry-run", action="store_true", help="say what it would be, and make nothing")
        add("--then-move", metavar="BANDIT", help="move this bandit to it, with what it learned")
        add_service(parser)

    def run(self, given: argparse.Namespace) -> None:
        embedding = _module("embedding")
        if given.bandit is not None:
            if foreign := given_options(given) - OF_LOGS:
                raise ShortlistError(f"{flag_of(min(foreign)).replace('source', 'from')}: not with --bandit")
            with connect(given) as client:
                print(embedding.embed_log(client, given.bandit, given.catalogue, given.dim, given.signal))
            return
        for name, flag in (("history", "--history"), ("source", "--from")):
            if getattr(given, name) is None:
                raise ShortlistError(f"{flag}: name it, or a --bandit whose own log is judged")
        if given.signal is not None:
            raise ShortlistError("--signal: only with --bandit")
        if given.since is not None and given.at_column is None:
            raise ShortlistError("--since: name the column of the times of the history with --at-column")
        with connect(given) as client:
            options = embedding.EmbedOptions(
                history_options(given),
                given.dim,
                given.liked,
                given.then_move,
                given.since,
                not given.without_prior,
            )
            lines = embedding.embed_history(client, given.source, given.catalogue, given.history, options)
            for line in lines:
                print(line, flush=True)


class Begin(Command):
    """Make a bandit of two tables."""

    summary = "from a table of items and one of clicks to a bandit that knows both"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        add = parser.add_argument
        add("name", metavar="NAME", help="of the bandit, and of its catalogue")
        add("--items", required=True, type=Path, metavar="FILE", help="a table with a row an item")
        add("--id", required=True, metavar="COLUMN", help="the column of their ids")
        add("--history", required=True, nargs="+", type=Path, metavar="FILE", help="a table of clicks")
        add("--key", required=True, metavar="COLUMN", help="who it was")
        add("--arm", required=True, metavar="COLUMN", help="the id of the item")
        add("--value", metavar="COLUMN", help="what came of it. Default: each row is a like.")
        add("--at", metavar="COLUMN", help="when it was")
        add("--liked", type=float, metavar="N", help="values from here on mean liked, as of ratings")
        add(
            "--features",
            metavar="BLOCKS",
            help="of behaviour,table,likes: fewer of them. Default: all three.",
        )
        add("--encoding", metavar="NAME", help="of CSV. Default: UTF-8 or UTF-16, else Windows-1252.")
        add(
            "--skip-bad",
            type=int,
            default=0,
            metavar="N",
            help="leave out up to N bad rows of each, and write them to FILE.bad.csv",
        )
        add(
            "--bad-as-missing",
            nargs="+",
            default=(),
            metavar="COLUMN",
            help="columns of the items whose bad cells are taken for missing: names or patterns",
        )
        add("--people", action="store_true", help="people of the history begin with what they liked")
        add("--dry-run", action="store_true", help="say what it would be worth, and make nothing")
        url = os.environ.get("SHORTLIST_URL", "http://127.0.0.1:8080")
        add("--url", default=url, help="of the service. Default: SHORTLIST_URL, or this machine.")
        add("--api-key", metavar="KEY", help="of scope admin. Default: SHORTLIST_KEY.")

    def run(self, given: argparse.Namespace) -> None:
        beginning = _module("beginning")
        every_block = beginning.BLOCKS
        blocks = tuple((given.features or ",".join(every_block)).split(","))
        if not set(blocks) <= set(every_block) or set(blocks) == {"table"}:
            raise ShortlistError(f"--features: must be some of {','.join(every_block)}, and more than table")
        if given.liked is not None and given.value is None:
            raise ShortlistError("--liked: name the column of these values with --value")
        columns = given.arm, given.value, given.key, given.at
        history = beginning.HistoryOptions(*columns, given.encoding, given.dry_run, given.skip_bad)
        options = beginning.BeginOptions(
            given.items,
            given.id,
            given.history,
            history,
            blocks,
            given.liked,
            given.bad_as_missing,
            given.people,
        )
        given.key = given.api_key or os.environ.get("SHORTLIST_KEY") or None
        with connect(given) as client:
            for line in beginning.begin(client, given.name, options):
                print(line, flush=True)


def _module(name: str) -> Any:
    """A module of this package, for one thread: several wait for each other busily, and take longer."""
    import_module("threadpoolctl").threadpool_limits(1)
    return import_module(f"shortlist_embeddings.{name}")


def _dim(text: str) -> int | None:
    if text == "auto":
        return None
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError("must be a number, or auto") from None
