"""Our engine on a GPU: what it keeps of its contract there, and what it costs beside AsyncLLM."""
