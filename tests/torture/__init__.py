"""Causes faults in real processes, a real store and the connections between them, and judges the result.

`scripts/torture` runs it for a chosen time, `test_torture.py` for a minute. The run uses the product's processes and
their HTTP interface; the verdict also reads the log.
"""
