"""Indexes of a partitioned table that has rows already."""

from typing import Any

from django.db import migrations


class AddPartitionedIndex(migrations.AddIndex):
    """Add an index a partition at a time, while others read and write: PostgreSQL builds none of a
    whole partitioned table that way. Its migration is not `atomic`; run again after a failure it
    goes on where it was."""

    def database_forwards(
        self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any
    ) -> None:
        model = to_state.apps.get_model(app_label, self.model_name)
        table, statement = model._meta.db_table, str(self.index.create_sql(model, schema_editor))
        begin = f'CREATE INDEX "{self.index.name}" ON "{table}"'
        definition = statement.partition(begin)[2]
        schema_editor.execute(
            f'CREATE INDEX IF NOT EXISTS "{self.index.name}" ON ONLY "{table}"{definition}'
        )
        for partition in self._without(schema_editor, table):
            own = f"{partition}_{self.index.name}"
            schema_editor.execute(f'DROP INDEX IF EXISTS "{own}"')
            schema_editor.execute(f'CREATE INDEX CONCURRENTLY "{own}" ON "{partition}"{definition}')
            schema_editor.execute(f'ALTER INDEX "{self.index.name}" ATTACH PARTITION "{own}"')

    def _without(self, schema_editor: Any, table: str) -> list[str]:
        """Return the partitions that have no part of the index yet."""
        with schema_editor.connection.cursor() as cursor:
            cursor.execute(_WITHOUT, [self.index.name, table])
            return [partition for (partition,) in cursor.fetchall()]


_WITHOUT = """
SELECT part.relname FROM pg_inherits AS of_table
JOIN pg_class AS part ON part.oid = of_table.inhrelid
WHERE NOT EXISTS (
    SELECT FROM pg_index JOIN pg_inherits AS of_index ON of_index.inhrelid = pg_index.indexrelid
    WHERE pg_index.indrelid = part.oid AND of_index.inhparent = to_regclass(%s)
)
AND of_table.inhparent = to_regclass(%s) ORDER BY part.relname
"""
