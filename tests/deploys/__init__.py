"""Deploys, proved: workers and web processes stopped, replaced and mixed while people talk and watch."""
