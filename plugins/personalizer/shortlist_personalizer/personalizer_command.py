"""The command ``shortlist personalizer init BANDIT``."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from shortlist_service.commands import Command, add_service, connect
from shortlist_service.errors import Invalid

if TYPE_CHECKING:
    from shortlist_client import Client

PACKAGE = "shortlist-personalizer"
FEATURES, CONTEXT = 48, 16  # 48 + 48 x 16 = 816 numbers of a learner
# Of 20 actions one that is estimated .05 below the best is drawn once in 40 rounds. With 1,600 the news of
# `shortlist bench personalizer` were clicked 8 % more often, and a bandit of bad first luck kept to it.
GAMMA = 400.0
WAIT_S = 600
MAX_NUMBERS = 1_024  # of a learner with a context: the service refuses more


def make(
    client: Client,
    bandit: str,
    *,
    features: int = FEATURES,
    context: int = CONTEXT,
    wait_s: int = WAIT_S,
    default: float = 0.0,
    is_apprentice: bool = False,
) -> None:
    """Make a catalogue without arms, and a bandit of the same name that ranks the actions of requests.

    ``features``, ``context``: numbers of an action and of a context. ``wait_s``: after which an event without
    a reward counts as ``default``. ``is_apprentice``: the first action is shown. Raises what the client does.
    """
    client.put_catalogue(bandit, dim=features)
    client.put_bandit(
        bandit,
        catalogue=bandit,
        policy="igw",
        gamma=GAMMA,
        context={"dim": context},
        reward={"default": default, "wait_s": wait_s},
        holdout={"share": 1.0, "serve": "candidates"} if is_apprentice else None,
        log={},
    )


def _is_loaded(client: Client) -> bool:
    """True if the service has loaded this package, or the key may not see its plug-ins."""
    from shortlist_client.errors import NotFound  # noqa: PLC0415 - most commands need no client

    try:
        return PACKAGE in {plugin.name for plugin in client.status().plugins}
    except NotFound:
        return True


class Personalizer(Command):
    """``shortlist personalizer init`` makes what Personalizer's API ranks with."""

    summary = "answer clients of Azure Personalizer"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        actions = parser.add_subparsers(dest="action", required=True, metavar="init")
        init = actions.add_parser(
            "init", help="make a catalogue without arms, and a bandit that ranks actions"
        )
        init.add_argument("bandit", metavar="BANDIT", help="the name of both")
        for name, count, of in (("features", FEATURES, "an action"), ("context", CONTEXT, "a context")):
            text = f"numbers of {of}. Default: {count}."
            init.add_argument(f"--{name}", type=int, default=count, metavar="N", help=text)
        init.add_argument(
            "--apprentice", action="store_true", help="show the first action, and learn from its rewards"
        )
        init.add_argument("--reward-wait-s", type=int, default=WAIT_S, metavar="S", help=f"default: {WAIT_S}")
        init.add_argument("--default-reward", type=float, default=0.0, metavar="R", help="default: 0")
        add_service(init, "admin")

    def run(self, given: argparse.Namespace) -> int | None:
        if (numbers := given.features * (1 + given.context)) > MAX_NUMBERS:
            raise Invalid(
                f"--features and --context together give {numbers:,} numbers of a learner, N + N x M: "
                f"at most {MAX_NUMBERS:,}"
            )
        with connect(given) as client:
            make(
                client,
                given.bandit,
                features=given.features,
                context=given.context,
                wait_s=given.reward_wait_s,
                default=given.default_reward,
                is_apprentice=given.apprentice,
            )
            is_loaded = _is_loaded(client)
        print(f"bandit {given.bandit}: {given.features} numbers of an action, {given.context} of a context")
        print("In your client change these two:")
        print(f"  endpoint  {given.url}")
        print("  key       an API key, which this makes: shortlist key NAME --scopes choose,reward")
        if not is_loaded:
            print(f"Start the service again: it has not loaded {PACKAGE} yet")
        return 0
