"""Tortures real processes and a real store with faults between every pair of them, and gives a verdict.

`scripts/torture` runs it for a chosen time, `test_torture.py` for a minute. It uses the product's HTTP interface and
its processes; the verdict reads the log as well.
"""
