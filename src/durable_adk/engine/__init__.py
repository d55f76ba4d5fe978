"""The rules: leases, replay, frontiers, ends. Talks to ports only."""
