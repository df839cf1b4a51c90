"""Files are read and written by a package of its own, ``shortlist_files``."""

raise ImportError("files are read and written by the package shortlist-files: import shortlist_files")
