"""A dead letter is durable before the offset of its message is: then it may be forgotten, not before."""

from types import SimpleNamespace
from typing import Any

import confluent_kafka
import pytest
from prometheus_client import CollectorRegistry

from shortlist_client import Client
from shortlist_streams import ingesting
from shortlist_streams.ingesting import Ingester, source_of

BAD = b"{"


class Kafka:
    """What the module of Kafka's client has: one message, and a broker that refuses the first delivery."""

    KafkaError, KafkaException = confluent_kafka.KafkaError, confluent_kafka.KafkaException
    TopicPartition = confluent_kafka.TopicPartition

    def __init__(self) -> None:
        self.did: list[str] = []
        self.errors: list[Any] = [confluent_kafka.KafkaError(confluent_kafka.KafkaError._MSG_TIMED_OUT), None]
        self.ingester: Ingester | None = None
        message = {"value": BAD, "error": None, "partition": 0, "offset": 7, "topic": "rewards", "key": None}
        self.messages = [SimpleNamespace(**{name: lambda it=it: it for name, it in message.items()})]

    def Consumer(self, *_: Any, **__: Any) -> Any:  # noqa: N802 - Kafka's name
        topic = SimpleNamespace(error=None, partitions={})
        return SimpleNamespace(
            subscribe=lambda *_, **__: None,
            consume=lambda *_, **__: [self.messages.pop()] if self.messages else [],
            list_topics=lambda *_, **__: SimpleNamespace(topics={"rewards": topic}),
            assignment=list,
            committed=lambda *_, **__: [],
            commit=self.commit,
            close=lambda: None,
        )

    def Producer(self, *_: Any, **__: Any) -> Any:  # noqa: N802 - likewise
        return SimpleNamespace(produce=self.produce, flush=lambda: None)

    def produce(self, topic: str, value: bytes, key: None, *, headers: Any, on_delivery: Any) -> None:
        error = self.errors.pop(0)
        self.did.append(f"{'wrote' if error is None else 'lost'} {value.decode()} to {topic}")
        on_delivery(error, None)

    def commit(self, *, offsets: list[Any], asynchronous: bool) -> None:
        self.did.append(f"committed {offsets[0].offset}")
        assert self.ingester is not None
        self.ingester.stop()


def test_a_dead_letter_whose_delivery_fails_is_written_again_before_the_offset_moves(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(ingesting.time, "sleep", lambda _: None)
    kafka = Kafka()
    source = source_of("kafka://broker/rewards", dead_letters="dead")
    kafka.ingester = Ingester(kafka, source, Client(), CollectorRegistry())
    kafka.ingester.run()
    assert kafka.did == ["lost { to dead", "wrote { to dead", "committed 8"]
