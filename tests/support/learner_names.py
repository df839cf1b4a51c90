"""Learners that belong to a given partition."""

from itertools import count

from app.storage.types.decisions import LearnerId

UID = "0123456789abcdef"


def learner_in(partition: int, partitions: int, stem: str = "ann", uid: str = UID) -> LearnerId:
    """The first of "<stem>-0", "<stem>-1", ... that one of ``partitions`` holds."""
    names = (LearnerId(uid, f"{stem}-{number}") for number in count())
    return next(learner for learner in names if learner.partition(partitions) == partition)
