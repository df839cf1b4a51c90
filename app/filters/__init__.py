"""The filter language, and the columns of tags and metadata that filters read."""
