"""The wire: what gateways, workers and the control plane say to one another through Redis.

Standard library and msgspec only, so that every process can import it. `messages` holds what
crosses, `policy` the snapshot that gateways check keys against, `codec` the bytes, `keys` every
Redis key and function name.
"""
