"""How a filtered search is done, and what is kept of filters.

A filter is searched in one of two ways:

    exactly         every row that matches is compared. Of a filter that is used often these rows are copied
                    side by side (``RowCopy``)
    by the index    the index of the catalogue is asked for more arms than are wanted, and those that match
                    are kept (``IndexSearch``)

``plan_filter`` decides which, by the reads that are expected and one measurement. ``FilteredSnapshots`` is
the cache of all filters, ``KnownFilter`` one of them, ``FilteredSnapshot`` its arms at one moment.
"""
