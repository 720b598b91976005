"""What is asked: short questions in turn, or long texts of which no two begin alike."""

SHORT = [
    "What is Penstock?",
    "What is a tenant?",
    "How are tokens counted?",
    "What happens when a worker dies?",
    "What is a lease?",
    "Tell me a long story about Penstock.",
]
LONG_BYTES = 3600
_SENTENCES = (
    "The river rises in the hills above the village.",
    "In spring the gate stands open and the wheel turns all night.",
    "Every miller keeps a book of the water that he took.",
    "Who comes late waits until the basin has filled again.",
    "A dry summer is shared by all of them.",
)


def long_prompts(count: int, first: int) -> list[str]:
    """Return prompts numbered from `first`: no prefix cache knows one from another."""
    return [_long(first + number) for number in range(count)]


def _long(number: int) -> str:
    text = f"{number}. Continue this story:"
    while len(text) < LONG_BYTES:
        text += " " + _SENTENCES[(number + len(text)) % len(_SENTENCES)]
    return text
