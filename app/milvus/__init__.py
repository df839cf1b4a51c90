"""Milvus: arms that no process holds, as a source of candidates."""
