"""Values: no I/O, no clock, no driver, no ADK."""
