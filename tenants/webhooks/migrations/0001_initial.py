import uuid

import django.contrib.postgres.fields
import django.core.serializers.json
import django.db.models.deletion
import django.utils.timezone
from django.db import migrations, models

import tenants.webhooks.signing
from tenants.audit.triggers import Audit
from tenants.isolation.row_security import BindToTenant, BuildTenantWall, LetWebOnly


class Migration(migrations.Migration):
    initial = True

    dependencies = [
        ("tenants", "0007_alerts"),
    ]

    operations = [
        migrations.CreateModel(
            name="Endpoint",
            fields=[
                (
                    "id",
                    models.UUIDField(
                        default=uuid.uuid4, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("url", models.CharField(max_length=2000, verbose_name="URL")),
                ("description", models.CharField(blank=True, default="", max_length=200)),
                (
                    "event_types",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.CharField(max_length=60),
                        blank=True,
                        help_text="Empty: all, those to come too.",
                        null=True,
                        size=None,
                    ),
                ),
                ("is_enabled", models.BooleanField(default=True)),
                (
                    "disabled_reason",
                    models.CharField(
                        blank=True,
                        choices=[("by_hand", "by hand"), ("failing", "failing"), ("gone", "gone")],
                        default="",
                        max_length=20,
                    ),
                ),
                ("disabled_at", models.DateTimeField(blank=True, editable=False, null=True)),
                ("failing_since", models.DateTimeField(blank=True, editable=False, null=True)),
                (
                    "salt",
                    models.BinaryField(default=tenants.webhooks.signing.new_salt, max_length=32),
                ),
                ("check_digest", models.BinaryField(max_length=8)),
                ("previous_salt", models.BinaryField(max_length=32, null=True)),
                ("previous_check_digest", models.BinaryField(max_length=8, null=True)),
                (
                    "previous_expires_at",
                    models.DateTimeField(blank=True, editable=False, null=True),
                ),
                ("rotated_at", models.DateTimeField(blank=True, editable=False, null=True)),
                (
                    "created_at",
                    models.DateTimeField(default=django.utils.timezone.now, editable=False),
                ),
                (
                    "tenant",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to="tenants.tenant",
                    ),
                ),
            ],
            options={
                "verbose_name": "webhook endpoint",
                "ordering": ["-created_at"],
            },
        ),
        migrations.CreateModel(
            name="Event",
            fields=[
                (
                    "id",
                    models.UUIDField(
                        default=uuid.uuid4, editable=False, primary_key=True, serialize=False
                    ),
                ),
                (
                    "type",
                    models.CharField(
                        choices=[
                            ("quota.threshold_reached", "quota.threshold_reached"),
                            ("balance.low", "balance.low"),
                            ("invoice.issued", "invoice.issued"),
                            ("invoice.paid", "invoice.paid"),
                            ("webhook.disabled", "webhook.disabled"),
                            ("webhook.test", "webhook.test"),
                        ],
                        max_length=60,
                    ),
                ),
                (
                    "key",
                    models.CharField(
                        help_text="What makes it one event of its type.", max_length=200
                    ),
                ),
                ("data", models.JSONField(encoder=django.core.serializers.json.DjangoJSONEncoder)),
                ("occurred_at", models.DateTimeField(default=django.utils.timezone.now)),
                (
                    "created_at",
                    models.DateTimeField(default=django.utils.timezone.now, editable=False),
                ),
                ("fanned_out_at", models.DateTimeField(blank=True, editable=False, null=True)),
                (
                    "tenant",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to="tenants.tenant",
                    ),
                ),
            ],
            options={
                "ordering": ["-created_at"],
            },
        ),
        migrations.CreateModel(
            name="EmailNotice",
            fields=[
                (
                    "id",
                    models.UUIDField(
                        default=uuid.uuid4, editable=False, primary_key=True, serialize=False
                    ),
                ),
                (
                    "state",
                    models.CharField(
                        choices=[("pending", "pending"), ("sent", "sent"), ("failed", "failed")],
                        default="pending",
                        max_length=20,
                    ),
                ),
                ("tries", models.PositiveIntegerField(default=0)),
                (
                    "next_try_at",
                    models.DateTimeField(blank=True, default=django.utils.timezone.now, null=True),
                ),
                ("sent_at", models.DateTimeField(blank=True, editable=False, null=True)),
                ("problem", models.CharField(blank=True, default="", max_length=200)),
                (
                    "created_at",
                    models.DateTimeField(default=django.utils.timezone.now, editable=False),
                ),
                (
                    "membership",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to="tenants.membership",
                    ),
                ),
                (
                    "tenant",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to="tenants.tenant",
                    ),
                ),
                (
                    "event",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="emails",
                        to="webhooks.event",
                    ),
                ),
            ],
            options={
                "verbose_name": "e-mail notice",
                "ordering": ["-created_at"],
            },
        ),
        migrations.CreateModel(
            name="Delivery",
            fields=[
                (
                    "id",
                    models.UUIDField(
                        default=uuid.uuid4, editable=False, primary_key=True, serialize=False
                    ),
                ),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("pending", "pending"),
                            ("delivered", "delivered"),
                            ("failed", "failed"),
                        ],
                        default="pending",
                        max_length=20,
                    ),
                ),
                (
                    "attempts",
                    models.PositiveIntegerField(default=0, help_text="All that were made."),
                ),
                ("tries", models.PositiveIntegerField(default=0)),
                (
                    "next_attempt_at",
                    models.DateTimeField(blank=True, default=django.utils.timezone.now, null=True),
                ),
                ("last_status_code", models.PositiveSmallIntegerField(blank=True, null=True)),
                (
                    "last_problem",
                    models.CharField(
                        blank=True,
                        choices=[
                            ("status", "status"),
                            ("redirect", "redirect"),
                            ("gone", "gone"),
                            ("timeout", "timeout"),
                            ("connect_failed", "connect failed"),
                            ("tls_failed", "tls failed"),
                            ("bad_answer", "bad answer"),
                            ("unresolvable", "unresolvable"),
                            ("address_refused", "address refused"),
                            ("secret_lost", "secret lost"),
                            ("endpoint_disabled", "endpoint disabled"),
                            ("not_sent", "not sent"),
                        ],
                        default="",
                        max_length=30,
                    ),
                ),
                (
                    "created_at",
                    models.DateTimeField(default=django.utils.timezone.now, editable=False),
                ),
                ("finished_at", models.DateTimeField(blank=True, editable=False, null=True)),
                (
                    "tenant",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to="tenants.tenant",
                    ),
                ),
                (
                    "endpoint",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="deliveries",
                        to="webhooks.endpoint",
                    ),
                ),
                (
                    "event",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="deliveries",
                        to="webhooks.event",
                    ),
                ),
            ],
            options={
                "verbose_name": "webhook delivery",
                "verbose_name_plural": "webhook deliveries",
                "ordering": ["-created_at"],
            },
        ),
        migrations.CreateModel(
            name="DeliveryAttempt",
            fields=[
                (
                    "id",
                    models.UUIDField(
                        default=uuid.uuid4, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("number", models.PositiveIntegerField()),
                ("started_at", models.DateTimeField()),
                ("duration_ms", models.PositiveIntegerField(verbose_name="duration (ms)")),
                ("status_code", models.PositiveSmallIntegerField(blank=True, null=True)),
                (
                    "problem",
                    models.CharField(
                        blank=True,
                        choices=[
                            ("status", "status"),
                            ("redirect", "redirect"),
                            ("gone", "gone"),
                            ("timeout", "timeout"),
                            ("connect_failed", "connect failed"),
                            ("tls_failed", "tls failed"),
                            ("bad_answer", "bad answer"),
                            ("unresolvable", "unresolvable"),
                            ("address_refused", "address refused"),
                            ("secret_lost", "secret lost"),
                            ("endpoint_disabled", "endpoint disabled"),
                            ("not_sent", "not sent"),
                        ],
                        default="",
                        max_length=30,
                    ),
                ),
                ("detail", models.CharField(blank=True, default="", max_length=300)),
                (
                    "response_excerpt",
                    models.CharField(
                        blank=True, default="", help_text="The answer's start.", max_length=1000
                    ),
                ),
                (
                    "delivery",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="log",
                        to="webhooks.delivery",
                    ),
                ),
                (
                    "tenant",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to="tenants.tenant",
                    ),
                ),
            ],
            options={
                "ordering": ["number"],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("delivery", "number"), name="webhook_attempt_number"
                    )
                ],
            },
        ),
        migrations.AddIndex(
            model_name="endpoint",
            index=models.Index(
                fields=["tenant", "-created_at", "-id"], name="webhook_endpoint_of_tenant_new"
            ),
        ),
        migrations.AddConstraint(
            model_name="endpoint",
            constraint=models.UniqueConstraint(
                fields=("id", "tenant"), name="webhook_endpoint_of_tenant"
            ),
        ),
        migrations.AddConstraint(
            model_name="endpoint",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("event_types", None),
                    models.Q(
                        (
                            "event_types__contained_by",
                            [
                                "quota.threshold_reached",
                                "balance.low",
                                "invoice.issued",
                                "invoice.paid",
                                "webhook.disabled",
                            ],
                        ),
                        ("event_types__len__gt", 0),
                    ),
                    _connector="OR",
                ),
                name="webhook_endpoint_types_are_known",
            ),
        ),
        migrations.AddConstraint(
            model_name="endpoint",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("disabled_reason", ""), ("is_enabled", True)),
                    models.Q(
                        ("is_enabled", False), models.Q(("disabled_reason", ""), _negated=True)
                    ),
                    _connector="OR",
                ),
                name="webhook_endpoint_disabled_for_a_reason",
            ),
        ),
        migrations.AddIndex(
            model_name="event",
            index=models.Index(
                condition=models.Q(("fanned_out_at", None)),
                fields=["created_at"],
                name="webhook_event_to_fan_out",
            ),
        ),
        migrations.AddIndex(
            model_name="event",
            index=models.Index(fields=["-created_at"], name="webhook_event_newest"),
        ),
        migrations.AddConstraint(
            model_name="event",
            constraint=models.UniqueConstraint(
                fields=("tenant", "type", "key"), name="webhook_event_once"
            ),
        ),
        migrations.AddConstraint(
            model_name="event",
            constraint=models.UniqueConstraint(
                fields=("id", "tenant"), name="webhook_event_of_tenant"
            ),
        ),
        migrations.AddIndex(
            model_name="emailnotice",
            index=models.Index(
                condition=models.Q(("state", "pending")),
                fields=["next_try_at"],
                name="email_notice_due",
            ),
        ),
        migrations.AddConstraint(
            model_name="emailnotice",
            constraint=models.UniqueConstraint(
                fields=("event", "membership"), name="email_notice_once"
            ),
        ),
        migrations.AddConstraint(
            model_name="emailnotice",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(
                        ("next_try_at__isnull", False),
                        ("state", "pending"),
                    ),
                    models.Q(
                        models.Q(
                            ("state", "pending"),
                            _negated=True,
                        ),
                        ("next_try_at", None),
                    ),
                    _connector="OR",
                ),
                name="email_notice_due_while_pending",
            ),
        ),
        migrations.AddIndex(
            model_name="delivery",
            index=models.Index(
                condition=models.Q(("state", "pending")),
                fields=["next_attempt_at"],
                name="webhook_delivery_due",
            ),
        ),
        migrations.AddIndex(
            model_name="delivery",
            index=models.Index(
                fields=["endpoint", "-created_at", "-id"], name="webhook_delivery_of_endpoint"
            ),
        ),
        migrations.AddConstraint(
            model_name="delivery",
            constraint=models.UniqueConstraint(
                fields=("event", "endpoint"), name="webhook_delivery_once"
            ),
        ),
        migrations.AddConstraint(
            model_name="delivery",
            constraint=models.UniqueConstraint(
                fields=("id", "tenant"), name="webhook_delivery_of_tenant"
            ),
        ),
        migrations.AddConstraint(
            model_name="delivery",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(
                        ("next_attempt_at__isnull", False),
                        ("state", "pending"),
                    ),
                    models.Q(
                        models.Q(
                            ("state", "pending"),
                            _negated=True,
                        ),
                        ("next_attempt_at", None),
                    ),
                    _connector="OR",
                ),
                name="webhook_delivery_due_while_pending",
            ),
        ),
        BuildTenantWall("Endpoint"),
        BuildTenantWall("Event"),
        BuildTenantWall("Delivery"),
        BuildTenantWall("DeliveryAttempt"),
        BuildTenantWall("EmailNotice"),
        BindToTenant("Delivery", column="event_id", target="webhooks_event"),
        BindToTenant("Delivery", column="endpoint_id", target="webhooks_endpoint"),
        # What was sent is not the tenants' to rewrite; a notice goes with its member.
        LetWebOnly("Event", "SELECT", "INSERT"),
        LetWebOnly("Delivery", "SELECT", "INSERT", "UPDATE"),
        LetWebOnly("DeliveryAttempt", "SELECT"),
        LetWebOnly("EmailNotice", "SELECT", "DELETE"),
        # Some receivers have a secret in their URL.
        Audit(
            "Endpoint",
            label=["description"],
            noise=["failing_since"],
            secret=["url"],
            personal=["description"],
        ),
    ]
