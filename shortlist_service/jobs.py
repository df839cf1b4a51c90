"""Jobs: work that goes on while its client does something else, and that every process can tell of.

    job = await jobs.start(bandit.uid, work)     # work(progress) -> JSON
    found = await jobs.find(bandit.uid, job)     # found.state, found.result

``RouteDependencies.jobs`` has them. A job whose process has ended is lost, and is said to be.
"""

from app.measuring.jobs import Job, JobHead, Jobs, Progress, new_head

__all__ = ["Job", "JobHead", "Jobs", "Progress", "new_head"]
