"""Durable agents: functions whose operations are recorded in the chat's log, so that they survive crashes."""
