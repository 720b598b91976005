import uuid

import django.contrib.postgres.fields
from django.db import migrations, models

from tenants.isolation.row_security import LetWebOnly

# Runs as the owner of the tables while the transaction commits: nobody else may write the version,
# and its row is locked for the commit only, not from the change on: in the second round of the
# deferred triggers, when the transaction's foreign keys have their locks (see audit.sql).
NUMBER_CHANGES = """
CREATE FUNCTION penstock_policy_change_mark_due() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
    UPDATE tenants_policychange SET part = part WHERE id = NEW.id;
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER policy_change_mark_due AFTER INSERT ON tenants_policychange
DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION penstock_policy_change_mark_due();
CREATE FUNCTION penstock_assign_policy_version() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE number bigint;
BEGIN
    INSERT INTO tenants_policyversion AS current (id, version, mark) VALUES (1, 1, NEW.id)
    ON CONFLICT (id) DO UPDATE SET version = current.version + 1, mark = NEW.id
    RETURNING current.version INTO number;
    UPDATE tenants_policychange SET version = number WHERE id = NEW.id;
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER assign_policy_version AFTER UPDATE ON tenants_policychange
DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (NEW.version IS NULL) EXECUTE FUNCTION penstock_assign_policy_version();
"""
NUMBER_NO_CHANGES = """
DROP TRIGGER assign_policy_version ON tenants_policychange;
DROP FUNCTION penstock_assign_policy_version();
DROP TRIGGER policy_change_mark_due ON tenants_policychange;
DROP FUNCTION penstock_policy_change_mark_due();
"""


class Migration(migrations.Migration):
    dependencies = [("tenants", "0002_row_security")]

    operations = [
        migrations.RemoveField(model_name="policyversion", name="epoch"),
        migrations.AddField(
            model_name="policyversion",
            name="mark",
            field=models.UUIDField(default=uuid.UUID(int=0), editable=False),
        ),
        migrations.CreateModel(
            name="PolicyChange",
            fields=[
                (
                    "id",
                    models.UUIDField(
                        default=uuid.uuid4, editable=False, primary_key=True, serialize=False
                    ),
                ),
                (
                    "part",
                    models.CharField(
                        choices=[
                            ("api_keys", "Api Keys"),
                            ("projects", "Projects"),
                            ("tenants", "Tenants"),
                            ("tiers", "Tiers"),
                            ("models", "Models"),
                            ("everything", "Everything"),
                        ],
                        max_length=20,
                    ),
                ),
                (
                    "row_ids",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.TextField(), default=list, size=None
                    ),
                ),
                (
                    "version",
                    models.PositiveBigIntegerField(editable=False, null=True, unique=True),
                ),
            ],
        ),
        migrations.RunSQL(NUMBER_CHANGES, NUMBER_NO_CHANGES),
        LetWebOnly("PolicyChange", "INSERT"),
        LetWebOnly("PolicyVersion", "SELECT"),
    ]
