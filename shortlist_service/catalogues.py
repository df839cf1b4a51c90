"""Arms of a catalogue, their features and their fields.

    async def read(catalogue: Catalogue) -> Matrix:
        snapshot = catalogue.index.snapshot()
        return snapshot.features_of(snapshot.rows_of(["alien", "heat"]))

    features = await catalogues.use("movies", read)

A ``Snapshot`` never changes. ``FilteredSnapshots.of(catalogue, arm_filter)`` has the arms that a filter lets
in; ``BlockedCopies`` lays all arms out for races over coordinates. ``Catalogue.need_arms`` refuses a
catalogue whose arms are in an engine, and not in this process.
"""

from app.catalogues.blocked_copies import NO_MEMORY, BlockedCopies, BlockedCopy
from app.catalogues.candidates import CandidateList, candidates_in
from app.catalogues.catalogue import Catalogue
from app.catalogues.catalogues import Catalogues
from app.filtering.filtered_snapshots import FilteredSnapshots, among, no_arms
from app.filters.fields import Value as FieldValue
from app.filters.fields import fields_of, kind_of
from app.filters.filter import Filter
from app.filters.overview import no_arm_has
from app.indexes.snapshot import Snapshot
from app.records.behaviour import BehaviourRecord
from app.records.features import (
    MAX_BASIS_NUMBERS,
    MAX_FEATURE,
    MAX_FEATURES,
    NO_FEATURES,
    FeatureEncoding,
    FeaturesRule,
    completed,
)
from app.records.history_prior import MAX_PRIOR_DIM, HistoryPriorRecord, history_record
from app.records.logged_candidates import LoggedCandidates
from app.records.records import CatalogueRecord, bytes_to_vector, vector_to_bytes

__all__ = [
    "MAX_BASIS_NUMBERS",
    "MAX_FEATURE",
    "MAX_FEATURES",
    "MAX_PRIOR_DIM",
    "NO_FEATURES",
    "NO_MEMORY",
    "BehaviourRecord",
    "BlockedCopies",
    "BlockedCopy",
    "CandidateList",
    "Catalogue",
    "CatalogueRecord",
    "Catalogues",
    "FeatureEncoding",
    "FeaturesRule",
    "FieldValue",
    "Filter",
    "FilteredSnapshots",
    "HistoryPriorRecord",
    "LoggedCandidates",
    "Snapshot",
    "among",
    "bytes_to_vector",
    "candidates_in",
    "completed",
    "fields_of",
    "history_record",
    "kind_of",
    "no_arm_has",
    "no_arms",
    "vector_to_bytes",
]
