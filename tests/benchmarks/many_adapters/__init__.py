"""A thousand adapters on one worker: every answer its own adapter's, memory bounded and flat."""
