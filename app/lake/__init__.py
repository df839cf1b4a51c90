"""Decisions, rewards and learners as Parquet files that other tools read."""
