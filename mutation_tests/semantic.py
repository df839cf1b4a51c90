"""Change what the code means, by hand, in one place at a time, and see whether the tests notice.

    python -m mutation_tests.semantic quotas indexes     the mutants of two areas
    python -m mutation_tests.semantic --whole            all areas; survivors meet all that `make test` runs

``semantic.toml`` lists them: a dropped term, a swapped window, a missing invalidation, a lost give-back. Each
names the promise that it breaks. What tests of its area do not notice has survived. All happens on a copy.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mutation_tests.areas import AREAS as AREAS_OF_A_PROGRAM
from mutation_tests.areas import copied

TABLE = Path(__file__).with_name("semantic.toml")
LONGEST_S = 900.0
NO_TESTS = 5  # pytest's exit status where it ran none
WHOLE = ("algorithms/tests", "plugins", "tests")
TARGETS = {"test": "not slow and not rest", "all": "not slow"}
# The tests of each area, the quick and sharp ones first.
TESTS = {
    "quotas": (
        "tests/contracts/test_store_quotas.py",
        "tests/exposure_limits",
        "tests/api/test_quotas.py",
        "tests/api/test_whole_service.py",
    ),
    "indexes": ("tests/indexes", "algorithms/tests/index"),
    "measuring": (
        "tests/measuring",
        "tests/api/test_reports.py",
        "tests/api/test_report_requests.py",
        "plugins/evaluation/tests",
    ),
    "repeats": (
        "tests/exposure_limits/test_caps.py",
        "tests/policies",
        "tests/selection",
        "tests/api/test_repeats.py",
        "plugins/campaigns/tests/test_slate_rules.py",
        "tests/api/test_diverse.py",
        "tests/contracts/test_store_frequency_caps.py",
        "tests/api/test_constraint_contract.py",
        "tests/api/test_explanations.py",
        "tests/api/test_quotas.py",
        "tests/api/test_whole_service.py",
    ),
    "linear": ("algorithms/tests/linear",),
    "evaluation": ("algorithms/tests/evaluation",),
    "rewards": (
        "tests/rewards",
        "tests/fold",
        "tests/learners",
        "tests/contracts/test_store_folding.py",
        "tests/contracts/test_store_tails.py",
        "tests/api/test_revised_rewards.py",
        "tests/api/test_reward_semantics.py",
        "tests/api/test_signals.py",
        "tests/workers/test_checkpoints.py",
        "plugins/lake/tests",
    ),
    "filters": (
        "tests/filtering",
        "tests/filters",
        "tests/indexes/test_search_plans.py",
        "tests/exposure_limits/test_closed_arms.py",
        "tests/api/test_filters.py",
        "tests/api/test_filters_everywhere.py",
    ),
    "serving": (
        "tests/serving",
        "tests/api/test_constraint_contract.py",
        "tests/exposure_limits",
        "tests/api/test_repeats.py",
        "tests/api/test_quotas.py",
        "tests/api/test_filters.py",
        "tests/api/test_filters_everywhere.py",
        "tests/api/test_dry_runs.py",
        "tests/api/test_signals.py",
        "tests/api/test_whole_service.py",
    ),
    "storage": (
        "tests/storage/test_replaced_servers.py",
        "tests/storage/test_reward_calls.py",
        "tests/contracts",
        "tests/workers",
        "tests/api/test_revised_rewards.py",
        "tests/replication",
        "tests/api/test_operations.py",
    ),
    "workers": (
        "tests/workers",
        "tests/rewards",
        "tests/fold",
        "tests/learners",
        "tests/indexes/test_shared_arms.py",
        "tests/catalogues",
        "tests/replication",
        "tests/decision_log/test_log_rules.py",
    ),
    "log": (
        "tests/decision_log",
        "tests/contracts/test_store_decision_rows.py",
        "tests/workers/test_log_retention.py",
        "tests/api/test_decision_log.py",
        "tests/api/test_explanations.py",
        "tests/measuring",
        "tests/api/test_revised_rewards.py",
        "tests/api/test_signals.py",
        "tests/api/test_constraint_contract.py",
    ),
    "moves": (
        "algorithms/tests/linear/test_feature_map.py",
        "tests/fold/test_fold_across_moves.py",
        "tests/api/test_moving.py",
        "tests/api/test_move_requests.py",
        "tests/workers/test_bandit_moves.py",
    ),
    "prior": (
        "algorithms/tests/linear/test_prior_of_keys.py",
        "tests/workers/test_prior_fitting.py",
        "tests/learners/test_prior_fits.py",
        "tests/learners/test_effect_versions.py",
        "tests/fold/test_arm_sums.py",
        "tests/api/test_learned_prior.py",
        "tests/api/test_changes_of_arm_effects.py",
    ),
    "policies": (
        "tests/policies",
        "tests/selection",
        "tests/api/test_policy_contract.py",
        "plugins/evaluation/tests",
        "tests/api/test_elimination_policies.py",
        "tests/api/test_igw_policy.py",
        "plugins/milvus/tests/test_milvus.py",
    ),
    "keys": (
        "tests/api/test_api_keys.py",
        "tests/api/test_visitor_passes.py",
        "tests/api/test_deleted_visitors.py",
        "tests/api/test_restricted_keys.py",
        "tests/api/test_guard.py",
        "tests/api/test_guarded_calls.py",
        "tests/replication/test_sync.py",
        "tests/replication/test_two_processes.py",
    ),
    "embedding": (
        "algorithms/tests/embedding",
        "plugins/embeddings/tests/test_embeddings.py",
        "plugins/embeddings/tests/test_embed_command.py",
        "plugins/embeddings/tests/test_log_embeddings.py",
    ),
    "importer": (
        "tests/clients/test_encoded_files.py",
        "tests/clients/test_awkward_files.py",
        "tests/clients/test_files.py",
        "tests/clients/test_history_files.py",
    ),
    "clients": (
        "tests/clients/test_client_rewards.py",
        "tests/clients/test_client_calls.py",
        "tests/clients/test_client_questions.py",
    ),
    "catalogues": (
        "tests/catalogues",
        "tests/workers/test_index_maintenance.py",
        "tests/records",
        "tests/replication",
        "tests/queries/test_mips_plans.py",
        "tests/serving/test_lost_replies.py",
        "tests/api/test_catalogues.py",
        "tests/api/test_catalogue_changes.py",
        "tests/api/test_features.py",
        "tests/api/test_feature_changes.py",
        "tests/api/test_pages.py",
        "tests/api/test_long_answers.py",
        "tests/api/test_overviews.py",
        "tests/api/test_intercept.py",
        "tests/api/test_adaptive_solver.py",
        "tests/api/test_mips.py",
        "tests/workers/test_arm_following.py",
        "plugins/milvus/tests/test_milvus.py",
        "tests/api/test_on_milvus.py",
        "tests/api/test_more_on_milvus.py",
    ),
}


@dataclass(frozen=True, slots=True)
class Semantic:
    """``before`` stands once in ``file``; ``after`` takes its place, and breaks the ``promise``.

    ``equivalent``: why no promise is broken after all; such a mutant is not tried.
    """

    area: str
    file: str
    before: str
    after: str
    promise: str
    equivalent: str = ""

    def described(self) -> str:
        return f"{self.area}: {self.promise} ({self.file}: {' '.join(self.before.split())[:60]})"


def table(path: Path = TABLE) -> list[Semantic]:
    """All mutants."""
    return [Semantic(**row) for row in tomllib.loads(path.read_text())["mutant"]]


def is_noticed(mutant: Semantic, folder: Path, tests: Sequence[str], target: str = "all") -> str | None:
    """The first test that fails with the mutant, if one does; the file is as it was then."""
    path = folder / mutant.file
    source = path.read_text()
    assert source.count(mutant.before) == 1, mutant.described()
    path.write_text(source.replace(mutant.before, mutant.after))
    try:
        return _failure(folder, tests, target)
    finally:
        path.write_text(source)


def _failure(folder: Path, tests: Sequence[str], target: str) -> str | None:
    # In this order: pytest would run files of a folder that is named too by their names.
    files = dict.fromkeys(
        str(path.relative_to(folder))
        for test in tests
        for path in ([folder / test] if test.endswith(".py") else sorted((folder / test).rglob("test_*.py")))
    )
    options = ["-x", "-q", "-n", "0", "-m", TARGETS[target], "-p", "no:cacheprovider"]
    command = [sys.executable, "-m", "pytest", *options, *files]
    try:
        ran = subprocess.run(
            command, cwd=folder, check=False, capture_output=True, timeout=LONGEST_S, text=True
        )
    except subprocess.TimeoutExpired:
        return f"they did not end in {LONGEST_S:.0f} s"
    # Of an area whose tests are all of `make test-rest`, `make test` runs none, and notices nothing.
    if ran.returncode in {0, NO_TESTS}:
        return None
    found = re.search(r"^(?:FAILED|ERROR) (\S+)", ran.stdout, re.MULTILINE)
    return found[1] if found else ran.stdout[-500:]


def try_all(
    areas: Sequence[str], *, target: str = "all", whole: bool = False
) -> dict[str, tuple[int, list[Semantic]]]:
    """How many mutants of each area were tried, and the survivors; prints each as it is known."""
    found = {}
    with copied() as folder:
        for area in areas:
            tests, survivors = TESTS[area], list[Semantic]()
            mutants = [mutant for mutant in table() if mutant.area == area and not mutant.equivalent]
            if mutants and (failure := _failure(folder, tests, target)):
                sys.exit(f"{area}: its tests fail without any mutant: {failure}")
            for mutant in mutants:
                noticed = is_noticed(mutant, folder, tests, target)
                if noticed is None and whole:
                    noticed = is_noticed(mutant, folder, WHOLE, target)
                print(f"{'caught  ' if noticed else 'SURVIVED'}  {mutant.described()}", flush=True)
                print(f"          by {noticed}" if noticed else "", flush=True)
                survivors += [] if noticed else [mutant]
            found[area] = len(mutants), survivors
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Try mutants, and print a table; 1 if one survived."""
    parser = argparse.ArgumentParser(prog="mutation_tests.semantic", description="Mutants by hand.")
    parser.add_argument("areas", nargs="*", metavar="area", help=f"of {', '.join(TESTS)}; all if none")
    parser.add_argument("--whole", action="store_true", help="run the whole suite on what survives its area")
    parser.add_argument(
        "--target", choices=TARGETS, default="all", help="tests of `make test` alone, or of `make test-all`"
    )
    given = parser.parse_args(arguments)
    unknown = set(given.areas) - TESTS.keys() - AREAS_OF_A_PROGRAM.keys()
    if unknown:
        parser.error(f"no such area: {', '.join(sorted(unknown))}")
    areas = [area for area in TESTS if area in given.areas or not given.areas]
    found = try_all(areas, target=given.target, whole=given.whole)
    print("| area | tried | caught |\n|---|---|---|")
    for area, (tried, survivors) in found.items():
        print(f"| {area} | {tried} | {tried - len(survivors)} |")
    return int(any(survivors for _, survivors in found.values()))


if __name__ == "__main__":
    sys.exit(main())
