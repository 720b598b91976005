"""The simulated engine: OpenAI's JSON without a model or a GPU, for load and faults."""
