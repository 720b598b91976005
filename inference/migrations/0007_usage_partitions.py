"""The usage table by month. What is on record goes along; every id is one of `new_request_id`."""

from pathlib import Path
from typing import Any

from django.db import migrations

from tenants.isolation.row_security import BuildTenantWall, LetWebOnly

_SQL = Path(__file__).parents[1] / "usage" / "partitions.sql"

_TABLE = "inference_usagerecord"
_WHOLE = "inference_usagerecord_whole"


def partition(apps: Any, schema_editor: Any) -> None:
    for statement in (
        f"ALTER TABLE {_TABLE} RENAME TO {_WHOLE}",
        # Its owner is to read all of it.
        f"ALTER TABLE {_WHOLE} DISABLE ROW LEVEL SECURITY",
        f"CREATE TABLE {_TABLE} (LIKE {_WHOLE} INCLUDING DEFAULTS INCLUDING CONSTRAINTS)"
        " PARTITION BY RANGE (request_id)",
        _SQL.read_text(encoding="utf-8"),
        """
        SELECT penstock_make_usage_partition(month) FROM (
            SELECT DISTINCT date_trunc('month', to_timestamp(
                ('x' || left(replace(request_id::text, '-', ''), 12))::bit(48)::bigint / 1000.0
            ) AT TIME ZONE 'UTC')::date AS month FROM inference_usagerecord_whole
        ) AS recorded
        """,
        "INSERT INTO inference_usagerecord SELECT * FROM inference_usagerecord_whole",
        f"DROP TABLE {_WHOLE}",
        f"ALTER TABLE {_TABLE} ADD PRIMARY KEY (request_id)",
        *(
            f"ALTER TABLE {_TABLE} ADD CONSTRAINT usage_{column} FOREIGN KEY ({column})"
            f" REFERENCES {target} (id) DEFERRABLE INITIALLY DEFERRED"
            for column, target in (
                ("tenant_id", "tenants_tenant"),
                ("project_id", "tenants_project"),
                ("api_key_id", "tenants_apikey"),
            )
        ),
        f"CREATE INDEX usage_tenant_arrived ON {_TABLE} (tenant_id, arrived_at)",
        f"CREATE INDEX usage_arrived ON {_TABLE} (arrived_at)",
    ):
        schema_editor.execute(statement, params=None)


class Migration(migrations.Migration):
    dependencies = [("inference", "0006_usage_columns")]

    operations = [
        migrations.RunPython(partition),
        BuildTenantWall("UsageRecord"),
        LetWebOnly("UsageRecord", "SELECT"),
        BuildTenantWall("WastedAttempt"),
        LetWebOnly("WastedAttempt", "SELECT"),
    ]
