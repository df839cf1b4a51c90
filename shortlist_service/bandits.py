"""Settings of bandits: as they would be with a change, and bandits without a service, made of files.

    catalogue = offline_catalogue("log", 8)
    catalogue.in_memory.upsert(ids, features, revisions)
    bandit = offline_bandit({"policy": "softmax"}, catalogue, has_keys=True, context_dim=None)

``changed_record`` is what ``PATCH`` makes of a record; ``BanditPatch`` is its body.
"""

from app.api.bandits import BanditPatch, changed_record
from app.api.offline_bandits import offline_bandit
from app.api.resource_changes import as_json
from app.bandits.settings import must_be
from app.bandits.versions import BanditVersion
from app.catalogues.catalogue import Catalogue, offline_catalogue

__all__ = [
    "BanditPatch",
    "BanditVersion",
    "Catalogue",
    "as_json",
    "changed_record",
    "must_be",
    "offline_bandit",
    "offline_catalogue",
]
