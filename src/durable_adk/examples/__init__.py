"""Programs that show the library: user code, nothing imports it."""
