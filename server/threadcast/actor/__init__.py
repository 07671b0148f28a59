"""The worker's actors: each owns one chat with work, is the only writer of its log, and carries out its commands."""
