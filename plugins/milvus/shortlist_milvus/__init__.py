"""Catalogues of Shortlist whose arms are in Milvus."""
