"""Is it better? A shop measures its recommendations, and then makes them better by what it has measured.

    python -m examples.is_it_better

Starts a service of its own. Most customers are shown what the policy recommends, the holdout anything. After
every day the shop looks at the report, until the lift cannot be chance any more: its interval holds however
often one looks. Then the shop asks its log what other temperatures would have earned, changes the bandit to
the best of them, and goes on with what was learned.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np

from examples.service import StartError, temporary_service
from shortlist_client import Client, ShortlistError
from shortlist_client.answers import Evaluation, Learner, Report

ARTICLES, DIM = 40, 4
CUSTOMERS = 500  # a day
MOST_DAYS, DAYS_AFTER = 12, 3
HOLDOUT = 0.2
FIRST_TEMPERATURE = 0.3
OTHER_TEMPERATURES = (1.0, 0.1, 0.03)
BANDIT = "shop"


@dataclass(frozen=True, slots=True)
class Story:
    """What the shop saw.

    ``days``        the report at the end of each day, until the lift was clear
    ``evaluations`` what other temperatures would have earned, by temperature
    ``before``, ``after``  the learner when the bandit was changed
    ``since``       the report on the days after the change
    """

    days: Sequence[Report]
    evaluations: Mapping[float, Evaluation]
    temperature: float
    before: Learner
    after: Learner
    version: int | None
    since: Report


class Shop:
    """The shop and its customers, who buy some articles more often than others."""

    def __init__(self, client: Client, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self._client = client
        self._rng = rng
        self._served = 0
        features = rng.normal(size=(ARTICLES, DIM)) / np.sqrt(DIM)
        taste = np.array([0.3, -0.2, 0.1, 0.0])
        chances = np.clip(0.25 + features @ taste, 0.02, 0.9)
        names = [f"article-{number}" for number in range(ARTICLES)]
        self._chances = dict(zip(names, chances.tolist(), strict=True))
        client.put_catalogue("articles", dim=DIM)
        client.upsert_arms("articles", features, ids=names)
        client.put_bandit(
            BANDIT,
            catalogue="articles",
            policy="softmax",
            temperature=FIRST_TEMPERATURE,
            reward={"min": 0.0, "max": 1.0},
            holdout={"share": HOLDOUT},
            log={},
        )

    def day(self) -> None:
        """Every customer is shown an article, and buys it or does not; the learner is told in the evening."""
        wishes = [{"seed": self._served + number} for number in range(CUSTOMERS)]
        self._served += CUSTOMERS
        choices = self._client.choose_batch(BANDIT, wishes).results
        bought = self._rng.random(CUSTOMERS) < [self._chances[choice.arms[0].id] for choice in choices]
        self._client.reward_batch(
            [
                {"decision": choice.decision, "value": float(buys)}
                for choice, buys in zip(choices, bought, strict=True)
            ],
            wait=True,
        )


def play(client: Client, seed: int) -> Story:
    """Measure until the lift is clear, evaluate, change, and measure again."""
    shop, days = Shop(client, seed), list[Report]()
    while len(days) < MOST_DAYS and not (days and is_clear(days[-1])):
        shop.day()
        days.append(client.report(BANDIT))
    evaluations = {
        temperature: client.evaluate(BANDIT, {"temperature": temperature}, estimators=["snips"])
        for temperature in OTHER_TEMPERATURES
    }
    best = max(evaluations, key=lambda temperature: lowest(evaluations[temperature]))
    before = client.get_learner(BANDIT, "_global")
    changed, since = client.patch_bandit(BANDIT, temperature=best), datetime.now(UTC)
    after = client.get_learner(BANDIT, "_global")
    for _ in range(DAYS_AFTER):
        shop.day()
    return Story(days, evaluations, best, before, after, changed.version, client.report(BANDIT, start=since))


def is_clear(report: Report) -> bool:
    """Whether the policy is better than the holdout for certain, as far as 95 % is that."""
    return report.lift.interval is not None and report.lift.interval[0] > 0.0


def lowest(evaluation: Evaluation) -> float:
    """What the evaluated policy earns at least: the best of many values is also the luckiest."""
    (estimate,) = evaluation.estimates
    return -np.inf if estimate.interval is None else estimate.interval[0]


def main() -> int:
    """Play and print; the exit status says whether the lift became clear, and the change made it better."""
    try:
        with temporary_service() as server, Client(server.url) as client:
            story = play(client, seed=1)
    except (ShortlistError, StartError, OSError) as error:
        print(f"is_it_better: {error}", file=sys.stderr)
        return 1
    return 0 if print_result(story) else 1


def print_result(story: Story) -> bool:
    """Print the story; whether it ends well."""
    print("sales a customer, and the lift of the policy over the holdout with its interval:")
    for number, report in enumerate(story.days, start=1):
        print(f"  day {number:2}: {_means(report)}, lift {_with(report.lift.value, report.lift.interval)}")
    clear = is_clear(story.days[-1])
    print("  the lift is no chance" if clear else "  too few customers to tell")
    logged = next(iter(story.evaluations.values())).logged
    print(f"what {logged.decisions:,} logged decisions say of other temperatures than {FIRST_TEMPERATURE}:")
    for temperature, evaluation in story.evaluations.items():
        (estimate,) = evaluation.estimates
        print(f"  {temperature:4}: {_with(estimate.value, estimate.interval)} sales a customer")
    print(f"the bandit has temperature {story.temperature} from now on, and keeps what it learned: ", end="")
    print(f"{story.after.observations:,} sales and refusals")
    print(f"  since then: {_means(story.since)}")
    was, now = (report.groups[0].mean_reward or 0.0 for report in (story.days[-1], story.since))
    return clear and now > was


def _means(report: Report) -> str:
    return ", ".join(f"{group.group} {group.mean_reward or 0.0:.3f}" for group in report.groups)


def _with(value: float | None, interval: tuple[float, ...] | None) -> str:
    bounds = "" if interval is None else f" [{interval[0]:.3f}, {interval[1]:.3f}]"
    return ("unknown" if value is None else f"{value:.3f}") + bounds


if __name__ == "__main__":
    sys.exit(main())
