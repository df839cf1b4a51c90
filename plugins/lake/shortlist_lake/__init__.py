"""Logs of Shortlist as Parquet files in a folder or an object store."""
