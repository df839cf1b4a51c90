"""Questions to the outside: measurements that others make."""
