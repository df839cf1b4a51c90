"""Whether a file replaces the features of a catalogue by those of another space, unseen by bandits."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import numpy as np

from shortlist_client.client import Client
from shortlist_files.arm_rows import ArmRows, FileError

SAMPLE = 1_000
LEAST_FOUND = 500  # arms of the sample that a file has; of fewer it says nothing
LEAST_CHANGED = LEAST_EXPLAINED = 0.5
MOST_BANDITS = 1_000  # that are asked whether they have learned


def check_replaced(client: Client, catalogue: str, all_rows: Iterator[ArmRows]) -> None:
    """Raise FileError where the file's features say hardly anything of those that bandits have learned from.

    Of a sample of the arms that are there, coordinate by coordinate, the old features must explain half of
    the new ones. Cost: one page of arms, and reading the file until all of the sample are found.
    """
    bandits = (bandit for bandit in islice(client.bandits(), MOST_BANDITS) if bandit.catalogue == catalogue)
    if client.get_catalogue(catalogue).size < SAMPLE or not any(
        client.list_learners(bandit.id, limit=1).items for bandit in bandits
    ):
        return
    before = dict[str, tuple[float, ...]]()
    for seed in range(SAMPLE):  # a page holds fewer arms where they are long
        page = client.list_arms(catalogue, limit=SAMPLE, sample_seed=seed)
        before |= {arm.id: arm.features for arm in page.items}
        if len(before) >= SAMPLE:
            break
    after = dict[str, np.ndarray]()
    for rows in all_rows:
        if rows.features is not None:
            pairs = zip(rows.ids, rows.features, strict=True)
            after |= {name: row for name, row in pairs if name in before}
        if len(after) == len(before):
            break
    if len(after) < LEAST_FOUND:
        return
    old = np.array([before[name] for name in after], dtype=np.float64)
    new = np.array(list(after.values()), dtype=np.float64)
    changed = (old != new).any(axis=1)
    if changed.mean() >= LEAST_CHANGED and explained(old[changed], new[changed]) < LEAST_EXPLAINED:
        raise FileError(
            f"the features of {catalogue} would be replaced by others that have little to do with them, and "
            "what bandits have learned would become noise: import them into another catalogue and move the "
            "bandits there (shortlist move), or say --replace-features"
        )


def explained(old: np.ndarray, new: np.ndarray) -> float:
    """In the mean of the coordinates that vary: by how much each follows from the same one of before.

    The service has the same rule for what is replaced in place, and a test compares both.
    """
    x, y, xx, yy, xy = (each.mean(axis=0) for each in (old, new, old**2, new**2, old * new))
    before, after = xx - x**2, yy - y**2
    varies = after > 1e-12 * np.maximum(yy, 1e-300)
    if not varies.any():
        return 1.0
    shared = np.divide((xy - x * y) ** 2, before * after, out=np.zeros(len(x)), where=varies & (before > 0.0))
    return float(np.clip(shared[varies], 0.0, 1.0).mean())
