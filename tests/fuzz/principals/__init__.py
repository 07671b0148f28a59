"""Two principals on one fleet: whatever the second sends, nothing of the first may reach it, or change.

`canaries.py` makes the secrets, `owned.py` puts a secret into everything that a principal can own, `attempts.py` makes
the second principal's requests from the application's own list of routes, `run.py` judges the answers, and `served.py`
starts the processes. `python -m tests.fuzz.principals --seconds 600 --seed 7` runs it by hand.
"""
