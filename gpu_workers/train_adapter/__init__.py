"""Trains a LoRA adapter on conversations, in the engine's environment.

    .venv-engine/bin/python -m gpu_workers.train_adapter --data FILE.jsonl --out FOLDER

FILE has a conversation on each line, in OpenAI's chat format; FOLDER becomes what PEFT writes,
ready to be uploaded. Data is read and checked (`conversations`) without torch.
"""
