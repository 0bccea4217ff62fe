"""Real client libraries, each in an environment of its own, and a pair for them to talk to."""
