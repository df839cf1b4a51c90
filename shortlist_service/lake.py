"""Lakes: logs as Parquet files, which ``shortlist rebuild`` reads.

    from shortlist_service.lake import Lake

    lake = Lake("s3://bucket/home")
    tables = [lake.read(name) for name in lake.files("rewards")]

Needs the extra ``lake``: without it the import is a ShortlistError.
"""

from app.lake.files import FORMAT, HOME, MANIFEST, STAGING, TABLES, Lake
from app.lake.schemas import ARMS, DECISIONS, PRIORS, REWARDS
from app.lake.storage import Storage

__all__ = [
    "ARMS",
    "DECISIONS",
    "FORMAT",
    "HOME",
    "MANIFEST",
    "PRIORS",
    "REWARDS",
    "STAGING",
    "TABLES",
    "Lake",
    "Storage",
]
