"""What the page asks of a model. Nothing of it is ever posted: the page's own script reads it."""

from typing import Any, Final

from django import forms

from control_plane.dashboard.forms import PageForm

FORM_ID: Final = "play-form"
_JSON: Final = {"rows": 4, "spellcheck": "false", "class": "play-json"}


class SettingsForm(PageForm):
    """Each is left to the model where it is blank."""

    system = forms.CharField(
        label="System prompt", required=False, widget=forms.Textarea(attrs={"rows": 4})
    )
    temperature = forms.CharField(required=False, widget=forms.TextInput({"inputmode": "decimal"}))
    top_p = forms.CharField(
        label="Top p", required=False, widget=forms.TextInput({"inputmode": "decimal"})
    )
    max_tokens = forms.CharField(
        label="Max tokens",
        required=False,
        widget=forms.TextInput({"inputmode": "numeric"}),
    )
    seed = forms.CharField(required=False, widget=forms.TextInput({"inputmode": "numeric"}))
    tools = forms.CharField(
        required=False,
        widget=forms.Textarea(_JSON),
        help_text="JSON, as in the API. A call of a tool waits for your result.",
    )
    json_schema = forms.CharField(
        label="JSON schema",
        required=False,
        widget=forms.Textarea(_JSON),
        help_text="Of the answer.",
    )

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        for field in self.fields.values():
            # All are.
            field.is_optional = False  # type: ignore[attr-defined]
            field.widget.attrs |= {"form": FORM_ID, "autocomplete": "off"}
