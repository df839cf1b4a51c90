"""The arrows of the design, walked over every import: who may know whom."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import fields
from functools import cache
from pathlib import Path

import pytest

from app.platform.hooks import Hooks

ROOT = Path(__file__).parent.parent
SOURCES = sorted(
    path
    for folder in ("algorithms/shortlist", "app", "workers", "server", "studies")
    for path in ROOT.glob(f"{folder}/**/*.py")
)

# The arrows: which parts of the project a part imports. No other arrow is allowed, and each is used.
# A part is a folder of app, workers, or server, which composes them; or the library shortlist.
ARROWS = {
    "platform": set(),
    "storage": {"platform"},
    "records": {"platform", "storage", "shortlist"},
    "filters": {"platform", "shortlist"},
    "indexes": {"platform", "filters", "shortlist"},
    "engines": {"platform", "storage", "records", "filters", "indexes", "shortlist"},
    "catalogues": {"platform", "storage", "records", "filters", "indexes", "engines", "shortlist"},
    "filtering": {"platform", "filters", "indexes", "catalogues", "shortlist"},
    "bandits": {"platform", "storage", "records", "filters", "indexes", "catalogues", "shortlist"},
    "exposure_limits": {
        "platform",
        "storage",
        "records",
        "filters",
        "indexes",
        "filtering",
        "bandits",
        "shortlist",
    },
    "fold": {"platform", "storage", "records", "bandits", "shortlist"},
    "learners": {"platform", "storage", "records", "catalogues", "bandits", "fold", "shortlist"},
    "rewards": {
        "platform",
        "storage",
        "records",
        "catalogues",
        "bandits",
        "exposure_limits",
        "fold",
        "learners",
        "shortlist",
    },
    "decision_log": {"platform", "storage", "records", "bandits", "exposure_limits", "rewards"},
    "selection": {
        "platform",
        "storage",
        "records",
        "filters",
        "indexes",
        "engines",
        "catalogues",
        "filtering",
        "bandits",
        "exposure_limits",
        "learners",
        "rewards",
        "shortlist",
    },
    "policies": {
        "platform",
        "storage",
        "records",
        "filters",
        "indexes",
        "engines",
        "catalogues",
        "filtering",
        "bandits",
        "learners",
        "selection",
        "shortlist",
    },
    "replication": {"platform", "storage", "catalogues", "bandits", "exposure_limits", "learners"},
    "serving": {
        "platform",
        "storage",
        "records",
        "filters",
        "indexes",
        "catalogues",
        "filtering",
        "bandits",
        "exposure_limits",
        "learners",
        "rewards",
        "decision_log",
        "selection",
        "policies",
        "replication",
        "shortlist",
    },
    "measuring": {
        "platform",
        "storage",
        "records",
        "filters",
        "catalogues",
        "bandits",
        "learners",
        "rewards",
        "decision_log",
        "selection",
        "serving",
        "shortlist",
    },
    "moving": {
        "platform",
        "storage",
        "records",
        "indexes",
        "catalogues",
        "bandits",
        "exposure_limits",
        "fold",
        "learners",
        "rewards",
        "decision_log",
        "shortlist",
    },
    "queries": {"platform", "filters", "indexes", "engines", "catalogues", "filtering", "shortlist"},
    "workers": {
        "platform",
        "storage",
        "records",
        "engines",
        "catalogues",
        "bandits",
        "fold",
        "learners",
        "rewards",
        "replication",
    },
    "api": {
        "platform",
        "storage",
        "records",
        "filters",
        "catalogues",
        "filtering",
        "bandits",
        "exposure_limits",
        "learners",
        "rewards",
        "decision_log",
        "selection",
        "policies",
        "replication",
        "serving",
        "measuring",
        "moving",
        "queries",
        "shortlist",
    },
    "server": {
        "platform",
        "storage",
        "indexes",
        "catalogues",
        "filtering",
        "bandits",
        "exposure_limits",
        "fold",
        "learners",
        "rewards",
        "decision_log",
        "selection",
        "policies",
        "replication",
        "serving",
        "measuring",
        "moving",
        "queries",
        "workers",
        "api",
    },
    "shortlist": set(),
    "studies/study_commands": {"platform"},
    "studies/measurement": {"platform"},
    "studies/experiments": {"platform", "indexes", "catalogues", "shortlist", "studies/measurement"},
    "studies/bench": {
        "platform",
        "storage",
        "records",
        "filters",
        "indexes",
        "catalogues",
        "filtering",
        "bandits",
        "exposure_limits",
        "fold",
        "rewards",
        "decision_log",
        "selection",
        "policies",
        "measuring",
        "shortlist",
        "studies/measurement",
        "studies/experiments",
    },
    "__init__": set(),
    "studies/__init__": set(),
}
PURE = {
    "__future__", "abc", "array", "bisect", "collections", "dataclasses", "enum", "functools", "heapq",
    "itertools", "math", "numbers", "numpy", "scipy", "typing",
}  # fmt: skip
# What the structures of an index use besides: clocks and locks of builds, files that keep them, memory pages.
OF_INDEXES = {
    "contextlib", "copy", "ctypes", "hashlib", "hnswlib", "io", "json", "mmap", "msgspec", "os", "pathlib",
    "shutil", "struct", "sys", "tempfile", "threading", "time",
}  # fmt: skip
# A bandit in one object, which threads share and files keep.
OF_LINEAR_BANDIT = {"os", "pathlib", "threading", "zipfile"}
# Where the library makes a generator of a seed.
SEEDED = {
    "algorithms/shortlist/index/graph_file.py": "the direction of fingerprints is part of the format",
    "algorithms/shortlist/index/planner.py": "probes are not to be the draws that arms came from",
    "algorithms/shortlist/index/inverted_file.py": "a build has the seed, and a draw of its own",
}
# Of these parts only some modules: types without behaviour, limits, or the classes whose contract is used.
ONLY_MODULES = {
    ("workers", "storage"): {"app.storage.types", "app.storage.store", "app.storage.priors"},
    ("api", "storage"): {"app.storage.event_logs", "app.storage.store"},
    ("api", "shortlist"): {"shortlist.checks", "shortlist.errors"},
}
ONLY_IN = {
    "hnswlib": ("algorithms/shortlist/index/hnsw.py", "studies/bench/bounded_me.py"),
    "redis": "app/storage/",
    "pymilvus": "studies/bench/milvus.py",
}
# What may use the default threads of asyncio. What a request waits for has threads of its own (``LongWork``):
# else a few long requests would stop all of this.
IN_DEFAULT_THREADS = {
    "app/catalogues/resident_arms.py": "arms are shared when a service starts",
    "workers/reward_ingestion.py": "rewards are folded",
    "workers/log_trimming.py": "checkpoints are made",
    "app/filtering/filtered_snapshots.py": "filters are planned by measuring",
    "app/replication/expected_store.py": "a small file is written",
    "server/application.py": "the last spans are sent, at the end",
}
GENERATOR_TYPES = {"Generator", "SeedSequence"}
OURS = {"app", "server", "shortlist", "studies", "workers"}


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


def name_of(path: Path) -> str:
    return relative(path).removeprefix("algorithms/").removesuffix(".py").replace("/", ".")


def part(module: str) -> str:
    """The part of a dotted name: shortlist.index.hnsw -> indexes, studies.bench.choose -> studies/bench."""
    names = module.split(".")
    if names[0] == "studies":
        return "/".join(names[:2])
    if names[0] != "app" or len(names) == 1:
        return names[0]
    return names[1]


@cache
def imports_in(path: Path) -> list[ast.Import | ast.ImportFrom]:
    """Kept, for several rules read them: to parse and walk all sources takes seconds."""
    nodes = ast.walk(ast.parse(path.read_text()))
    return [node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)]


def imports(nodes: Iterable[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if base in {"app", "server", "studies"}:
                yield from (f"{base}.{alias.name}" for alias in node.names)
            else:
                yield "relative" if node.level else base


def violations(path: str, source: str) -> list[str]:
    """Return every rule that the module at ``path`` (relative to the project) breaks."""
    tree = ast.parse(source)
    here = part(name_of(ROOT / path))
    found = []
    for module in imports(ast.walk(tree)):
        outside = module.split(".")[0]
        if outside in OURS:
            there = part(module)
            if there not in {here, *ARROWS.get(here, ())}:
                found.append(f"{here} imports {there}")
            elif module not in ONLY_MODULES.get((here, there), {module}):
                found.append(f"{here} imports {module}")
        elif here == "shortlist" and outside not in may_use(path):
            found.append(f"shortlist imports {outside}")
        if module == "relative":
            found.append("relative import")
        if outside in ONLY_IN and not path.startswith(ONLY_IN[outside]):
            found.append(f"{outside} outside {ONLY_IN[outside]}")
        if path.startswith("app/storage/types/") and (outside == "redis" or may_import_redis(module)):
            found.append(f"types import {module}")
    if path not in IN_DEFAULT_THREADS:
        found += [f"default threads: {name}" for name in default_threads(tree)]
    if here == "shortlist" and path not in SEEDED:
        found += [f"hidden randomness: {name}" for name in global_randomness(tree)]
    return found


def may_use(path: str) -> set[str]:
    """The packages, not ours, that a module of the library may import."""
    if path == "algorithms/shortlist/linear/bandit.py":
        return PURE | OF_LINEAR_BANDIT
    return PURE | OF_INDEXES if path.startswith("algorithms/shortlist/index/") else PURE


def may_import_redis(module: str) -> bool:
    """Whether a module of the storage may import Redis: all but the plain types may."""
    return module.startswith("app.storage") and not module.startswith("app.storage.types")


def default_threads(tree: ast.AST) -> Iterator[str]:
    """Calls that compute in the default threads of asyncio, or in those of the web framework."""
    for node in ast.walk(tree):
        name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
        if name in {"to_thread", "run_in_threadpool", "run_sync", "set_default_executor"}:
            yield name
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            first = node.args[0] if node.args else None
            is_default = isinstance(first, ast.Constant) and first.value is None
            if node.func.attr == "run_in_executor" and is_default:
                yield "run_in_executor"


def global_randomness(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Attribute)
            and node.value.attr == "random"
            and node.attr not in GENERATOR_TYPES
        ):
            yield node.attr


def test_every_module_keeps_to_its_layer():
    assert len(SOURCES) > 100
    found = {path: violations(path, (ROOT / path).read_text()) for path in map(relative, SOURCES)}
    assert {path: broken for path, broken in found.items() if broken} == {}


def test_every_part_has_its_arrows_and_every_arrow_is_used():
    used = {part(name_of(path)): set() for path in SOURCES if path.name != "__init__.py"}
    for path in SOURCES:
        found = {part(name) for name in imports(imports_in(path)) if name.split(".")[0] in OURS}
        used.setdefault(part(name_of(path)), set()).update(found - {part(name_of(path))})
    assert {here: there for here, there in used.items() if there or here in ARROWS} == ARROWS


def test_every_hook_has_a_value_a_sentence_and_a_caller_below():
    composition = ast.parse((ROOT / "server/composition.py").read_text())
    calls = [node for node in ast.walk(composition) if isinstance(node, ast.Call)]
    (made,) = [call for call in calls if getattr(call.func, "id", "") == "Hooks"]
    called = set[str]()
    for source in (path.read_text() for path in SOURCES):
        for node in ast.walk(ast.parse(source)) if "hooks" in source else ():
            if isinstance(node, ast.Attribute) and ast.unparse(node.value).endswith("hooks"):
                called.add(node.attr)
    names = {field.name for field in fields(Hooks)}
    assert called == {keyword.arg for keyword in made.keywords} == names
    assert all(f"``{name}(" in str(Hooks.__doc__) for name in names)


def test_default_threads_are_used_where_it_is_said():
    for path in IN_DEFAULT_THREADS:
        assert [*default_threads(ast.parse((ROOT / path).read_text()))]


def test_generators_are_seeded_where_it_is_said():
    for path in SEEDED:
        tree = ast.parse((ROOT / path).read_text())
        assert {*global_randomness(tree)} == {"default_rng"}
        calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
        assert all(call.args for call in calls if ast.unparse(call.func) == "np.random.default_rng")


def foreign(folder: str) -> set[str]:
    """The packages that the modules of a folder import, without those that come with Python."""
    names = {name for path in ROOT.glob(f"{folder}/*.py") for name in imports(imports_in(path))}
    return {name.split(".")[0] for name in names} - sys.stdlib_module_names


def test_the_client_knows_nothing_of_the_service():
    client = "clients/python/shortlist_client"
    # tqdm draws the bars of what takes long; those who ask for one install it.
    assert foreign(client) == {"httpx", "shortlist_client", "tqdm"}
    assert {path.parent.name for path in ROOT.glob(f"{client}/**/*.py")} == {"shortlist_client"}
    files = {"msgspec", "numpy", "pyarrow", "shortlist_client", "shortlist_files"}
    assert foreign("clients/files/shortlist_files") == files


def circles(arrows: dict[str, set[str]]) -> dict[str, set[str]]:
    """What is left of a graph without the ends that lead nowhere, and those that nothing leads to."""
    left = {here: there & arrows.keys() - {here} for here, there in arrows.items()}
    while True:
        used = set().union(*left.values())
        kept = {here for here, there in left.items() if there and here in used}
        if kept == left.keys():
            return left
        left = {here: there & kept for here, there in left.items() if here in kept}


@cache
def module_arrows() -> dict[str, set[str]]:
    """The modules that each module imports, also those that it imports for types alone."""
    modules = {name_of(path).removesuffix(".__init__"): name_of(path) for path in SOURCES}
    arrows: dict[str, set[str]] = {name: set() for name in modules.values()}
    for path in SOURCES:
        for node in imports_in(path):
            names = set[str]()
            if isinstance(node, ast.Import):
                names = {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                below = {f"{node.module}.{alias.name}" for alias in node.names} & modules.keys()
                names = below or {str(node.module)}
            arrows[name_of(path)] |= {modules[name] for name in names & modules.keys()}
    return arrows


def folder_arrows(depth: int) -> dict[str, set[str]]:
    """The folders that each folder imports; those deeper than ``depth`` count as the one that they are in."""
    arrows: dict[str, set[str]] = {}
    for here, there in module_arrows().items():
        if here == "shortlist.__init__":  # the door of the library: what is inside does not go through it
            continue
        folder, *others = (".".join(name.split(".")[:-1][:depth]) for name in (here, *there))
        arrows.setdefault(folder, set()).update(others)
    return arrows


def test_no_modules_import_each_other_in_a_circle():
    assert circles(module_arrows()) == {}


def test_no_folders_import_each_other_in_a_circle():
    for depth in (1, 2, 3):
        assert circles(folder_arrows(depth)) == {}


def test_a_circle_is_found_among_what_leads_to_it_and_away():
    arrows = {"a": {"b"}, "b": {"c"}, "c": {"d"}, "d": {"b", "e"}, "e": set(), "f": {"f"}}
    assert circles(arrows) == {"b": {"c"}, "c": {"d"}, "d": {"b"}}
    assert circles(ARROWS) == {}


BROKEN = [
    ("algorithms/shortlist/linear/a.py", "import redis", 2),
    ("algorithms/shortlist/mips/a.py", "import hnswlib", 2),
    ("algorithms/shortlist/mips/a.py", "from time import sleep", 1),
    ("algorithms/shortlist/mips/a.py", "from app.indexes import exact", 1),
    ("algorithms/shortlist/mips/a.py", "from app import indexes", 1),
    ("algorithms/shortlist/mips/a.py", "import numpy as np\nnp.random.rand()", 1),
    ("algorithms/shortlist/mips/a.py", "def f():\n    import asyncio", 1),
    ("algorithms/shortlist/index/exact.py", "import hnswlib", 1),
    ("algorithms/shortlist/index/exact.py", "import time\nimport redis", 2),
    ("app/policies/a.py", "import redis.asyncio", 1),
    ("app/policies/a.py", "from app.api import errors", 1),
    ("app/api/a.py", "from app.storage.types import ArmWrite", 1),
    ("app/api/a.py", "async def f():\n    await asyncio.to_thread(g)", 1),
    ("app/policies/a.py", "from asyncio import to_thread\nto_thread(g)", 1),
    ("app/policies/a.py", "loop.run_in_executor(None, g)", 1),
    ("app/policies/a.py", "loop.run_in_executor(threads, g)", 0),
    ("workers/reward_ingestion.py", "async def f():\n    await asyncio.to_thread(g)", 0),
    ("app/storage/a.py", "from app.learners import learners", 1),
    ("app/storage/types/a.py", "from app.storage.store import Store", 1),
    ("app/storage/types/a.py", "from redis.asyncio import Redis", 1),
    ("app/storage/a.py", "from redis.asyncio import Redis", 0),
    ("app/storage/types/a.py", "from app.storage.types.arms import StoredArm", 0),
    ("workers/a.py", "from app.api import errors", 1),
    ("workers/a.py", "from app.storage.redis_client import RedisClient", 1),
    ("workers/a.py", "from app.storage.store import Store", 0),
    ("workers/a.py", "from . import runner", 1),
    ("app/learners/a.py", "from app.policies import registry", 1),
    ("app/policies/a.py", "from app.learners import learners", 0),
    ("app/queries/a.py", "from app import measuring", 1),
    ("algorithms/shortlist/index/hnsw.py", "import hnswlib\nfrom shortlist.types import TopK", 0),
    ("server/application.py", "from app.api import problems\nfrom app.storage import store", 0),
    ("algorithms/shortlist/mips/a.py", "import numpy as np\ndef f(rng: np.random.Generator): ...", 0),
]


def test_the_check_sees_a_broken_rule():
    for path, source, broken in BROKEN:
        assert len(violations(path, source)) == broken, source


EXTRAS = ("pyarrow", "fsspec", "confluent_kafka", "mcp", "pymilvus")


def test_the_service_starts_without_any_extra() -> None:
    """None of its modules imports, at its top, a package that only some users install."""
    blocked = f"import sys; sys.modules.update(dict.fromkeys({EXTRAS!r}))"
    started = "import server.serving, server.serving_group, server.application, workers.reward_ingestion"
    found = subprocess.run(
        [sys.executable, "-c", f"{blocked}; {started}"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert found.returncode == 0, found.stderr[-500:]


PLUGINS = (ROOT / "examples/plugin", *sorted(path.parent for path in ROOT.glob("plugins/*/pyproject.toml")))


@pytest.mark.parametrize("folder", PLUGINS, ids=relative)
def test_a_plugin_imports_the_public_door_alone(folder: Path) -> None:
    """Besides itself, and what is no part of the project."""
    sources = sorted(folder.glob("shortlist_*/**/*.py"))
    assert len(sources) > 1
    found = {module.split(".")[0] for path in sources for module in imports(imports_in(path))}
    ours = {name for name in found if name in OURS or name.startswith("shortlist_")}
    assert "relative" not in found
    assert "shortlist_service" in ours
    door = {"shortlist", "shortlist_client", "shortlist_files", "shortlist_service"}
    assert ours - door <= {path.parent.name for path in sources}
