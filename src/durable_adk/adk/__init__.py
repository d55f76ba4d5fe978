"""The seam to google-adk: the only package that imports it."""
