"""What surrounds a tool call: who may run it, its arguments before, its result after."""
