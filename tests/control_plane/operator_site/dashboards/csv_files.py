"""The files of dashboards."""

import csv
import io
from collections.abc import Mapping

from django.test import Client
from django.urls import reverse


def file_rows(
    client: Client, page: str, table: str, asked: Mapping[str, str]
) -> list[dict[str, str]]:
    """Return the rows of a table's file, by column."""
    answer = client.get(reverse(f"admin:dashboard-{page}-csv", args=[table]), asked)
    assert answer.status_code == 200
    return list(csv.DictReader(io.StringIO(answer.content.decode())))
