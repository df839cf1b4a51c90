"""What can be seen of a running service: metrics, traces, logs."""
