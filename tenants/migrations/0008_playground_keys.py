from django.contrib.postgres.operations import AddConstraintNotValid, ValidateConstraint
from django.db import migrations, models
from django.db.models import Q

_CONSTRAINT = "api_key_of_playground_has_no_secret"


class Migration(migrations.Migration):
    dependencies = [("tenants", "0007_usage_labels")]

    operations = [
        migrations.AddField(
            "ApiKey",
            "is_playground",
            models.BooleanField("playground", default=False, editable=False),
        ),
        # Keys go on being made while the old ones are looked at.
        AddConstraintNotValid(
            "ApiKey",
            models.CheckConstraint(
                condition=Q(is_playground=False) | Q(secret_digest=b"", previous_digest=None),
                name=_CONSTRAINT,
            ),
        ),
        ValidateConstraint("ApiKey", _CONSTRAINT),
        migrations.AddConstraint(
            "ApiKey",
            models.UniqueConstraint(
                fields=["project", "created_by"],
                condition=Q(is_playground=True, revoked_at=None),
                name="api_key_of_playground_once",
            ),
        ),
    ]
