from django.db import migrations, models
from django.utils import timezone

from tenants.isolation.row_security import BuildTenantWall, LetWebOnly
from tenants.migrations._schema import UUID_KEY, columns


class Migration(migrations.Migration):
    dependencies = [("tenants", "0001_initial"), ("inference", "0001_initial")]

    operations = [
        migrations.CreateModel(
            "IdempotentCall",
            columns(
                id=UUID_KEY,
                caller=models.CharField(max_length=80),
                key=models.CharField(max_length=255),
                request_digest=models.BinaryField(max_length=32),
                status=models.PositiveSmallIntegerField(),
                answer=models.TextField(),
                created_at=models.DateTimeField(default=timezone.now, editable=False),
                tenant=models.ForeignKey(
                    "tenants.tenant", models.CASCADE, db_index=False, related_name="+"
                ),
            ),
            options={
                "indexes": [models.Index(fields=["created_at"], name="idempotent_call_oldest")],
                "constraints": [
                    models.UniqueConstraint(
                        fields=["tenant", "caller", "key"], name="idempotent_call_once"
                    )
                ],
            },
        ),
        BuildTenantWall("IdempotentCall"),
        LetWebOnly("IdempotentCall", "SELECT", "INSERT", "DELETE"),
    ]
