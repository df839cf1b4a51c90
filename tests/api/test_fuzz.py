"""No input gives a 5xx or a hang: requests drawn from a seed, against a real process, counted by status."""

import http.client
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from endpoints import create_one_of_each
from fuzzing import Fuzz, Request

from api_client import Api
from service_process import Service, serving

pytestmark = pytest.mark.anyio

ANSWER_S = 30.0
TOGETHER = 2_500  # requests to one service, which starts again for the next


class Fuzzed:
    """Sends requests one after the other; what was answered, and everything that went wrong."""

    def __init__(self) -> None:
        self.statuses: Counter[int] = Counter()
        self.wrong: list[tuple[Any, Request]] = []

    def send(self, service: Service, fuzz: Fuzz, count: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=ANSWER_S)
        for _ in range(count):
            request = fuzz.request()
            try:
                connection.request(request.method, request.path, request.body, request.headers)
                answer = connection.getresponse()
                body = answer.read()
            except (OSError, http.client.HTTPException) as error:
                self.wrong.append((error, request))
                connection.close()  # the next request opens it again
                continue
            self.statuses[answer.status] += 1
            if answer.status >= 500:
                self.wrong.append((answer.status, request))
            elif answer.status < 300:
                fuzz.learn(body)
        connection.close()


def words(document: Any) -> Iterator[str]:
    """All words that the documentation lists as values."""
    if isinstance(document, dict):
        for name, value in document.items():
            if name == "enum":
                yield from value
            elif name == "const":
                yield value
            else:
                yield from words(value)
    elif isinstance(document, list):
        for value in document:
            yield from words(value)


@pytest.mark.timeout(3_600)
@pytest.mark.parametrize(
    ("seed", "count"),
    [(0, 400), *(pytest.param(seed, 10_000, marks=pytest.mark.slow) for seed in range(1, 11))],
)
async def test_no_input_is_answered_by_a_failure(tmp_path: Path, seed: int, count: int):
    fuzzed = Fuzzed()
    fuzz = None
    for first in range(0, count, TOGETHER):
        with serving(tmp_path / str(first)) as service:
            async with httpx.AsyncClient(base_url=service.url, timeout=60) as http:
                await create_one_of_each(Api(None, http, None))  # type: ignore[arg-type]
                document = json.loads((await http.get("/openapi.json")).content)
            fuzz = fuzz or Fuzz(seed, sorted({str(word) for word in words(document)}))
            fuzzed.send(service, fuzz, min(TOGETHER, count - first))
            failed = [record for record in service.records() if record["level"] == "ERROR"]
            assert failed == []
    print(f"seed {seed}: {dict(sorted(fuzzed.statuses.items()))}")
    assert fuzzed.wrong == []
    assert fuzzed.statuses.total() == count
    accepted = sum(fuzzed.statuses[status] for status in range(200, 300))
    assert accepted > count / 5, "most reach the work behind the checks"
