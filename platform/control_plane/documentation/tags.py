"""The template library `docs`: types with links to their objects, code within sentences, and the
parts of the reference, which are the same in every answer and so rendered once."""

import re
from typing import Final

from django import template
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils.html import conditional_escape, format_html
from django.utils.safestring import SafeString

from control_plane.documentation.reader import Reader
from control_plane.documentation.reference import Object, Operation, published
from control_plane.documentation.shapes import Type
from control_plane.management_api.openapi.examples import EXAMPLE_PROJECT_ID
from inference.openai_api.operations import EXAMPLE_MODEL

register = template.Library()

_rendered: dict[str, SafeString] = {}
_CODE: Final = re.compile(r"`([^`]+)`")


@register.simple_tag
def type_words(shown: Type, page: str = "") -> SafeString:
    """Show a type; what of it is an object leads to it on that page, or on that of its group."""
    text: str = conditional_escape(shown.words)
    for name in shown.objects:
        address = page or _page_of(name)
        link = format_html('<a href="{}#object-{}">{}</a>', address, name, name)
        text = re.sub(rf"\b{re.escape(name)}\b", link, text, count=1)
    return SafeString(text)


@register.filter
def inline_code(text: str) -> SafeString:
    """Set in type what stands between backticks."""
    return SafeString(_CODE.sub(r"<code>\1</code>", conditional_escape(text)))


def _page_of(name: str) -> str:
    group = published().group_of(name)
    return reverse("docs-api-group", args=[group.slug]) if group else reverse("docs-api")


@register.simple_tag
def operation_panel(operation: Operation, reader: Reader) -> SafeString:
    """Show an operation with examples for this reader."""
    panel: str = _once(f"operation {operation.id}", "operation", operation)
    panel = panel.replace(conditional_escape(EXAMPLE_MODEL), conditional_escape(reader.model))
    return SafeString(panel.replace(EXAMPLE_PROJECT_ID, reader.project_id))


@register.simple_tag
def object_panel(shown: Object) -> SafeString:
    return _once(f"object {shown.name}", "object", shown)


def _once(key: str, kind: str, shown: Operation | Object) -> SafeString:
    if key not in _rendered:
        _rendered[key] = render_to_string(f"dashboard/docs/{kind}.html", {kind: shown})
    return _rendered[key]
