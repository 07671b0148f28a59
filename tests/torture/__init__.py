"""Torture of the real thing: real processes and a real store, with faults between every pair of them, and a verdict.

`scripts/torture` runs it for as long as one likes; `test_torture.py` for a minute. It knows the product by its HTTP
interface, its processes and, for the verdict alone, its log.
"""
