"""LoRA adapters in vLLM: what is loaded, what its worker says of the base, what is mended there."""
