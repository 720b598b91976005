"""The tokenizer of the demo model: byte-level BPE, five special tokens and a chat template."""

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

VOCABULARY_SIZE: Final = 4096
PAD: Final = "<|pad|>"
BOS: Final = "<|bos|>"
END: Final = "<|end|>"
SYSTEM: Final = "<|system|>"
USER: Final = "<|user|>"
ASSISTANT: Final = "<|assistant|>"
SPECIAL_TOKENS: Final = (PAD, BOS, END, SYSTEM, USER, ASSISTANT)
CONTEXT_TOKENS: Final = 2048

# Content may be a string, a list of text parts or absent. A tool is shown as its name, with names
# and types of what it takes; tool results are shown as if the user had typed them.
CHAT_TEMPLATE: Final = """\
{{- bos_token }}
{%- if tools %}
{{- '<|system|>tools: ' }}
{%- for tool in tools %}
{%- set function = tool.function if tool.function is mapping else tool %}
{{- function.name ~ '(' }}
{%- if function.parameters is mapping and function.parameters.properties is mapping %}
{%- for name, field in function.parameters.properties.items() %}
{%- set type = field.type if field is mapping and field.type is string else 'string' %}
{{- name ~ ': ' ~ type ~ (', ' if not loop.last else '') }}
{%- endfor %}
{%- endif %}
{{- ')' ~ ('; ' if not loop.last else '') }}
{%- endfor %}
{{- '<|end|>' }}
{%- endif %}
{%- for message in messages %}
{%- set text = namespace(value='') %}
{%- if message.content is string %}
{%- set text.value = message.content %}
{%- elif message.content %}
{%- for part in message.content %}
{%- if part is string %}
{%- set text.value = text.value + part %}
{%- elif part.text is defined and part.text is string %}
{%- set text.value = text.value + part.text %}
{%- endif %}
{%- endfor %}
{%- endif %}
{%- if message.role in ('system', 'developer') %}
{{- '<|system|>' + text.value | trim + '<|end|>' }}
{%- elif message.role == 'assistant' %}
{%- for call in message.tool_calls or [] %}
{%- set given = call.function.arguments %}
{%- set given = given if given is string else given | tojson %}
{%- set text.value = text.value ~ '\n<tool_call>\n{"name": "' ~ call.function.name %}
{%- set text.value = text.value ~ '", "arguments": ' ~ given ~ '}\n</tool_call>' %}
{%- endfor %}
{{- '<|assistant|>' + text.value | trim + '<|end|>' }}
{%- elif message.role == 'tool' %}
{{- '<|user|>tool result: ' + text.value | trim + '<|end|>' }}
{%- else %}
{{- '<|user|>' + text.value | trim + '<|end|>' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
{{- '<|assistant|>' }}
{%- endif %}"""


def trained_tokenizer(texts: Iterable[str]) -> PreTrainedTokenizerFast:
    """Train a tokenizer on `texts`; it puts the BOS token before plain prompts."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = words_and_digits()
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY_SIZE,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        min_frequency=3,
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{BOS} $A", special_tokens=[(BOS, tokenizer.token_to_id(BOS))]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=BOS,
        eos_token=END,
        pad_token=PAD,
        additional_special_tokens=[SYSTEM, USER, ASSISTANT],
        model_max_length=CONTEXT_TOKENS,
        chat_template=CHAT_TEMPLATE,
        clean_up_tokenization_spaces=False,
    )


def words_and_digits() -> pre_tokenizers.PreTokenizer:
    """Return what texts are cut into before tokens are made. Each digit stands alone, so that a
    number has the same tokens wherever it stands and is copied one by one."""
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )


def save_tokenizer(tokenizer: PreTrainedTokenizerFast, folder: Path) -> None:
    """Write tokenizer.json and tokenizer_config.json, the chat template inside the latter."""
    tokenizer.save_pretrained(folder, save_jinja_files=False)
