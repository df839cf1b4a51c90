"""Change the code in one place at a time, and see whether the tests notice: ``make mutants``.

    python -m mutation_tests.run sampling evaluation        every mutant of two areas
    python -m mutation_tests.run --sample 50 --seed 7       50 mutants of all areas, drawn by this seed

Cosmic Ray makes the mutants. All happens on a copy of the project: the work tree is never touched. A mutant
is killed when a test fails, or when the tests take ten times as long as without it; else it survives. Those
that ``equivalent.toml`` lists are not tried: they change nothing that was promised.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import secrets
import shlex
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from mutation_tests.areas import AREAS, Area, copied
from mutation_tests.semantic import TESTS

EQUIVALENT = Path(__file__).with_name("equivalent.toml")
# Of what Cosmic Ray can do: one or two changes for each operator, such as a careful reader might overlook.
OPERATORS = re.compile(
    r"core/(NumberReplacer|AddNot|ZeroIterationForLoop|ReplaceTrueWithFalse|ReplaceFalseWithTrue"
    r"|ReplaceAndWithOr|ReplaceOrWithAnd|ReplaceBreakWithContinue|ReplaceContinueWithBreak"
    r"|ReplaceUnaryOperator_Delete_(USub|Not|Invert)"
    r"|ReplaceBinaryOperator_(Add_Sub|Sub_Add|Mul_Div|Div_Mul|FloorDiv_Mul|Pow_Mul|BitAnd_BitOr)"
    r"|ReplaceComparisonOperator_(Lt_LtE|LtE_Lt|Gt_GtE|GtE_Gt|Lt_GtE|LtE_Gt|Gt_LtE|GtE_Lt|Eq_NotEq|NotEq_Eq"
    r"|Is_IsNot|IsNot_Is))"
)
LONGER, LEAST_TIMEOUT_S = 10.0, 60.0
# No plugin that is not asked for, and one thread for each product.
ENVIRONMENT = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "OPENBLAS_NUM_THREADS": "1"}
WANTED = 0.95


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change: the n-th place of a file, below the project's folder, at which an operator can be applied.

    ``before`` is the line as it reads, ``line`` its number from 1. ``occurrence`` is n, from 0.
    """

    area: str
    file: str
    line: int
    before: str
    operator: str
    occurrence: int

    def after(self, source: str) -> str:
        """What the line becomes. Cost: parses the source."""
        from cosmic_ray.mutating import mutate_code  # noqa: PLC0415 - an extra
        from cosmic_ray.plugins import get_operator  # noqa: PLC0415

        changed = mutate_code(source, get_operator(self.operator)(), self.occurrence)
        return next(
            tidy(new)
            for old, new in zip(source.splitlines(), changed.splitlines(), strict=False)
            if old != new
        )

    def described(self, root: Path) -> str:
        """Where it is, the line, and what becomes of it."""
        after = self.after((root / self.file).read_text())
        return f"{self.file}:{self.line}  {self.before}  ->  {after}"


@dataclass(frozen=True, slots=True)
class Equivalent:
    """A change that no test could notice, or that breaks no promise.

    ``line`` is a line of ``file`` ("*": of any), with single blanks and none around it; ``becomes`` is what a
    mutant makes of it, any if None. ``part`` takes the place of ``line``: it is a piece of any line, and
    ``becomes`` is what a mutant makes of this piece.
    """

    file: str
    reason: str
    line: str | None = None
    becomes: str | None = None
    part: str | None = None

    def covers(self, mutant: Mutant, source: str) -> bool:
        """Whether it is this mutant."""
        if self.file not in {"*", mutant.file}:
            return False
        if self.part is not None and self.becomes is not None:
            pieces = mutant.before.split(self.part)
            places = range(1, len(pieces))
            changed = {
                self.becomes.join((self.part.join(pieces[:n]), self.part.join(pieces[n:]))) for n in places
            }
            return bool(changed) and mutant.after(source) in changed
        if self.line != mutant.before:
            return False
        return self.becomes is None or self.becomes == mutant.after(source)


def tidy(line: str) -> str:
    """The line with single blanks, and none around it."""
    return " ".join(line.split())


def equivalents(path: Path = EQUIVALENT) -> list[Equivalent]:
    """What the list says."""
    return [Equivalent(**entry) for entry in tomllib.loads(path.read_text())["equivalent"]]


def mutants(area: str, root: Path) -> Iterator[Mutant]:
    """Every mutant of an area that is not listed as equivalent, in a fixed order."""
    from cosmic_ray import plugins  # noqa: PLC0415 - an extra
    from cosmic_ray.ast import ast_nodes, get_ast  # noqa: PLC0415

    listed = equivalents()
    for file in AREAS[area].files(root):
        source = (root / file).read_text()
        lines, nodes = source.splitlines(), list(ast_nodes(get_ast(source)))
        for name in sorted(filter(OPERATORS.fullmatch, plugins.operator_names())):
            operator = plugins.get_operator(name)()
            places = [start for node in nodes for start, _ in operator.mutation_positions(node)]
            for occurrence, (line, column) in enumerate(places):
                if lines[line - 1].startswith("*,", column):
                    continue  # not a product: what follows is given by name
                if lines[line - 1].startswith("copy=False", column - len("copy=")):
                    continue  # whether an array is copied that need not be changes no result
                mutant = Mutant(area, str(file), line, tidy(lines[line - 1]), name, occurrence)
                if not any(entry.covers(mutant, source) for entry in listed):
                    yield mutant


def command(area: Area) -> str:
    """What runs the tests of an area."""
    plugins = [word for name in area.plugins for word in ("-p", name)]
    conftest = [] if area.conftest else ["--noconftest"]
    options = ["-x", "-q", "-m", "not slow", "-p", "no:cacheprovider", *plugins, *conftest]
    return shlex.join([sys.executable, "-m", "pytest", *options, *area.test_files()])


def survives(mutant: Mutant, timeout_s: float) -> bool:
    """Whether the tests of its area, in the working folder, pass with the mutant."""
    from cosmic_ray.mutating import mutate_and_test  # noqa: PLC0415 - an extra
    from cosmic_ray.work_item import MutationSpec  # noqa: PLC0415

    place = (mutant.line, 0), (mutant.line, 1)
    spec = MutationSpec(Path(mutant.file), mutant.operator, mutant.occurrence, *place)
    return not mutate_and_test([spec], command(AREAS[mutant.area]), timeout_s).is_killed


def baseline_s(area: Area) -> float:
    """How long the tests of an area take; they must pass."""
    before = time.monotonic()
    ran = subprocess.run(shlex.split(command(area)), check=False, capture_output=True, text=True)
    if ran.returncode:
        sys.exit(f"{ran.stdout}{ran.stderr}\nthese tests fail without any mutant")
    return time.monotonic() - before


def try_all(areas: Sequence[str], *, sample: int | None, seed: int) -> dict[str, tuple[int, list[Mutant]]]:
    """How many mutants of each area were tried, and those that survived; prints them as they do.

    ``sample``: how many are drawn from all areas, by ``seed``; None: all.
    """
    found = dict[str, tuple[int, list[Mutant]]]()
    here = Path.cwd()
    os.environ |= ENVIRONMENT
    with copied() as folder:
        chosen = [mutant for area in areas for mutant in mutants(area, folder)]
        if sample is not None and sample < len(chosen):
            chosen = random.Random(seed).sample(chosen, sample)
        os.chdir(folder)
        try:
            for area in areas:
                tried = [mutant for mutant in chosen if mutant.area == area]
                if tried:
                    found[area] = len(tried), _survivors(tried, folder)
        finally:
            os.chdir(here)
    return found


def _survivors(tried: Sequence[Mutant], folder: Path) -> list[Mutant]:
    area = tried[0].area
    took_s = baseline_s(AREAS[area])
    print(f"{area}: {len(tried)} mutants; its tests take {took_s:.0f} s", flush=True)
    survivors = []
    for mutant in tried:
        if survives(mutant, max(LEAST_TIMEOUT_S, LONGER * took_s)):
            survivors.append(mutant)
            print(f"survived  {mutant.described(folder)}", flush=True)
    return survivors


def main(arguments: Sequence[str] | None = None) -> int:
    """Try mutants and print what survived; 1 if less than 95 % of some area was killed."""
    parser = argparse.ArgumentParser(prog="mutation_tests", description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("areas", nargs="*", metavar="area", help=f"of {', '.join(AREAS)}; all if none")
    parser.add_argument("--sample", type=int, help="how many to try, drawn from all")
    parser.add_argument("--seed", type=int, help="of the sample; drawn if it is not given")
    given = parser.parse_args(arguments)
    unknown = set(given.areas) - set(AREAS) - TESTS.keys()
    if unknown:
        parser.error(f"no such area: {', '.join(sorted(unknown))}")
    seed = secrets.randbelow(10**6) if given.seed is None else given.seed
    if given.sample is not None:
        print(f"a sample of {given.sample}, seed {seed}", flush=True)
    areas = [area for area in AREAS if area in given.areas or not given.areas]
    found = try_all(areas, sample=given.sample, seed=seed)
    print("| area | tried | killed | share |\n|---|---|---|---|")
    for area, (tried, survivors) in found.items():
        killed = tried - len(survivors)
        print(f"| {area} | {tried:,} | {killed:,} | {killed / tried:.1%} |")
    return int(any(tried - len(survivors) < WANTED * tried for tried, survivors in found.values()))


if __name__ == "__main__":
    sys.exit(main())
