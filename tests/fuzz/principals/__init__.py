"""Two principals on one fleet: no request of the second may read or change any data of the first.

`canaries.py` makes the secrets, `owned.py` puts a secret into everything that a principal can own, `attempts.py` makes
the second principal's requests from the application's own list of routes, `run.py` judges the answers, and `served.py`
starts the processes. `python -m tests.fuzz.principals --seconds 600 --seed 7` runs the attack by hand.
"""
