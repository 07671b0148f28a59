"""A proxy that breaks one rule at a time, and a check that some transcript of the protocol notices each error."""
