"""Kills the owners of runs whose agents are made with other frameworks, with kill -9.

Each framework has a file NAME_app.py, which defines:

- `EXTRAS`: a context manager that is given the fleet's directory, starts what the agent needs besides, and yields
  further options of the server. Unless the options have `--config`, the file itself is the server's `--app`;
- an agent with the profile `journey`, which writes slowly, calls tools that may run once, one of them with an approval,
  and writes again. Its effects are lines of the file `effects` in the data directory (`tests/faults/durable/app.py`);
- `ONCE`, the names of its effects;
- `text(said)`, the text of its last answer, where `said` has a name or UNKNOWN for each of `ONCE`;
- `IS_REMOTE` if the agent is another process: then a run may end as `interrupted`, and its texts are beginnings of
  those in `TEXTS`.
"""
