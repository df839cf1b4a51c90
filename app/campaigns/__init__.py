"""Campaigns: the service asks for measurements that others make, until its answer is certain."""
