"""Bounds that a test needs are arguments, and it goes in by public doors: private names are counted."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from changed import FOLDERS

pytestmark = pytest.mark.rest

ROOT = Path(__file__).parents[1]
CONSTANT, PRIVATE = re.compile(r"_?[A-Z][A-Z0-9_]+"), re.compile(r"_[a-z]")
MAX_PRIVATE_NAMES = 98
DOCUMENTED = {"_replace", "_exit"}  # of named tuples and of os, public in spite of their names
WHY = "# private: "


def sources_of_tests() -> Iterator[tuple[Path, str]]:
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            yield path, path.read_text()


def patched_constants(source: str) -> int:
    """How often a file replaces a constant of a module: a name in capitals."""
    count = 0
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr in {"setattr", "object"}:
                texts = (each.value for each in node.args[:2] if isinstance(each, ast.Constant))
                names = [text.rpartition(".")[2] for text in texts if isinstance(text, str)]
                count += any(map(CONSTANT.fullmatch, names))
        elif isinstance(node, ast.Assign):
            targets = [each.attr for each in node.targets if isinstance(each, ast.Attribute)]
            count += any(map(CONSTANT.fullmatch, targets))
    return count


def private_names(source: str) -> list[int]:
    """The lines that use a private name of what the file has not defined itself."""
    nodes = [*ast.walk(ast.parse(source))]
    uses = [node for node in nodes if isinstance(node, ast.Attribute) and PRIVATE.match(node.attr)]
    own = {use.attr for use in uses if isinstance(use.value, ast.Name) and use.value.id in {"self", "cls"}}
    own |= {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    return [use.end_lineno or 0 for use in uses if use.attr not in own | DOCUMENTED]


def without_a_word(source: str) -> list[int]:
    """Those of these lines that do not say why, at their end or in the line above."""
    lines = ["", *source.splitlines()]
    return [line for line in private_names(source) if WHY not in lines[line - 1] + lines[line]]


def test_no_constants_of_modules_are_patched() -> None:
    counts = {path.name: patched_constants(source) for path, source in sources_of_tests()}
    assert [name for name, count in counts.items() if count] == []


def test_few_private_names_of_others_are_used_and_each_says_why() -> None:
    sources = dict(sources_of_tests())
    assert sum(len(private_names(source)) for source in sources.values()) <= MAX_PRIVATE_NAMES
    found = {path.name: lines for path, source in sources.items() if (lines := without_a_word(source))}
    assert not found, f"say why after {WHY!r}"
