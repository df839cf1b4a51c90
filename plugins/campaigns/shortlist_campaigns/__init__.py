"""Campaigns: the service asks for measurements that others make, until its answer is certain.

A plug-in of three sets of calls: ``/v1/slates``, ``/v1/centers`` and ``/v1/catalogues/{catalogue}/centers``.
"""
