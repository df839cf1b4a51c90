"""A class has a name of its own in the project, and so has a ``Literal`` of the choices of an option.

The client names what it sends and receives as the service does, so it is looked at by itself.
"""

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
# To be parted: nothing may be added.
TWICE = {"Kind", "LoggedReward", "Outcome", "RejectCode"}
WRITERS = {"CsvWriter", "NdjsonWriter", "ParquetWriter"}  # of arms and of learners


def names(source: str) -> Iterator[str]:
    """Classes and ``Literal`` aliases at the top of a module."""
    for node in ast.parse(source).body:
        if isinstance(node, ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Assign) and ast.unparse(node.value).startswith("Literal["):
            yield from map(ast.unparse, node.targets)


@pytest.mark.parametrize(
    ("folders", "known"),
    [
        pytest.param(("algorithms/shortlist", "app", "server", "workers"), TWICE, id="service"),
        pytest.param(("clients/python/shortlist_client",), WRITERS, id="client"),
    ],
)
def test_a_name_is_used_once(folders, known):
    paths = [path for folder in folders for path in ROOT.glob(f"{folder}/**/*.py")]
    counts = Counter(name for path in paths for name in names(path.read_text()))
    assert len(counts) > 20
    assert {name for name, count in counts.items() if count > 1} <= known


def test_classes_and_literals_are_seen():
    source = 'class A:\n    class Inner: ...\nB = Literal["b"]\nC = dict[str, int]\nD = 1\n'
    assert list(names(source)) == ["A", "B"]
