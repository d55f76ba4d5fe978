"""Remedies for faults of ADK, one module each; every one is inert outside an attempt."""
