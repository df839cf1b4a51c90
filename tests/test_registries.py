"""Only a registry knows what stands behind a contract: nothing else asks which structure or policy it is."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from app.catalogues.catalogue_kinds import ENGINE_KINDS
from app.engines.engine_index import EngineIndex
from app.indexes.live import LiveIndex
from app.policies.base import Policy
from app.policies.registry import POLICIES
from app.serving.constraints.base import Constraint
from shortlist.index.arm_index import ArmIndex
from shortlist.index.index import OWN_KINDS, Index

pytestmark = pytest.mark.rest

ROOT = Path(__file__).parent.parent
REGISTRIES = {
    "app/indexes/index_kinds.py",
    "algorithms/shortlist/index/planner.py",
    "algorithms/shortlist/index/arm_index.py",
    "app/catalogues/catalogue_kinds.py",
    "app/policies/registry.py",
    "app/serving/constraints/order.py",
    "app/serving/pipeline.py",
}
# Structures are named by their own files, by registries, and where one is a step of another search.
OWN_FILES = {
    "algorithms/shortlist/index/graph_file.py": {"hnsw"},
    "app/filtering/row_copy.py": {"norm_pruned"},  # how blocks are cut
}
STRUCTURES = "algorithms/shortlist/index/"
CAPABILITIES = f"{STRUCTURES}index.py"  # what a structure extends: these may be asked for
EXAMPLES = {  # they name a policy for the reader, or make a bandit
    "app/api/documentation.py",
    "server/client_commands.py",
}


@cache
def registered() -> dict[str, str]:
    """The classes behind the contracts, and the file of each."""
    assert ArmIndex  # the inverted file is imported by the library's index alone
    found, left = set[type](), [Index, Policy, Constraint, EngineIndex, LiveIndex]
    while left:
        found.add(each := left.pop())
        left += each.__subclasses__()
    files = {each.__name__: f"{each.__module__.replace('.', '/')}.py" for each in found}
    return {name: re.sub("^shortlist/", "algorithms/shortlist/", file) for name, file in files.items()}


def questions(path: str, source: str) -> list[str]:
    """Where a source asks which structure, policy or constraint something is, or names a policy."""
    if path in REGISTRIES:
        return []
    tree, found = ast.parse(source), list[str]()
    own = {node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
    docs = {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    policies = re.compile(rf"\b({'|'.join(POLICIES)})\b")
    for node in ast.walk(tree):
        asked: list[ast.expr] = []
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") in {"isinstance", "issubclass"}:
            asked = [node.args[1]]
        elif isinstance(node, ast.MatchClass):
            asked = [node.cls]
        elif isinstance(node, ast.Compare):
            asked = [node.left, *node.comparators]
            if any(map(is_kind, asked)) and any(map(names_a_kind, asked)):
                found.append(ast.unparse(node))
        names = [name.id for each in asked for name in ast.walk(each) if isinstance(name, ast.Name)]
        found += [
            name
            for name in names
            if name not in own and registered().get(name, path) not in (path, CAPABILITIES)
        ]
        is_text = isinstance(node, ast.Constant) and node not in docs and isinstance(node.value, str)
        if is_text and path not in EXAMPLES and not path.startswith("app/policies/"):
            found += policies.findall(node.value)
    return found


def structures_imported(path: str, source: str) -> list[str]:
    """Modules of single structures, and of their files, that a source of the service imports."""
    if path in REGISTRIES:
        return []
    modules = {file.removesuffix(".py").rsplit("/", 1)[1] for file in structure_files()}
    found = list[str]()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module == "shortlist.index":
            found += [name.name for name in node.names]
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("shortlist.index."):
            found.append((node.module or "").rsplit(".", 1)[1])
        elif isinstance(node, ast.Import):
            found += [
                name.name.rsplit(".", 1)[1] for name in node.names if name.name.startswith("shortlist.index.")
            ]
    return sorted({*found} & (modules | {"graph_file"}) - OWN_FILES.get(path, set()))


@cache
def structure_files() -> frozenset[str]:
    """The files of the structures, without that of the contract."""
    return frozenset(file for file in registered().values() if file.startswith(STRUCTURES)) - {CAPABILITIES}


def is_kind(node: ast.expr) -> bool:
    """Whether it is the kind of a structure. What an owner asked for is an option, and may be compared."""
    text = ast.unparse(node)
    return text.endswith((".kind", "['kind']")) and "options" not in text


def names_a_kind(node: ast.expr) -> bool:
    """Whether it is a kind in quotes, or a constant, which may be one."""
    values = {each.value for each in ast.walk(node) if isinstance(each, ast.Constant)}
    return bool(values & {*OWN_KINDS})


def sources() -> dict[str, str]:
    folders = ("algorithms/shortlist/index", "app", "workers", "server")
    paths = [path for folder in folders for path in ROOT.glob(f"{folder}/**/*.py")]
    assert len(paths) > 200
    return {str(path.relative_to(ROOT)): path.read_text() for path in paths}


def test_nothing_asks_which_structure_policy_or_constraint_it_is():
    found = {name: questions(name, source) for name, source in sources().items()}
    assert {name: each for name, each in found.items() if each} == {}


def test_only_registries_import_a_structure():
    assert structure_files() == {
        f"{STRUCTURES}{name}.py" for name in ("hnsw", "inverted_file", "norm_pruned")
    }
    found = {name: structures_imported(name, source) for name, source in sources().items()}
    assert {name: each for name, each in found.items() if each} == {}


def test_the_console_names_no_engine():
    """It asks what an index can do: another engine than ours is shown as ours is."""
    for path in (ROOT / "app/console").glob("*.js"):
        assert not [name for name in ENGINE_KINDS if name in path.read_text().lower()], path.name


IMPORTING = [
    ("app/indexes/publishing.py", "from shortlist.index.hnsw import GraphTuning", ["hnsw"]),
    ("app/indexes/publishing.py", "from shortlist.index import graph_file, table", ["graph_file"]),
    ("workers/a.py", "import shortlist.index.norm_pruned", ["norm_pruned"]),
    ("algorithms/shortlist/index/graph_file.py", "from shortlist.index.hnsw import HnswGraph", []),
    ("app/indexes/index_kinds.py", "from shortlist.index.hnsw import HnswGraph", []),
    ("app/indexes/live.py", "from shortlist.index.planner import IndexOptions", []),
]


def test_the_check_sees_an_import():
    for path, source, found in IMPORTING:
        assert structures_imported(path, source) == found, source


ASKING = [
    ("app/filtering/a.py", "isinstance(x, HnswGraph | str)", 1),
    ("workers/a.py", "[each for each in all if isinstance(each.index, EngineIndex)]", 1),
    ("app/filtering/a.py", "s.kind == 'hnsw' or s.kind in ('exact', 'norm_pruned')", 2),
    ("app/catalogues/a.py", "record.index['kind'] != 'hnsw'", 1),
    ("app/serving/a.py", "type(x) is QuotaConstraint", 1),
    ("app/serving/a.py", "match x:\n    case LinUcb():\n        pass", 1),
    ("app/moving/a.py", "NAMES = ('sub_elim', 'linear_elim')", 2),
    ("app/measuring/a.py", "why = 'only softmax knows'", 1),
    ("app/measuring/a.py", "'''Only softmax knows.'''", 0),
    ("algorithms/shortlist/index/hnsw.py", "isinstance(x, HnswGraph)", 0),
    ("app/indexes/index_kinds.py", "isinstance(x, HnswGraph)", 0),
    ("app/indexes/search_structures.py", "self.options.kind == 'exact'", 0),
    ("app/policies/softmax.py", "name = 'softmax'", 0),
]


def test_the_check_sees_a_question():
    for path, source, asked in ASKING:
        assert len(questions(path, source)) == asked, source


NAME = re.compile(r"`(\w+)`")
