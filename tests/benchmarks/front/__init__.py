"""What stands in front of an engine, without an engine's noise: `make bench-front`.

vLLM's own server and Penstock run over the same replayed engine. It stands where EngineCore stands,
in a process of its own behind vLLM's own sockets and messages, and answers with recorded tokens. So
each side runs all of its own code and all that vLLM runs in front of an engine: rendering,
tokenizer, serialization, OutputProcessor, detokenizer, metrics. Nothing but the model, the
scheduler and the sampler is missing, and what they would cost is not in either side's figures.
"""
