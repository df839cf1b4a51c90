"""How fast rewards come in from Kafka, beside the REST call by one client. Needs the extra ``kafka``.

    python -m load_tests.kafka_ingestion [--quick] [--json FILE]

`shortlist ingest` reads from the broker double that librdkafka carries: this does not say how fast a Kafka
is. Both are timed from the first message, or request, until all rewards are applied, in turns. What counts
are the ratios within a round.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from examples.service import SHORTLIST, temporary_service
from load_tests.ingestion import SEED, _fill, _row, _timed
from shortlist_client import Client
from studies.measurement import report

ROUNDS, REWARDS = 5, 20_000
TOPIC = "rewards"


def main(arguments: list[str] | None = None) -> int:
    """Measure, print, and write the figures."""
    parser = argparse.ArgumentParser(prog="python -m load_tests.kafka_ingestion", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer, shorter rounds")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write machine, versions and every ratio")
    parsed = parser.parse_args(arguments)
    result = report("kafka", [_measured(*((2, 5_000) if parsed.quick else (ROUNDS, REWARDS)))], seed=SEED)
    if parsed.json is not None:
        parsed.json.write_text(json.dumps(result, indent=1) + "\n")
    return 0


def _measured(rounds: int, rewards: int) -> dict[str, Any]:
    producer = Producer({"test.mock.num.brokers": "1", "bootstrap.servers": "x", "linger.ms": 5})
    (broker,) = producer.list_topics(timeout=10).brokers.values()
    source = f"kafka://{broker.host}:{broker.port}/{TOPIC}"
    kafka, rest = [], []
    with temporary_service() as service, service.connect() as client:
        _fill(client)
        _produce(producer, _rewards(client, 1))
        command = [sys.executable, "-c", SHORTLIST, "ingest", "--from", source, "--url", client.url]
        ingester = subprocess.Popen(command)
        try:
            _await_applied(client, 1)
            for cycle in range(rounds):
                before = 1 + 2 * cycle * rewards
                by_kafka, by_rest = _rewards(client, rewards), _rewards(client, rewards)
                kafka.append(rewards / _timed(partial(_by_kafka, producer, client, by_kafka, before)))
                rest.append(rewards / _timed(partial(_by_rest, client, by_rest, before + rewards)))
        finally:
            ingester.terminate()
            ingester.wait()
    return _row("kafka", kafka, rest)


def _rewards(client: Client, count: int) -> list[Any]:
    choices = client.choose_batch("b", ({"key": f"u{n % 100}"} for n in range(count))).results
    return [{"decision": choice.decision, "value": 1.0} for choice in choices]


def _by_kafka(producer: Producer, client: Client, items: list[Any], before: int) -> None:
    _produce(producer, items)
    _await_applied(client, before + len(items))


def _by_rest(client: Client, items: list[Any], before: int) -> None:
    client.reward_batch(items)
    _await_applied(client, before + len(items))


def _produce(producer: Producer, items: list[Any]) -> None:
    for item in items:
        producer.produce(TOPIC, json.dumps(item))
    producer.flush()


def _await_applied(client: Client, total: int) -> None:
    while sum(learner.observations for learner in client.learners("b")) < total:
        time.sleep(0.02)


if __name__ == "__main__":
    sys.exit(main())
