"""Measurements that make records and docs pages; run as `python -m benchmarks.NAME`."""
