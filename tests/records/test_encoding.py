"""Contexts become numbers: the same ones forever, and what cannot be encoded names its field."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from app.records.encoding import ContextRule, EncodedField, Encoding, completed

FIELDS = [
    EncodedField("device", "category", values=["mobile", "desktop"]),
    EncodedField("hour", "cycle", period=24.0),
    EncodedField("age", "number", mean=35.0, scale=12.0),
    EncodedField("query", "hash", size=8),
]
NAMED = Encoding(completed(ContextRule(fields=FIELDS)))

# What these mean must never change: decisions and learners rely on it.
GOLDEN: list[tuple[dict[str, object], list[float]]] = [
    (
        {"device": "mobile", "hour": 21.5, "age": 41, "query": "red shoes"},
        [1, 0, 0.793353319, -0.60876143, 0.5, 0, 0, -0.707106769, 0, 0, 0, -0.707106769, 0],
    ),
    (
        {"device": "desktop", "hour": -3, "age": 0.5, "query": "Äpfel und Birnen und Äpfel"},
        [0, 1, 0.707106769, -0.707106769, -2.875, 0, 0, -0.666666687, 0.333333343, 0, 0, -0.666666687, 0],
    ),
    (
        {"hour": 1700000000, "query": "user-42"},
        [0, 0, -0.5, 0.866025388, 0, 0, 0, 0, 0, 0, 0, 0, -1],
    ),
]  # fmt: skip


@pytest.mark.parametrize(("context", "numbers"), GOLDEN)
def test_what_a_context_means_never_changes(context: dict[str, object], numbers: list[float]):
    found = NAMED.encode(context)
    assert found.dtype == np.float32
    assert found.tolist() == np.array(numbers, dtype=np.float32).tolist()


def test_another_process_encodes_to_the_same_bits():
    """Python's own hash differs from process to process; ours must not."""
    program = (
        "import json, sys\n"
        "from tests.records.test_encoding import NAMED\n"
        "print(json.dumps([NAMED.encode(c).tobytes().hex() for c in json.load(sys.stdin)]))"
    )
    contexts = [context for context, _ in GOLDEN]
    root = Path(__file__).parents[2]
    answers = [
        subprocess.run(
            [sys.executable, "-c", program],
            input=json.dumps(contexts),
            capture_output=True,
            text=True,
            check=True,
            cwd=root,
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(root)},
        ).stdout
        for seed in ("1", "2")
    ]
    assert [json.loads(answer) for answer in answers] == [
        [NAMED.encode(context).tobytes().hex() for context in contexts]
    ] * 2
