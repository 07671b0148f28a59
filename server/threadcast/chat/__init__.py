"""Contains the domain logic of a chat as pure functions. The functions decide the effects of commands, and each
decision becomes one entry of the chat's log."""
