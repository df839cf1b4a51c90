"""The command `shortlist ingest`: its options."""

from __future__ import annotations

import argparse
from importlib import import_module
from pathlib import Path

from shortlist_service.commands import Command, add_service, add_settings, connect, settings_of


class Ingest(Command):
    """``shortlist ingest`` runs until it is stopped."""

    summary = "bring rewards and observations from a Kafka topic"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "--from",
            required=True,
            dest="source",
            metavar="ADDRESS",
            help="kafka://HOST[:PORT][,HOST...]/TOPIC[?group=NAME]. Default group: shortlist.",
        )
        parser.add_argument(
            "--dead-letters", metavar="TOPIC", help="where refused messages go. Default: TOPIC.dead-letters."
        )
        parser.add_argument(
            "--kafka-settings", type=Path, metavar="FILE", help="settings of librdkafka: lines name=value"
        )
        parser.add_argument("--metrics", metavar="HOST:PORT", help="serve /metrics there")
        add_service(parser, "reward, and observe for observations")
        add_settings(parser, "log_level")

    def run(self, given: argparse.Namespace) -> int | None:
        ingesting = import_module("shortlist_streams.ingesting")  # other commands need not load it
        source = ingesting.source_of(
            given.source, dead_letters=given.dead_letters, settings=given.kafka_settings
        )
        settings = settings_of(given)
        import_module("shortlist_service.logs").set_up_logging(settings.log_level, settings.log_format)
        with connect(given) as client:
            ingesting.ingest(source, client, metrics=given.metrics)
        return None
