"""Campaigns: a service asks for measurements that others make."""
