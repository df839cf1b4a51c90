"""Names in backticks, in docstrings, comments and documents, are names that the code still has."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = (
    "app", "workers", "server", "shortlist_service", "algorithms/shortlist", "clients/python", "plugins"
)  # fmt: skip
DOCUMENTS = ("CONTRIBUTING", "docs/architecture", "docs/glossary", "docs/reading-order", "docs/tour")
# Classes, and names of several words: one word may be a field of a request.
IN_DOCUMENTS = re.compile(r"(?<!`)`((?!test_)_?[a-z]+(?:_[a-z0-9]+)+|[A-Z][a-z]+(?:\.\w+|[A-Z]\w+)+)`")
NAMED = re.compile(r"``([A-Za-z_][\w.]*)``")
OF_OTHERS = {
    "all_proxy", "http_proxy", "https_proxy",  # variables of the environment
    "dpotri",  # of LAPACK
    "BaseHTTPMiddleware",  # of Starlette
    "pyproject.toml", "pydantic.ValidationError",
    "salary.min",  # a column of an example
    "FlatIndex",  # of a test
}  # fmt: skip


def sources(folder: str) -> list[Path]:
    left_out = {"tests", "node_modules"}  # within the project, which may lie in a folder of this name itself
    return sorted(
        path for path in (ROOT / folder).rglob("*.py") if left_out.isdisjoint(path.relative_to(ROOT).parts)
    )


def names_of(source: str) -> set[str]:
    """All that the code of a module names, and the words of its strings, without docstrings."""
    tree, names = ast.parse(source), set[str]()
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        match node:
            case (
                ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name) | ast.keyword(arg=str(name))
            ):
                names.add(name)
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                names.add(node.name)
            case ast.alias():
                names |= {*node.name.split("."), node.asname or ""}
            case ast.Constant(value=str(text)) if id(node) not in docstrings:
                names |= {*re.findall(r"\w+", text)}
    return names


@cache
def all_names() -> frozenset[str]:
    files = [path for folder in FOLDERS for path in sources(folder)]
    modules = {part for path in files for part in path.relative_to(ROOT).with_suffix("").parts}
    return frozenset(modules.union(*(names_of(path.read_text()) for path in files)))


def stale_names(text: str, named: re.Pattern[str] = NAMED) -> set[str]:
    found = {match[1] for match in named.finditer(text)}
    return {name for name in found - OF_OTHERS if not {*name.strip(".").split(".")} <= all_names()}


@pytest.mark.parametrize("folder", FOLDERS)
def test_docstrings_name_what_there_is(folder: str):
    stale = {
        str(path.relative_to(ROOT)): names
        for path in sources(folder)
        if (names := stale_names(path.read_text()))
    }
    assert stale == {}


@pytest.mark.rest
@pytest.mark.parametrize("name", DOCUMENTS)
def test_documents_name_what_there_is(name: str):
    assert stale_names((ROOT / f"{name}.md").read_text(), IN_DOCUMENTS) == set()


def test_a_name_that_is_gone_is_found():
    assert stale_names("``LiveIndex.snapshot`` and ``a_name_that_is_gone``") == {"a_name_that_is_gone"}
    assert stale_names("`LiveIndex.snapshot`, `_gone_name`, `k`", IN_DOCUMENTS) == {"_gone_name"}
