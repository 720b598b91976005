"""The wire: what gateways, workers and the control plane say to one another through Redis.

Standard library, msgspec and cryptography only, so that every process can import it. `messages`
holds what crosses, `usage` what is billed, `policy` the snapshot that gateways check keys against,
`adapters` where workers find adapters, `sealed` how the blob store keeps them, `codec` the bytes,
`keys` every Redis key and function name.
"""
