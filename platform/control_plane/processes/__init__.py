"""Entry points of a process for one plane each; `control_plane.asgi` is both in one, as `make up`
runs it."""
