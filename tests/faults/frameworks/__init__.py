"""Kills, by kill -9, the owners of runs whose agents are made with other frameworks.

Each framework has a file NAME_app.py, which defines:

- `EXTRAS`: a context manager that receives the fleet's directory, prepares everything else that the agent needs, and
  yields further options of the server. Unless the options have `--config`, the file itself is the server's `--app`;
- an agent with the profile `journey`, which writes slowly, calls tools that may run once, one of them with an approval,
  and writes again. The agent's effects are lines of the file `effects` in the data directory
  (`tests/faults/durable/app.py`);
- `ONCE`, the names of its effects;
- `text(said)`, the text of its last answer, where `said` maps each effect of `ONCE` to its name or to UNKNOWN;
- `IS_REMOTE`, if the agent is another process; a run may then end as `interrupted`, and each of its texts is the
  beginning of a text in `TEXTS`.
"""
