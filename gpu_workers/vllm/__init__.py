"""vLLM in process. Only these modules import vllm or torch, and only on demand."""
