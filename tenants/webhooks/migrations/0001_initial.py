from django.contrib.postgres.fields import ArrayField
from django.core.serializers.json import DjangoJSONEncoder
from django.core.validators import MaxValueValidator
from django.db import migrations, models
from django.db.models import Q
from django.utils import timezone

from tenants.audit.triggers import Audit
from tenants.isolation.row_security import BindToTenant, BuildTenantWall, LetWebOnly
from tenants.migrations._schema import UUID_KEY, columns, pairs
from tenants.webhooks.signing import new_salt

SUBSCRIBABLE = [
    "quota.threshold_reached",
    "balance.low",
    "invoice.issued",
    "invoice.paid",
    "webhook.disabled",
]
PROBLEMS = [
    "status",
    "redirect",
    "gone",
    "timeout",
    "connect_failed",
    "tls_failed",
    "bad_answer",
    "unresolvable",
    "address_refused",
    "secret_lost",
    "endpoint_disabled",
    "not_sent",
]
TENANT = models.ForeignKey("tenants.tenant", models.CASCADE, db_index=False, related_name="+")
PROBLEM = models.CharField(
    default="",
    blank=True,
    max_length=30,
    choices=[(problem, problem.replace("_", " ")) for problem in PROBLEMS],
)

ENDPOINT = migrations.CreateModel(
    "Endpoint",
    columns(
        id=UUID_KEY,
        url=models.CharField("URL", max_length=2000),
        description=models.CharField(default="", blank=True, max_length=200),
        event_types=ArrayField(
            models.CharField(max_length=60),
            null=True,
            blank=True,
            help_text="Leave blank for all event types, including future ones.",
        ),
        is_enabled=models.BooleanField("enabled", default=True),
        disabled_reason=models.CharField(
            default="",
            blank=True,
            max_length=20,
            choices=[("by_hand", "by hand"), ("failing", "failing"), ("gone", "gone")],
        ),
        disabled_at=models.DateTimeField(null=True, blank=True, editable=False),
        failing_since=models.DateTimeField(null=True, blank=True, editable=False),
        salt=models.BinaryField(default=new_salt, max_length=32),
        check_digest=models.BinaryField(max_length=8),
        previous_salt=models.BinaryField(null=True, max_length=32),
        previous_check_digest=models.BinaryField(null=True, max_length=8),
        previous_expires_at=models.DateTimeField(
            "old secret valid until", null=True, blank=True, editable=False
        ),
        rotated_at=models.DateTimeField(null=True, blank=True, editable=False),
        created_at=models.DateTimeField(default=timezone.now, editable=False),
        tenant=TENANT,
    ),
    options={
        "verbose_name": "webhook endpoint",
        "ordering": ["-created_at"],
        "indexes": [
            models.Index(
                fields=["tenant", "-created_at", "-id"], name="webhook_endpoint_of_tenant_new"
            )
        ],
        "constraints": [
            models.UniqueConstraint(fields=["id", "tenant"], name="webhook_endpoint_of_tenant"),
            models.CheckConstraint(
                condition=Q(event_types=None)
                | Q(event_types__contained_by=SUBSCRIBABLE, event_types__len__gt=0),
                name="webhook_endpoint_types_are_known",
            ),
            models.CheckConstraint(
                condition=Q(disabled_reason="", is_enabled=True)
                | Q(is_enabled=False) & ~Q(disabled_reason=""),
                name="webhook_endpoint_disabled_for_a_reason",
            ),
        ],
    },
)

EVENT = migrations.CreateModel(
    "Event",
    columns(
        id=UUID_KEY,
        type=models.CharField(max_length=60, choices=pairs(*SUBSCRIBABLE, "webhook.test")),
        key=models.CharField(
            max_length=200, help_text="Deduplication key: unique per tenant and type."
        ),
        data=models.JSONField(encoder=DjangoJSONEncoder),
        occurred_at=models.DateTimeField(default=timezone.now),
        created_at=models.DateTimeField(default=timezone.now, editable=False),
        fanned_out_at=models.DateTimeField(null=True, blank=True, editable=False),
        tenant=TENANT,
    ),
    options={
        "ordering": ["-created_at"],
        "indexes": [
            models.Index(
                fields=["created_at"],
                condition=Q(fanned_out_at=None),
                name="webhook_event_to_fan_out",
            ),
            models.Index(fields=["-created_at"], name="webhook_event_newest"),
        ],
        "constraints": [
            models.UniqueConstraint(fields=["tenant", "type", "key"], name="webhook_event_once"),
            models.UniqueConstraint(fields=["id", "tenant"], name="webhook_event_of_tenant"),
        ],
    },
)

DELIVERY = migrations.CreateModel(
    "Delivery",
    columns(
        id=UUID_KEY,
        state=models.CharField(
            default="pending", max_length=20, choices=pairs("pending", "delivered", "failed")
        ),
        attempts=models.PositiveIntegerField(default=0, help_text="Attempts in total."),
        tries=models.PositiveIntegerField("attempts since queued", default=0),
        next_attempt_at=models.DateTimeField(default=timezone.now, null=True, blank=True),
        last_status_code=models.PositiveSmallIntegerField(null=True, blank=True),
        last_problem=PROBLEM,
        created_at=models.DateTimeField(default=timezone.now, editable=False),
        finished_at=models.DateTimeField(null=True, blank=True, editable=False),
        tenant=TENANT,
        endpoint=models.ForeignKey(
            "webhooks.endpoint", models.CASCADE, db_index=False, related_name="deliveries"
        ),
        event=models.ForeignKey("webhooks.event", models.CASCADE, related_name="deliveries"),
    ),
    options={
        "verbose_name": "webhook delivery",
        "verbose_name_plural": "webhook deliveries",
        "ordering": ["-created_at"],
        "indexes": [
            models.Index(
                fields=["next_attempt_at"],
                condition=Q(state="pending"),
                name="webhook_delivery_due",
            ),
            models.Index(
                fields=["endpoint", "-created_at", "-id"], name="webhook_delivery_of_endpoint"
            ),
        ],
        "constraints": [
            models.UniqueConstraint(fields=["event", "endpoint"], name="webhook_delivery_once"),
            models.UniqueConstraint(fields=["id", "tenant"], name="webhook_delivery_of_tenant"),
            models.CheckConstraint(
                condition=Q(next_attempt_at__isnull=False, state="pending")
                | ~Q(state="pending") & Q(next_attempt_at=None),
                name="webhook_delivery_due_while_pending",
            ),
        ],
    },
)

DELIVERY_ATTEMPT = migrations.CreateModel(
    "DeliveryAttempt",
    columns(
        id=UUID_KEY,
        number=models.PositiveIntegerField(),
        started_at=models.DateTimeField(),
        duration_ms=models.PositiveIntegerField("duration (ms)"),
        status_code=models.PositiveSmallIntegerField(null=True, blank=True),
        problem=PROBLEM,
        detail=models.CharField(default="", blank=True, max_length=300),
        response_excerpt=models.CharField(
            default="", blank=True, max_length=1000, help_text="Start of the response body."
        ),
        delivery=models.ForeignKey(
            "webhooks.delivery", models.CASCADE, db_index=False, related_name="log"
        ),
        tenant=TENANT,
    ),
    options={
        "ordering": ["number"],
        "constraints": [
            models.UniqueConstraint(fields=["delivery", "number"], name="webhook_attempt_number")
        ],
    },
)

EMAIL_NOTICE = migrations.CreateModel(
    "EmailNotice",
    columns(
        id=UUID_KEY,
        state=models.CharField(
            default="pending", max_length=20, choices=pairs("pending", "sent", "failed")
        ),
        tries=models.PositiveIntegerField("attempts", default=0),
        next_try_at=models.DateTimeField(
            "next attempt at", default=timezone.now, null=True, blank=True
        ),
        sent_at=models.DateTimeField(null=True, blank=True, editable=False),
        problem=models.CharField(default="", blank=True, max_length=200),
        created_at=models.DateTimeField(default=timezone.now, editable=False),
        membership=models.ForeignKey("tenants.membership", models.CASCADE, related_name="+"),
        tenant=TENANT,
        event=models.ForeignKey("webhooks.event", models.CASCADE, related_name="emails"),
    ),
    options={
        "verbose_name": "e-mail notice",
        "ordering": ["-created_at"],
        "indexes": [
            models.Index(
                fields=["next_try_at"], condition=Q(state="pending"), name="email_notice_due"
            )
        ],
        "constraints": [
            models.UniqueConstraint(fields=["event", "membership"], name="email_notice_once"),
            models.CheckConstraint(
                condition=Q(next_try_at__isnull=False, state="pending")
                | ~Q(state="pending") & Q(next_try_at=None),
                name="email_notice_due_while_pending",
            ),
        ],
    },
)

BALANCE_ALERT = migrations.CreateModel(
    "BalanceAlert",
    columns(
        tenant=models.OneToOneField(
            "tenants.tenant", models.CASCADE, primary_key=True, related_name="+", serialize=False
        ),
        threshold_nanos=models.PositiveBigIntegerField(
            "threshold (nano-dollars)",
            default=5_000_000_000,
            null=True,
            blank=True,
            validators=[MaxValueValidator(2**62)],
            help_text="Notify at or below this balance. Leave blank for no alert.",
        ),
        is_low=models.BooleanField("low balance notified", default=False),
    ),
)


class Migration(migrations.Migration):
    initial = True
    dependencies = [("tenants", "0001_initial")]

    operations = [
        ENDPOINT,
        EVENT,
        DELIVERY,
        DELIVERY_ATTEMPT,
        EMAIL_NOTICE,
        BALANCE_ALERT,
        *map(BuildTenantWall, ("Endpoint", "Event", "Delivery", "DeliveryAttempt")),
        *map(BuildTenantWall, ("EmailNotice", "BalanceAlert")),
        BindToTenant("Delivery", column="event_id", target="webhooks_event"),
        BindToTenant("Delivery", column="endpoint_id", target="webhooks_endpoint"),
        # What was sent is not the tenants' to rewrite; a notice goes with its member.
        LetWebOnly("Event", "SELECT", "INSERT"),
        LetWebOnly("Delivery", "SELECT", "INSERT", "UPDATE"),
        LetWebOnly("DeliveryAttempt", "SELECT"),
        LetWebOnly("EmailNotice", "SELECT", "DELETE"),
        LetWebOnly("BalanceAlert", "SELECT", "INSERT", "UPDATE (threshold_nanos)"),
        # Some receivers have a secret in their URL.
        Audit(
            "Endpoint",
            label=["description"],
            noise=["failing_since"],
            secret=["url"],
            personal=["description"],
        ),
        Audit("BalanceAlert", noise=["is_low"]),
    ]
