"""Files of arms, learners and decision logs, into a service and out of it."""

from shortlist_files.arm_rows import FileError
from shortlist_files.exporting import export_catalogue, export_learners, export_log
from shortlist_files.history import HistoryOptions, import_history
from shortlist_files.importing import import_arms, import_learners, propose_tables
from shortlist_files.table_arms import ImportOptions

__all__ = [
    "FileError",
    "HistoryOptions",
    "ImportOptions",
    "export_catalogue",
    "export_learners",
    "export_log",
    "import_arms",
    "import_history",
    "import_learners",
    "propose_tables",
]
