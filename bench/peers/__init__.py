"""The same work on other servers: one scripted answer, many readers, cuts, kill -9; each peer through its own API.

`measure` runs all that are installed (bench/peers/install), interleaved; `python -m bench.peers [NAME ...]` some of
them. How each is set up, and what the figures mean and do not mean, is in README.md beside this file. The rule: what a
peer cannot do stands in the table with the reason, and no peer is left out because it does well.
"""

from bench.peers.report import measure

__all__ = ["measure"]
