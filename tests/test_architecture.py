"""The arrows of the design, walked over every import: who may know whom."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCES = sorted((*ROOT.glob("app/**/*.py"), *ROOT.glob("workers/**/*.py")))
LONGEST_MODULE = 300

# Which parts of the project a part may import. Only main, which chooses implementations, sees them all.
LAYERS = {
    "errors": set(),
    "progress": set(),
    "settings": {"errors"},
    "algorithms": {"algorithms", "errors"},
    "indexes": {"indexes", "algorithms", "errors"},
    "storage": {"storage", "progress", "errors", "settings"},
    "services": {"services", "algorithms", "indexes", "storage", "errors", "settings"},
    "metrics": set(),
    "background": set(),
    "service": {"services", "storage", "workers", "metrics", "background", "errors", "settings"},
    "api": {"api", "services", "service", "metrics", "errors", "settings"},
    "workers": {"workers", "services", "background", "errors", "settings", "main"},
    "experiments": {"experiments", "algorithms", "indexes", "progress", "errors"},
    "bench": {
        "bench",
        "experiments",
        "progress",
        "main",
        "services",
        "algorithms",
        "indexes",
        "storage",
        "errors",
        "settings",
    },
    "administration": {"services", "storage", "errors", "settings"},
    "doctor": {"indexes", "storage", "errors", "settings"},
    "http_protocol": {"api"},
    "serving": {"main", "http_protocol", "storage", "workers", "background", "errors", "settings"},
    "serving_group": {"serving", "background", "errors", "settings"},
    "cli": {
        "serving",
        "serving_group",
        "administration",
        "doctor",
        "bench",
        "experiments",
        "errors",
        "settings",
    },
    "tracing": {"errors"},
    "main": {"api", "service", "storage", "metrics", "tracing", "background", "settings"},
}
PURE = {
    "__future__", "abc", "bisect", "collections", "dataclasses", "enum", "functools", "heapq",
    "itertools", "math", "numpy", "scipy", "typing",
}  # fmt: skip
# Types without behaviour, which the workers pass between services; how every measurement is printed and kept.
INTERFACES = {
    "workers": {"app.storage.protocol", "app.storage.changes"},
    "experiments": {"app.bench.report"},
}
ONLY_IN = {"hnswlib": ("app/indexes/hnsw.py", "app/bench/bounded_me.py"), "redis": "app/storage/"}
GENERATOR_TYPES = {"Generator", "SeedSequence"}


def part(module: str) -> str:
    """Return the part a dotted name belongs to: app.indexes.hnsw -> indexes, workers.runner -> workers."""
    names = module.split(".")
    return names[0] if names[0] != "app" or len(names) == 1 else names[1]


def imports(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if base == "app":
                yield from (f"app.{alias.name}" for alias in node.names)
            else:
                yield "relative" if node.level else base


def violations(path: str, source: str) -> list[str]:
    """Return every rule that the module at ``path`` (relative to the project) breaks."""
    tree = ast.parse(source)
    here = part(path.removesuffix(".py").replace("/", "."))
    found = []
    for module in imports(tree):
        outside = module.split(".")[0]
        if outside in {"app", "workers"}:
            allowed = LAYERS.get(here, set()) | {here}
            if part(module) not in allowed and module not in INTERFACES.get(here, set()):
                found.append(f"{here} imports {part(module)}")
        elif here == "algorithms" and outside not in PURE:
            found.append(f"algorithms import {outside}")
        if module == "relative":
            found.append("relative import")
        if outside in ONLY_IN and not path.startswith(ONLY_IN[outside]):
            found.append(f"{outside} outside {ONLY_IN[outside]}")
    if here == "algorithms":
        found += [f"hidden randomness: {name}" for name in global_randomness(tree)]
    if source.count("\n") > LONGEST_MODULE:
        found.append(f"more than {LONGEST_MODULE} lines")
    return found


def global_randomness(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Attribute)
            and node.value.attr == "random"
            and node.attr not in GENERATOR_TYPES
        ):
            yield node.attr


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_module_keeps_to_its_layer(path):
    assert violations(str(path.relative_to(ROOT)), path.read_text()) == []


def test_every_part_of_the_project_has_a_layer():
    parts = {part(str(path.relative_to(ROOT)).removesuffix(".py").replace("/", ".")) for path in SOURCES}
    assert parts - {"__init__"} <= set(LAYERS)


@pytest.mark.parametrize(
    ("path", "source", "broken"),
    [
        ("app/algorithms/linear/a.py", "import redis", 2),
        ("app/algorithms/mips/a.py", "import hnswlib", 2),
        ("app/algorithms/mips/a.py", "from time import sleep", 1),
        ("app/algorithms/mips/a.py", "from app.indexes import exact", 1),
        ("app/algorithms/mips/a.py", "from app import indexes", 1),
        ("app/algorithms/mips/a.py", "import numpy as np\nnp.random.rand()", 1),
        ("app/algorithms/mips/a.py", "def f():\n    import asyncio", 1),
        ("app/indexes/exact.py", "import hnswlib", 1),
        ("app/services/a.py", "import redis.asyncio", 1),
        ("app/services/a.py", "from app.api import errors", 1),
        ("app/api/a.py", "from app.storage.protocol import Store", 1),
        ("app/storage/a.py", "from app.services import learners", 1),
        ("workers/a.py", "from app.api import errors", 1),
        ("workers/a.py", "from app.storage.redis_store import RedisStore", 1),
        ("workers/a.py", "from app.storage.protocol import Store", 0),
        ("workers/a.py", "from . import runner", 1),
        ("app/services/a.py", "x = 1\n" * 301, 1),
        ("app/indexes/hnsw.py", "import hnswlib\nfrom app.algorithms.types import TopK", 0),
        ("app/main.py", "from app.api import errors\nfrom app.storage import redis_store", 0),
        ("app/algorithms/mips/a.py", "import numpy as np\ndef f(rng: np.random.Generator): ...", 0),
    ],
)
def test_the_check_sees_a_broken_rule(path, source, broken):
    assert len(violations(path, source)) == broken
