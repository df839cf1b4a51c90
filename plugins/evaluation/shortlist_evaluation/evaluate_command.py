"""The command `shortlist evaluate`: its options."""

from __future__ import annotations

import argparse
from importlib import import_module
from pathlib import Path

from shortlist_service.commands import Command, client_errors, writable, write


class Evaluate(Command):
    """The command for the estimated earnings of a policy on the log in a file."""

    summary = "what a policy would have earned on an exported log"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "log", type=Path, metavar="LOG", help="an exported log, .ndjson or .parquet, or see --format"
        )
        parser.add_argument(
            "--policy", required=True, metavar="JSON", help='settings of a bandit: \'{"policy": "softmax"}\''
        )
        parser.add_argument(
            "--catalogue", type=Path, required=True, metavar="FILE", help="its arms, as export writes them"
        )
        parser.add_argument("--estimators", help="of ips, snips, dr; separated by commas. Default: all.")
        parser.add_argument(
            "--json", type=writable, metavar="FILE", help="write what the service would answer"
        )
        parser.add_argument(
            "--learners",
            choices=("before", "now"),
            default="before",
            help="weigh a decision with what was learned before it, or with all of the log",
        )
        parser.add_argument(
            "--learners-from",
            type=Path,
            metavar="FILE",
            help="what the learners knew before the log, as export writes it, where they knew something; or "
            "with --learners now what they know now",
        )
        parser.add_argument(
            "--priors",
            type=Path,
            metavar="FILE",
            help="versions of a learned prior, as export writes them beside a log; without it one is fitted "
            "before each block of the log from what came before",
        )
        parser.add_argument(
            "--logged-by",
            metavar="JSON",
            help="settings of the sub_ts or linear_ts that wrote the log: its propensities are then "
            "estimated by draws; without it decisions without propensities are left out",
        )
        parser.add_argument(
            "--format",
            choices=("shortlist", "vw-dsjson", "table"),
            default="shortlist",
            help="whose log it is: of a bandit; JSON lines of Vowpal Wabbit; or a table with the columns "
            "action, probability, reward, and perhaps actions, time, key and those of a context",
        )
        parser.add_argument(
            "--arm-field",
            default="id",
            metavar="NAME",
            help="of vw-dsjson: the feature of an action that is the id of its arm. Default: id",
        )

    def run(self, given: argparse.Namespace) -> int | None:
        with client_errors():
            files = import_module("shortlist_evaluation.files")  # other commands need not load it
            result = files.evaluate(
                given.log,
                given.catalogue,
                policy=given.policy,
                estimators=given.estimators,
                learners=given.learners,
                learners_from=given.learners_from,
                priors=given.priors,
                log_format=given.format,
                arm_field=given.arm_field,
                logged_by=given.logged_by,
            )
        write(given.json, result)
        return None
