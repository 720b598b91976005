"""What the short paths of vLLM's serving objects stream, beside what vLLM's own do."""
