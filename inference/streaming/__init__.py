"""Tokens on their way from workers to readers: one frame hub a process, one stream a request."""
