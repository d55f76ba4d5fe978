"""What users call: the App, what it returns, and the runner that stands in for ADK's."""
