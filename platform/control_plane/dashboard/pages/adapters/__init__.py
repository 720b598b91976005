"""LoRA adapters: the list, a new one, its versions and their files, which of them answer."""
