"""Who liked what, of a history of keys and arms; and which histories tell nothing."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from shortlist.embedding.behaviour import keys_by_arms
from shortlist.embedding.held_out import LEAST_LIKES
from shortlist_embeddings.behaviour import Behaviour
from shortlist_service.errors import ShortlistError, counted


@dataclass(frozen=True, slots=True)
class UselessHistory:
    """The sentences of a command on a useless history.

    ``unknown``  all rows are of other arms; with {rows}, and {arm}, that of the first
    ``nothing``  nobody liked anything
    ``one_arm``  all liked the same
    ``few``      too few keys liked several arms; with {keys}
    """

    unknown: str
    nothing: str
    one_arm: str
    few: str


def likes_of(
    behaviour: Behaviour, arm_count: int, useless: UselessHistory, *, least_keys: int
) -> tuple[sparse.csr_array, NDArray[np.int64]]:
    """The likes of each key with any, keys x arms, and the numbers of these keys.

    ``least_keys``: with several likes.

    Raises ShortlistError: a useless history.
    """
    if not len(behaviour.keys) and behaviour.unknown:
        rows = f"{behaviour.unknown:,} rows"
        raise ShortlistError(useless.unknown.replace("{rows}", rows).replace("{arm}", behaviour.unknown_arm))
    shape = (behaviour.key_count, arm_count)
    liked = keys_by_arms(behaviour.keys, behaviour.arms, behaviour.values, shape=shape)
    keys = np.flatnonzero(np.diff(liked.indptr))
    liked = liked[keys]
    if not liked.nnz:
        raise ShortlistError(useless.nothing)
    if len(np.unique(liked.indices)) == 1:
        raise ShortlistError(useless.one_arm)
    several = int(np.count_nonzero(np.diff(liked.indptr) >= LEAST_LIKES))
    if several < least_keys:
        few = useless.few.replace("{keys}", counted(several, "key", "keys"))
        if behaviour.unknown:
            few += f" {behaviour.unknown:,} rows are of unknown items, such as {behaviour.unknown_arm}"
        raise ShortlistError(few)
    return liked, keys
