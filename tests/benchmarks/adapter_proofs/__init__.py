"""What adapters must not change: answers beside those of PEFT and vLLM's own server, and streams
while adapters come and go. Proofs at their whole size; small ones are tests."""
