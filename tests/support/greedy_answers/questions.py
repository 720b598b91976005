"""What the demo model, and every adapter of it, is asked."""

from dataclasses import dataclass

from gpu_workers.demo_model.corpus import Conversation, Message
from gpu_workers.demo_model.evaluate import after_other_turns, questions, with_system_prompt
from gpu_workers.demo_model.voices import VOICES

BASE = ""


@dataclass(frozen=True, kw_only=True)
class Asked:
    """One conversation, for an adapter by its name; BASE for none."""

    adapter: str
    conversation: Conversation

    @property
    def messages(self) -> list[dict[str, str]]:
        return [{"role": each.role, "content": each.content} for each in self.conversation]


def asked_of(adapters: list[str], count: int) -> list[Asked]:
    """`count` conversations for each of the adapters, in turns: who asks at once asks them all."""
    conversations = _conversations(count)
    return [
        Asked(adapter=adapter, conversation=conversation)
        for conversation in conversations
        for adapter in adapters
    ]


def _conversations(count: int) -> list[Conversation]:
    """Of ten six are what customers ask, two what the base was made for; one is under a system
    prompt and one after other turns."""
    customers = [question for _, question in VOICES[0].held_out()]
    of_the_base = [question for _, question in questions()]
    prompted, after_turns = with_system_prompt(), after_other_turns()
    chosen: list[Conversation] = []
    for number in range(count):
        kind = number % 10
        if kind < 6:
            chosen.append((Message("user", customers[7 * number % len(customers)]),))
        elif kind < 8:
            chosen.append((Message("user", of_the_base[61 * number % len(of_the_base)]),))
        else:
            long = prompted if kind == 8 else after_turns
            chosen.append(long[61 * number % len(long)])
    return chosen
