"""Milvus as a source of candidates, for catalogues that are too large for one process."""
