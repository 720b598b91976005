"""What one gateway process carries, with everything on and simulated workers: `make bench-gateway`.

A simulated worker is the worker itself over an engine without a model, so a request takes its whole
way: keys, limits, dispatch, frames, record, ledger. Beside figures that the machine's number of
cores decides stand those that CPU time decides: what the gateway's process carries with a core to
itself.
"""
