"""The pure domain of a chat: functions decide the effects of commands, and each decision becomes one entry of the
log."""
