"""A proxy that breaks one thing at a time, and a check that some transcript of the protocol notices each error."""
