"""What holds for a period: the price book, and what GPUs cost the operator."""
