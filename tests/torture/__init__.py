"""Causes faults in real processes, a real store and the connections between them, and judges the result.

`scripts/torture` runs it for a chosen time, `test_torture.py` for a minute. It uses the product's HTTP interface and
its processes; the verdict reads the log as well.
"""
