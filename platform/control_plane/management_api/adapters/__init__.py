"""LoRA adapters as a resource: their versions, which of them answer, what each has done."""
