"""The broker double that librdkafka carries: it speaks Kafka's protocol, and keeps what it has in memory."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from waiting import wait_until_sync

PARTITIONS = 4


class BrokerDouble:
    """Alive as long as this object. ``address``: HOST:PORT.

    A partition keeps its newest 5 MB: unread messages must not be more.
    """

    def __init__(self) -> None:
        settings = {"test.mock.num.brokers": "1", "bootstrap.servers": "x", "linger.ms": 5}
        self._producer = Producer(settings)
        (broker,) = self._producer.list_topics(timeout=10).brokers.values()
        self.address = f"{broker.host}:{broker.port}"

    def send(self, topic: str, messages: Iterable[object], *, at_ms: int = 0) -> int:
        """Append JSON, or bytes as they are; return how many there were. ``at_ms``: their time; 0: now."""
        values = [
            message if isinstance(message, bytes) else json.dumps(message).encode() for message in messages
        ]
        for number, value in enumerate(values):
            while True:
                try:
                    self._producer.produce(topic, value, partition=number % PARTITIONS, timestamp=at_ms)
                except BufferError:
                    self._producer.poll(0.1)
                else:
                    break
        assert self._producer.flush(60) == 0
        return len(values)

    def topics(self) -> set[str]:
        """Those that somebody has written to."""
        return set(self._producer.list_topics(timeout=10).topics)

    def committed(self, topic: str, group: str = "shortlist") -> int:
        """How many messages of the topic the group is done with."""
        with self._consumer(group) as consumer:
            partitions = self._partitions(consumer, topic)
            return sum(max(each.offset, 0) for each in consumer.committed(partitions, timeout=10))

    def read(self, topic: str) -> list[Any]:
        """All messages of a topic."""
        with self._consumer("reader") as consumer:
            partitions = self._partitions(consumer, topic)
            ends = {
                each.partition: consumer.get_watermark_offsets(each, timeout=10)[1] for each in partitions
            }
            consumer.assign([TopicPartition(topic, partition, 0) for partition in ends])
            found: list[Any] = []

            def whole() -> bool:
                found.extend(each for each in consumer.consume(500, timeout=0.5) if not each.error())
                return len(found) == sum(ends.values())

            wait_until_sync(whole, what=f"{topic} is read")
            return found

    @contextmanager
    def _consumer(self, group: str) -> Iterator[Any]:
        consumer = Consumer(
            {"bootstrap.servers": self.address, "group.id": group, "enable.auto.commit": False}
        )
        try:
            yield consumer
        finally:
            consumer.close()

    @staticmethod
    def _partitions(consumer: Any, topic: str) -> list[TopicPartition]:
        known = consumer.list_topics(topic, timeout=10).topics[topic].partitions
        return [TopicPartition(topic, number) for number in known]
