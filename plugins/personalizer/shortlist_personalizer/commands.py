"""The command ``shortlist personalizer init BANDIT``."""

from __future__ import annotations

import argparse

from shortlist_service.commands import Command, add_service, connect

FEATURES, CONTEXT = 48, 16  # 48 + 48 x 16 = 816 numbers of a learner


class Personalizer(Command):
    """``shortlist personalizer init`` makes what Personalizer's API ranks with."""

    summary = "answer clients of Azure Personalizer"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        actions = parser.add_subparsers(dest="action", required=True, metavar="init")
        init = actions.add_parser(
            "init", help="make a catalogue without arms, and a bandit that ranks actions"
        )
        init.add_argument("bandit", metavar="BANDIT", help="the name of both")
        init.add_argument(
            "--features",
            type=int,
            default=FEATURES,
            metavar="N",
            help=f"numbers of an action. Default: {FEATURES}.",
        )
        init.add_argument(
            "--context",
            type=int,
            default=CONTEXT,
            metavar="N",
            help=f"numbers of a context. Default: {CONTEXT}.",
        )
        init.add_argument("--policy", choices=("igw", "softmax"), default="igw", help="default: igw")
        init.add_argument(
            "--apprentice", action="store_true", help="show the first action, and learn from its rewards"
        )
        init.add_argument("--reward-wait-s", type=int, default=600, metavar="S", help="default: 600")
        init.add_argument("--default-reward", type=float, default=0.0, metavar="R", help="default: 0")
        add_service(init, "admin")

    def run(self, given: argparse.Namespace) -> int | None:
        bandit = {
            "catalogue": given.bandit,
            "policy": given.policy,
            "context": {"dim": given.context},
            "reward": {"default": given.default_reward, "wait_s": given.reward_wait_s},
            "log": {},
        }
        if given.apprentice:
            bandit["holdout"] = {"share": 1.0, "serve": "candidates"}
        with connect(given) as client:
            client.put_catalogue(given.bandit, dim=given.features)
            client.put_bandit(given.bandit, **bandit)
        print(f"bandit {given.bandit}: {given.features} numbers of an action, {given.context} of a context")
        print("In your client change these two:")
        print(f"  endpoint  {given.url}")
        print("  key       an API key of the scopes choose and reward: shortlist key NAME choose,reward")
        return 0
