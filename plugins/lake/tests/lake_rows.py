"""Rows of a lake, and the terms of its bandit, by hand."""

from types import SimpleNamespace
from typing import Any

TERMS = {
    "id": "u", "partitions": 2, "features": 2, "context": None, "directions": None, "half_life_s": None,
}  # fmt: skip
NOTHING: dict[str, Any] = dict.fromkeys(
    [
        "id",
        "arm",
        "revision",
        "value",
        "decided",
        "replaces",
        "context",
        "replayed",
        "features",
        "state",
        "examined",
        "signal",
        "signal_number",
        "had",
        "space",
        "expected",
        "effect",
        "weight",
        "age",
    ]
)
ARM = SimpleNamespace(id="a", revision=5, features=[1.0, 2.0])


def row(number: int, kind: str = "observation", **fields: Any) -> tuple[int, Any]:
    said = {"time": 1, "key": "ann", "first": True, "before": 0.0, "logged": False, **NOTHING}
    if kind not in {"forget", "state"}:
        said |= {"arm": "a", "revision": 5, "value": 1.0, "decided": 1, "id": f"o{number}"}
    return 0, SimpleNamespace(number=number, kind=kind, **{**said, **fields})
