"""LoRA adapters on a worker: from the store to its disk, from there to its engine's memory."""
