"""Filtered searches, and the cache of filters.

A filter is searched in one of two ways:

    exactly         every matching row is compared. The rows of an often used filter are copied side by side
                    (``RowCopy``)
    by the index    the index of the catalogue is asked for more arms than wanted, and the matches are kept
                    (``IndexSearch``)

``plan_filter`` decides between them, by the expected reads and one measurement. ``FilteredSnapshots`` is
the cache of all filters, ``KnownFilter`` one of them, ``FilteredSnapshot`` its arms at one moment.
"""
