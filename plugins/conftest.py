"""Tests of plug-ins have the fixtures of all others: those of ``tests/conftest.py`` and ``tests/api``.

Not their hooks: pytest would call these twice for each run of all tests.
"""

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

for _NAME in ("tests/conftest.py", "tests/api/conftest.py"):
    _SPEC = spec_from_file_location(_NAME.replace("/", "_"), Path(__file__).parents[1] / _NAME)
    assert _SPEC is not None
    assert _SPEC.loader is not None
    _SPEC.loader.exec_module(_OTHERS := module_from_spec(_SPEC))
    globals().update(
        {name: value for name, value in vars(_OTHERS).items() if not name.startswith(("_", "pytest_"))}
    )
