"""In which target a test runs: what its source says, without importing it.

A test is `slow` (`make test-slow`) or `rest` (`make test-rest`) by its own marker, or by that of its file;
else it is one that everybody waits for (`make test`).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

LOOP = "not slow and not rest"
TARGETS = {"slow": "make test-slow", "rest": "make test-rest", "": "make test"}
OF_FILE = re.compile(r"^pytestmark = (\[\n.*?^\]|.*?$)", re.MULTILINE | re.DOTALL)
MARKER = re.compile(r"\bpytest\.mark\.(slow|rest)\b")


def markers_of_file(source: str) -> set[str]:
    """`slow` and `rest`, if all tests of a file have them."""
    found = OF_FILE.search(source)
    return set(MARKER.findall(found[1])) if found else set()


def left_out(source: str, markexpr: str) -> bool:
    """Whether a selection like ``not slow and not rest`` leaves out all tests of a file."""
    if " or " in markexpr:
        return False
    return bool(markers_of_file(source) & set(re.findall(r"\bnot (slow|rest)\b", markexpr)))


def targets(source: str) -> Iterator[tuple[str, str]]:
    """Each function and class of a file, and the target that runs it, if it is a test."""
    for node, target in _with_target(source):
        yield node.name, target


def loop_lines(source: str) -> int:
    """The lines of a file, without tests that `make test` leaves out and the empty lines before these."""
    if left_out(source, LOOP):
        return 0
    lines = source.splitlines()
    left = len(lines)
    for node, target in _with_target(source):
        if target != TARGETS[""]:
            first = min(part.lineno for part in (node, *node.decorator_list)) - 1
            while first and not lines[first - 1]:
                first -= 1
            left -= (node.end_lineno or 0) - first
    return left


def _with_target(source: str) -> Iterator[tuple[ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef, str]]:
    of_file = markers_of_file(source)
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            marks = " ".join(ast.unparse(mark).partition("(")[0] for mark in node.decorator_list)
            markers = of_file | set(MARKER.findall(marks))
            yield node, TARGETS[next((name for name in TARGETS if name in markers), "")]
