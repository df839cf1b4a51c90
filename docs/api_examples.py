"""The examples of the API reference, in ``api_examples.http``: read, played on a service, and written again.

    PYTHONPATH=.:tests/support python docs/api_examples.py     renews the answers (``make api-examples``)

An example is a request line, headers if it needs any, a body, and after ``=`` the status and what the service
answers. Blocks (``app/api/imports.py``) are shown as JSON, one a line, and bytes of float32 in them as lists
of numbers. Values that differ from run to run and long texts are shown as ``…``.
"""

from __future__ import annotations

import json
import math
import re
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import msgspec
import numpy as np

from app.api.arms import BLOCKS

FILE = Path(__file__).with_suffix(".http")
WIDTH = 110
DEPTH = 4  # what is nested deeper is not shown
ITEMS = 4  # of a list
LETTERS = 60  # of a text that is no prose
PROSE = {"detail", "finding", "message", "reason", "text", "summary", "warnings", "title"}
# Values that are of one run, of one machine or too long to be read.
VOLATILE = {
    "backlog", "build_s", "by", "cached_learner_bytes", "cached_learners", "created", "decided", "decision",
    "elapsed_ms", "expected_us", "lag_s", "last_ms", "memory_bytes", "next", "options", "position", "python",
    "since_ms", "time", "until_ms", "uptime_s", "window",
}  # fmt: skip
TOKEN = re.compile(
    r"[0-9a-f]{16,}(-\d+)?|(?!shortlist-)[\w-]{16}|\d+\.\d+\.\d+"
)  # ids that the service made, and its version
# A log is written shortly after the answer: what reads it is asked again until it answers what is shown.
PATIENCE_S = 30.0
PARTITIONS = 16
JUDGED = "/v1/bandits/shop/embeddings"
VISITS, VISITORS = 48, 12


@dataclass(frozen=True)
class Example:
    """``answer`` is JSON as it is shown, or text where the service answers none."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: str
    status: int = 0
    answer: str = ""

    @property
    def request(self) -> str:
        """As the file has it."""
        headers = [f"{name}: {value}" for name, value in self.headers.items()]
        return "\n".join([f"{self.method} {self.path}", *headers, *filter(None, [self.body])])

    def __str__(self) -> str:
        shown = f"\n{self.answer}" if self.answer else ""
        return f"{self.request}\n= {self.status}{shown}"


def read() -> tuple[str, list[Example]]:
    """The comment above the examples, and the examples in the order in which they are played."""
    head, *blocks = FILE.read_text("utf-8").rstrip().split("\n\n")
    return head, [_parsed(block) for block in blocks]


def _parsed(block: str) -> Example:
    request, _, answer = block.partition("\n= ")
    line, *rest = request.split("\n")
    headers = {}
    while rest and (header := re.fullmatch(r"([A-Z][A-Za-z-]+): (.*)", rest[0])):
        headers[header[1]] = header[2]
        del rest[0]
    method, path = line.split(" ")
    status, _, shown = answer.partition("\n")
    return Example(method, path, headers, "\n".join(rest), int(status or 0), shown)


def by_call(paths: Mapping[str, Any]) -> dict[str, list[Example]]:
    """The examples of every call of an OpenAPI document, by method and path as they are there."""
    calls: dict[str, list[Example]] = {}
    for path, verbs in paths.items():
        calls |= {f"{verb.upper()} {path}": [] for verb in verbs}
    # a name in a path is a better match than a parameter in its place: those come last
    order = sorted(calls, key=lambda call: [part.startswith("{") for part in call.split("/")])
    for example in read()[1]:
        line = f"{example.method} {example.path.partition('?')[0]}"
        call = next(call for call in order if re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", call), line))
        calls[call].append(example)
    return calls


def play(service: httpx.Client) -> Iterator[tuple[Example, Example]]:
    """Each example as it is in the file, and as the service answers it now."""
    seen: dict[str, str] = {}
    for example in read()[1]:
        if (example.method, example.path) == ("POST", JUDGED):
            visit(service)
        deadline = time.monotonic() + PATIENCE_S
        for attempt in count():
            seen["partition"] = str(attempt % PARTITIONS)  # where an entry is, nobody can know
            answer = _send(service, example, seen)
            found = replace(example, status=answer.status_code, answer=_shown(answer))
            again = example.method == "GET" and example.status == answer.status_code
            if not again or agree(example, found) or time.monotonic() > deadline:
                break
            time.sleep(0.1)
        if answer.is_success and answer.headers.get("content-type") == "application/json":
            counts: dict[str, int] = {}
            for name, value in _texts(answer.json()):
                counts[name] = counts.get(name, 0) + 1
                seen[name if counts[name] == 1 else f"{name}_{counts[name]}"] = value
        yield example, found


def visit(service: httpx.Client) -> None:
    """Give ``shop`` a log that is long enough to be judged, and too long to be shown; once."""
    values = np.random.default_rng(0).normal(size=(VISITS, 3)).round(2).tolist()
    rewards = []
    for number in range(0 if service.get("/v1/bandits/shop/log").json()["items"] else VISITS):
        began = time.time_ns() // 1_000_000
        body = {"key": f"user-{number % VISITORS}", "k": 3}
        decision = service.post("/v1/bandits/shop/choose", json=body).json()["decision"]
        for arm, value in zip(("alien", "amelie", "heat"), values[number], strict=True):
            rewards.append({"decision": decision, "arm": arm, "value": value})
        while time.time_ns() // 1_000_000 == began:
            pass  # rows of one millisecond have no order
    if rewards:
        service.post("/v1/rewards?wait=applied", json={"rewards": rewards}).raise_for_status()


def _send(service: httpx.Client, example: Example, seen: Mapping[str, str]) -> httpx.Response:
    path, body = (
        re.sub(r"\$\{(\w+)\}", lambda found: seen[found[1]], text) for text in (example.path, example.body)
    )
    headers = {**({"Content-Type": "application/json"} if body else {}), **example.headers}
    content = _blocks(body) if headers.get("Content-Type") == BLOCKS else body.encode()
    return service.request(example.method, path, content=content or None, headers=headers)


def _blocks(body: str) -> bytes:
    """What is sent for the documents of ``body``, one a line."""
    blocks = b""
    for line in body.splitlines():
        block = msgspec.msgpack.encode({name: _packed(value) for name, value in json.loads(line).items()})
        blocks += len(block).to_bytes(4, "little") + block
    return blocks


def _packed(value: Any) -> Any:
    is_numbers = isinstance(value, list) and all(isinstance(number, int | float) for number in value)
    return np.array(value, "<f4").tobytes() if is_numbers else value


def _texts(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """The texts of an answer with their names, in its order."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _texts(inner, key)
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner, name)
    elif isinstance(value, str):
        yield name, value


def _shown(answer: httpx.Response) -> str:
    kind = answer.headers.get("content-type", "")
    if "ndjson" in kind:
        return "\n".join(_written(_short(json.loads(line), "")) for line in answer.text.splitlines()[:1])
    if "json" in kind:
        return _written(_short(answer.json(), ""))
    return re.sub(r"(?m) [-+.e\d]+$", " …", "\n".join(answer.text.splitlines()[:3]))


def _short(value: Any, name: str, depth: int = 0) -> Any:
    """What stays the same from run to run, and can be read."""
    if value not in (None, [], {}, "auto") and (
        name in VOLATILE or (isinstance(value, dict | list) and depth > DEPTH)
    ):
        return "…"
    if isinstance(value, dict):
        return {key: _short(inner, key, depth + 1) for key, inner in value.items()}
    if isinstance(value, list):
        return [_short(inner, name, depth + 1) for inner in value[:ITEMS]] + ["…"] * (len(value) > ITEMS)
    if isinstance(value, str) and name not in PROSE and (len(value) > LETTERS or TOKEN.fullmatch(value)):
        return "…"
    if name == "seed" and isinstance(value, int) and value > 1_000_000:  # of the service's own
        return "…"
    return float(f"{value:.4g}") if isinstance(value, float) else value


def _written(value: Any, indent: int = 0, lead: int = 0) -> str:
    """JSON that breaks only the lines that are too long; ``lead`` characters stand before it."""
    line = json.dumps(value, ensure_ascii=False)
    if indent + lead + len(line) <= WIDTH or not isinstance(value, dict | list):
        return line
    named = value.items() if isinstance(value, dict) else [(None, inner) for inner in value]
    parts = []
    for name, inner in named:
        before = "" if name is None else f"{json.dumps(name)}: "
        parts.append(before + _written(inner, indent + 2, len(before)))
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    return f"{opening}{_wrapped(parts, indent + 2)}\n{' ' * indent}{closing}"


def _wrapped(parts: list[str], indent: int) -> str:
    """Members side by side as far as a line goes."""
    lines = [""]
    for place, part in enumerate(parts):
        text = part + ("," if place < len(parts) - 1 else "")
        if not lines[-1] or "\n" in text or "\n" in lines[-1] or indent + len(lines[-1]) + len(text) >= WIDTH:
            lines.append(text)
        else:
            lines[-1] += f" {text}"
    return "".join(f"\n{' ' * indent}{line}" for line in lines[1:])


def agree(shown: Example, found: Example) -> bool:
    """Whether the service answers what is shown; other digits of a number do not matter."""
    if shown.status != found.status:
        return False
    try:
        return _same(json.loads(shown.answer), json.loads(found.answer))
    except ValueError:
        return shown.answer == found.answer


def _same(one: Any, other: Any) -> bool:
    if one == "…":
        return True
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=2e-3, abs_tol=1e-6)
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[name], other[name]) for name in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    return type(one) is type(other) and bool(one == other)


def _renew() -> None:
    from service_process import serving  # type: ignore[import-not-found]  # noqa: PLC0415  # of the tests

    with (
        tempfile.TemporaryDirectory() as folder,
        serving(Path(folder)) as service,
        httpx.Client(base_url=service.url, timeout=60) as http,
    ):
        answers = [shown if agree(shown, found) else found for shown, found in play(http)]
    FILE.write_text("\n\n".join([read()[0], *map(str, answers)]) + "\n", "utf-8")


if __name__ == "__main__":
    _renew()
