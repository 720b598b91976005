"""What the demo model fills in: small forms, as JSON and as calls of tools.

forms.toml has the words and the forms:

    [[form]]
    key = "parking"
    tools = ["park_car", "find_parking"]
    fields = ["person", "city"]
    sentences = ["{person} parks in {city}.", ...]
    held_out = ["{city} is where {person} left the car.", ...]

- `fields` are the form's keys, in order. A field is one of `[words]`, one of NUMBERS or FLAGS; who
  asks may call it by one of its `[aliases]`.
- `sentences` are said in training, each with all fields; `held_out`, at least two, by the
  evaluation alone.
- `tools` are names of a function that takes the form; each is said to the model, as the chat
  template does, with the fields and their types.
"""

from pathlib import Path
from typing import Final

from gpu_workers.demo_model.forms.form import FLAGS, NUMBERS, Form, read_forms

FORMS: Final = read_forms(Path(__file__).parent / "forms.toml")

__all__ = ["FLAGS", "FORMS", "NUMBERS", "Form"]
