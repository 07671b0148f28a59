"""The private Valkey process of `threadcast serve`, and the repair of its files."""
