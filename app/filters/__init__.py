"""The language of filters, and the attributes of arms by columns."""
