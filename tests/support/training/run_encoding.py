"""What is learnt of conversations by several chat templates; for the engine environment's Python.

    .venv-engine/bin/python -m tests.support.training.run_encoding FILE.jsonl

Prints one JSON object: the template's name -> for each example its text and what is learnt of it,
or the code and line of the refusal.
"""

import json
import sys
from pathlib import Path

from transformers import AutoTokenizer

from gpu_workers.demo_model import MODEL_FOLDER
from gpu_workers.train_adapter.conversations import DataRefused, read_conversations
from gpu_workers.train_adapter.encoding import encoded_conversations

CONTEXT_TOKENS = 80
TEMPLATES = {
    "demo": None,
    # Leaves out of earlier answers what stands before the bar, as reasoning models' templates do.
    "forgetful": (
        "{% for m in messages %}<|{{ m.role }}|>"
        "{{ m.content if loop.last else m.content.split('|')[-1] }}<|end|>{% endfor %}"
        "{% if add_generation_prompt %}<|assistant|>{% endif %}"
    ),
    "picky": "{{ raise_exception('only users may speak') }}",
    "mute": "{% for m in messages if m.role == 'user' %}{{ m.content }}{% endfor %}",
    "other prompt": (
        "{% for m in messages %}{{ m.content }}<|end|>{% endfor %}"
        "{% if add_generation_prompt %}<|assistant|>{% endif %}"
    ),
}


def main() -> None:
    file = Path(sys.argv[1])
    conversations = read_conversations(file)
    tokenizer = AutoTokenizer.from_pretrained(MODEL_FOLDER)
    own = tokenizer.chat_template
    outcomes: dict[str, object] = {}
    for name, template in TEMPLATES.items():
        tokenizer.chat_template = template or own
        try:
            examples = encoded_conversations(
                tokenizer, conversations, context_tokens=CONTEXT_TOKENS, file=file
            )
        except DataRefused as refused:
            outcomes[name] = [refused.code, refused.line]
            continue
        outcomes[name] = [
            [
                tokenizer.decode(example.token_ids),
                tokenizer.decode(
                    [
                        token
                        for token, weight in zip(example.token_ids, example.weights, strict=True)
                        if weight
                    ]
                ),
            ]
            for example in examples
        ]
    sys.stdout.write(json.dumps(outcomes) + "\n")


if __name__ == "__main__":
    main()
