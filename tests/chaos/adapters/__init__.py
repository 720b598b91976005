"""Drills with LoRA adapters: whoever uploads, validates, stores, fetches, loads and answers is
broken while requests name adapters, and traffic is rolled back under load."""
