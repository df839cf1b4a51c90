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
    """Each test, or class of tests, of a file, and the target that runs it."""
    of_file = markers_of_file(source)
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            own = {
                name
                for mark in node.decorator_list
                for name in re.findall(r"^pytest\.mark\.(slow|rest)\b", ast.unparse(mark))
            }
            marker = next((name for name in ("slow", "rest") if name in own | of_file), "")
            yield node.name, TARGETS[marker]
