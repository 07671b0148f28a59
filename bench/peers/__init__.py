"""Measures the same work on other servers (peers): one scripted answer, many readers, lost connections, kill -9. Each
peer is used through its own API.

`measure` runs all installed peers in turn (bench/peers/install installs them); `python -m bench.peers [NAME ...]` runs
some of them. README.md in this folder describes how each peer is set up and what the figures mean. If a peer lacks an
ability, the table has the reason. No peer is left out because of good results.
"""

from bench.peers.report import measure

__all__ = ["measure"]
