"""The command line of a load test that has sizes: --quick takes smaller ones, --json writes the figures."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from load_tests import wrk
from load_tests.wrk import LoadError

Sizes = Mapping[str, int]


def run(
    name: str,
    measure: Callable[..., dict[str, Any]],
    arguments: Sequence[str] | None,
    *,
    description: str | None,
    full: Sizes,
    quick: Sizes,
) -> int:
    """Measure and print; the exit status is 1 when it could not be measured. ``measure`` takes the sizes."""
    parser = argparse.ArgumentParser(prog=f"python -m load_tests.{name}", description=description)
    parser.add_argument("--quick", action="store_true", help="fewer, shorter rounds and a small catalogue")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write machine, versions and every ratio")
    parsed = parser.parse_args(arguments)
    try:
        wrk.check()
        result = measure(**(quick if parsed.quick else full))
    except LoadError as error:
        print(f"load: {error}", file=sys.stderr)
        return 1
    if parsed.json is not None:
        parsed.json.write_text(json.dumps(result, indent=1) + "\n")
    return 0
