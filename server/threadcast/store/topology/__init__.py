"""The topologies of a store: a single server, a primary behind Sentinel, or a Cluster."""
