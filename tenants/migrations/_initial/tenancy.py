"""Tiers, people, tenants with their projects, keys and quotas."""

from decimal import Decimal

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.core.validators import MaxValueValidator, MinValueValidator, RegexValidator
from django.db import migrations, models
from django.db.models import Q
from django.db.models.functions import Lower
from django.utils import timezone

from tenants.migrations._schema import UUID_KEY, columns, pairs
from tenants.models.api_key import check_network, default_scopes
from tenants.models.quota import default_alert_percents

AT_LEAST_ONE = [MinValueValidator(1)]
SCOPES = ["inference", "usage:read", "adapters:write", "keys:write", "admin"]

TIER = migrations.CreateModel(
    "Tier",
    columns(
        id=UUID_KEY,
        name=models.SlugField(unique=True, max_length=40),
        service_class=models.CharField(
            default="interactive",
            max_length=20,
            choices=[
                ("interactive", "interactive: a person reads along as tokens arrive"),
                ("code", "code: an editor waits for a completion"),
                ("documents", "documents: a program waits for a long completion"),
                ("batch", "batch: nobody waits"),
            ],
        ),
        priority=models.SmallIntegerField(help_text="As in vLLM: lower values run first."),
        weight=models.PositiveSmallIntegerField(
            validators=AT_LEAST_ONE, help_text="Share of a busy pool, relative to other tiers."
        ),
        ttft_target_ms=models.PositiveIntegerField(
            "TTFT target (ms)", validators=AT_LEAST_ONE, help_text="Target for 99% of requests."
        ),
        inter_token_target_ms=models.PositiveIntegerField(
            "inter-token latency target (ms)",
            default=100,
            validators=AT_LEAST_ONE,
            help_text="Target for 99% of inter-token latencies.",
        ),
        uptime_percent=models.DecimalField(
            "uptime (%)",
            default=Decimal("99.5"),
            max_digits=6,
            decimal_places=3,
            validators=[MinValueValidator(0), MaxValueValidator(100)],
            help_text="Guaranteed availability per calendar month.",
        ),
        max_queue_seconds=models.PositiveIntegerField(
            "max time in queue (s)",
            validators=AT_LEAST_ONE,
            help_text="Requests still queued after this get a 503.",
        ),
        requests_per_minute=models.PositiveIntegerField(validators=AT_LEAST_ONE),
        tokens_per_minute=models.PositiveBigIntegerField(
            null=True, blank=True, validators=AT_LEAST_ONE, help_text="Leave blank for no limit."
        ),
        max_concurrent_requests=models.PositiveIntegerField(validators=AT_LEAST_ONE),
        max_context_tokens=models.PositiveIntegerField(
            "max context length (tokens)",
            null=True,
            blank=True,
            validators=AT_LEAST_ONE,
            help_text="Prompt and completion together. Leave blank for the model's own limit.",
        ),
        default_max_output_tokens=models.PositiveIntegerField(
            "default max_tokens",
            validators=AT_LEAST_ONE,
            help_text="Applied to requests that do not set max_tokens.",
        ),
        max_output_tokens=models.PositiveIntegerField(
            "upper limit of max_tokens", validators=AT_LEAST_ONE
        ),
        price_multiplier=models.DecimalField(
            default=Decimal("1"),
            max_digits=6,
            decimal_places=3,
            validators=[MinValueValidator(0)],
            help_text="Multiplies prices that are not specific to a tier; 1 is the list price.",
        ),
    ),
    options={"ordering": ["priority", "name"]},
)

USER = migrations.CreateModel(
    "User",
    columns(
        password=models.CharField("password", max_length=128),
        last_login=models.DateTimeField("last login", null=True, blank=True),
        is_superuser=models.BooleanField(
            "superuser status",
            default=False,
            help_text="Designates that this user has all permissions without explicitly assigning them.",
        ),
        id=UUID_KEY,
        email=models.EmailField(unique=True, max_length=254),
        name=models.CharField(blank=True, max_length=200),
        is_staff=models.BooleanField(
            "operator", default=False, help_text="Can sign in to the operators' admin."
        ),
        is_active=models.BooleanField(
            "active", default=True, help_text="Turn off instead of deleting the account."
        ),
        created_at=models.DateTimeField(default=timezone.now, editable=False),
        groups=models.ManyToManyField(
            "auth.group",
            verbose_name="groups",
            blank=True,
            related_name="user_set",
            related_query_name="user",
            help_text="The groups this user belongs to. A user will get all permissions granted to each of their groups.",
        ),
        user_permissions=models.ManyToManyField(
            "auth.permission",
            verbose_name="user permissions",
            blank=True,
            related_name="user_set",
            related_query_name="user",
            help_text="Specific permissions for this user.",
        ),
    ),
    options={
        "ordering": ["email"],
        "constraints": [
            models.UniqueConstraint(
                Lower("email"),
                name="user_email_in_any_case",
                violation_error_message="A user with this email address already exists.",
            )
        ],
    },
)

TENANT = migrations.CreateModel(
    "Tenant",
    columns(
        id=UUID_KEY,
        name=models.CharField(max_length=200),
        is_suspended=models.BooleanField(
            "suspended",
            default=False,
            help_text="New requests are refused and open streams end. Nothing is deleted.",
        ),
        created_at=models.DateTimeField(default=timezone.now, editable=False),
        closed_at=models.DateTimeField(null=True, blank=True, editable=False),
        tier=models.ForeignKey("tenants.tier", models.PROTECT, related_name="tenants"),
        billing_mode=models.CharField(
            default="postpaid",
            max_length=20,
            choices=[
                ("postpaid", "postpaid: usage is billed on the next invoice"),
                ("prepaid", "prepaid: usage draws on credit; without credit requests are refused"),
            ],
        ),
    ),
    options={
        "ordering": ["name"],
        "constraints": [
            models.UniqueConstraint(
                Lower("name"),
                name="tenant_name_in_any_case",
                violation_error_code="unique",
                violation_error_message="A tenant with this name already exists.",
            )
        ],
    },
)

PROJECT = migrations.CreateModel(
    "Project",
    columns(
        id=UUID_KEY,
        name=models.CharField(default="default", max_length=200),
        created_at=models.DateTimeField(default=timezone.now, editable=False),
        tenant=models.ForeignKey("tenants.tenant", models.PROTECT, related_name="projects"),
        on_saturation=models.CharField(
            "when saturated",
            default="wait",
            max_length=20,
            choices=[
                ("wait", "wait: queue the request and flag the response"),
                ("refuse", "refuse: 429 with Retry-After"),
                ("smaller_model", "smaller model: use another model, at that model's price"),
            ],
            help_text="What happens to requests when the expected wait exceeds the tier's TTFT target.",
        ),
        smaller_model=models.CharField(
            default="",
            blank=True,
            max_length=200,
            help_text="The fallback; required for (and only used by) that choice.",
        ),
    ),
    options={
        "ordering": ["tenant__name", "name"],
        "constraints": [
            models.UniqueConstraint(
                fields=["tenant", "name"],
                name="project_name_in_tenant",
                violation_error_code="unique_together",
                violation_error_message="This tenant already has a project with this name.",
            ),
            models.UniqueConstraint(fields=["id", "tenant"], name="project_of_tenant"),
            models.CheckConstraint(
                condition=Q(on_saturation="smaller_model") & ~Q(smaller_model="")
                | ~Q(on_saturation="smaller_model") & Q(smaller_model=""),
                name="project_smaller_model_if_used",
                violation_error_message="Choose a smaller model if, and only if, requests fall back to one when saturated.",
            ),
        ],
    },
)

MEMBERSHIP = migrations.CreateModel(
    "Membership",
    columns(
        id=UUID_KEY,
        role=models.CharField(
            default="viewer",
            max_length=20,
            choices=pairs("owner", "admin", "developer", "billing", "viewer"),
        ),
        created_at=models.DateTimeField(default=timezone.now, editable=False),
        user=models.ForeignKey(
            settings.AUTH_USER_MODEL, models.CASCADE, related_name="memberships"
        ),
        tenant=models.ForeignKey("tenants.tenant", models.CASCADE, related_name="memberships"),
        gets_alerts=models.BooleanField(
            "e-mail alerts",
            default=True,
            help_text="Send the alerts meant for this role by e-mail.",
        ),
    ),
    options={
        "constraints": [
            models.UniqueConstraint(
                fields=["tenant", "user"],
                name="membership_once_in_tenant",
                violation_error_message="This user is already a member of the tenant.",
            )
        ]
    },
)

API_KEY = migrations.CreateModel(
    "ApiKey",
    columns(
        id=UUID_KEY,
        name=models.CharField(blank=True, max_length=200, help_text="What the key is for."),
        public_id=models.CharField(
            unique=True,
            max_length=16,
            validators=[RegexValidator("\\A[a-z0-9]{16}\\Z")],
            editable=False,
        ),
        last_four=models.CharField(max_length=4, editable=False),
        secret_digest=models.BinaryField(max_length=32),
        previous_digest=models.BinaryField(null=True, max_length=32),
        previous_expires_at=models.DateTimeField("old key valid until", null=True, editable=False),
        scopes=ArrayField(
            models.CharField(max_length=30, choices=pairs(*SCOPES)), default=default_scopes
        ),
        expires_at=models.DateTimeField(
            null=True, blank=True, help_text="Leave blank if the key should not expire."
        ),
        allowed_networks=ArrayField(
            models.CharField(max_length=50, validators=[check_network]),
            null=True,
            blank=True,
            help_text="CIDR blocks that may use the key. Leave blank for any address.",
        ),
        allowed_models=ArrayField(
            models.CharField(max_length=200),
            null=True,
            blank=True,
            help_text="Leave blank for every model that the tenant may use.",
        ),
        allowed_adapters=ArrayField(
            models.CharField(max_length=200),
            null=True,
            blank=True,
            help_text="Leave blank for all of the tenant's adapters.",
        ),
        created_at=models.DateTimeField(default=timezone.now, editable=False),
        rotated_at=models.DateTimeField(null=True, blank=True, editable=False),
        last_used_at=models.DateTimeField(null=True, blank=True, editable=False),
        revoked_at=models.DateTimeField(null=True, blank=True, editable=False),
        created_by=models.ForeignKey(
            settings.AUTH_USER_MODEL, models.SET_NULL, null=True, related_name="+", editable=False
        ),
        project=models.ForeignKey("tenants.project", models.PROTECT, related_name="api_keys"),
        tenant=models.ForeignKey(
            "tenants.tenant", models.PROTECT, related_name="api_keys", editable=False
        ),
    ),
    options={
        "verbose_name": "API key",
        "ordering": ["-created_at"],
        "indexes": [
            models.Index(fields=["-created_at", "-id"], name="api_key_newest"),
            models.Index(fields=["tenant", "-created_at", "-id"], name="api_key_newest_of_tenant"),
        ],
        "constraints": [
            models.UniqueConstraint(fields=["id", "tenant"], name="api_key_of_tenant"),
            models.CheckConstraint(
                condition=Q(scopes__contained_by=SCOPES, scopes__len__gt=0),
                name="api_key_scopes_are_known",
            ),
        ],
    },
)

QUOTA = migrations.CreateModel(
    "Quota",
    columns(
        id=UUID_KEY,
        limit=models.CharField(
            max_length=30,
            choices=pairs(
                "requests_per_minute",
                "tokens_per_minute",
                "concurrent_requests",
                "tokens_per_day",
                "tokens_per_month",
                "spend_per_month",
                "spend_per_day",
            ),
        ),
        value=models.PositiveBigIntegerField(
            validators=AT_LEAST_ONE,
            help_text="For spend limits, in nano-dollars: 1000000000 is $1.",
        ),
        is_hard=models.BooleanField(
            "hard limit",
            default=True,
            help_text="If off, usage is counted and alerts are sent, but no request is refused.",
        ),
        api_key=models.ForeignKey(
            "tenants.apikey",
            models.CASCADE,
            verbose_name="API key",
            null=True,
            blank=True,
            related_name="quotas",
        ),
        project=models.ForeignKey(
            "tenants.project", models.CASCADE, null=True, blank=True, related_name="quotas"
        ),
        tenant=models.ForeignKey("tenants.tenant", models.CASCADE, related_name="quotas"),
        alert_percents=ArrayField(
            models.PositiveSmallIntegerField(
                validators=[MinValueValidator(1), MaxValueValidator(1000)]
            ),
            verbose_name="alert thresholds (%)",
            default=default_alert_percents,
            blank=True,
            size=10,
            help_text="Comma-separated, e.g. 50,80,100. The tenant is notified when a daily or monthly quota reaches each.",
        ),
    ),
    options={
        "ordering": ["limit"],
        "constraints": [
            models.CheckConstraint(
                condition=Q(project=None) | Q(api_key=None),
                name="quota_single_scope",
                violation_error_message="A quota applies to a project or to an API key, not to both.",
            ),
            models.UniqueConstraint(
                fields=["tenant", "limit"],
                condition=Q(api_key=None, project=None),
                name="quota_once_in_tenant",
                violation_error_message="This tenant already has a quota for this limit.",
            ),
            models.UniqueConstraint(
                fields=["project", "limit"],
                condition=Q(project__isnull=False),
                name="quota_once_in_project",
                violation_error_message="This project already has a quota for this limit.",
            ),
            models.UniqueConstraint(
                fields=["api_key", "limit"],
                condition=Q(api_key__isnull=False),
                name="quota_once_at_key",
                violation_error_message="This API key already has a quota for this limit.",
            ),
        ],
    },
)

QUOTA_ALERT = migrations.CreateModel(
    "QuotaAlert",
    columns(
        id=UUID_KEY,
        period=models.CharField(
            max_length=10, help_text="A day (2026-01-31) or a month (2026-01)."
        ),
        percent=models.PositiveSmallIntegerField(
            "threshold (%)",
        ),
        used=models.PositiveBigIntegerField(),
        raised_at=models.DateTimeField(default=timezone.now, editable=False),
        quota=models.ForeignKey("tenants.quota", models.CASCADE, related_name="alerts"),
        tenant=models.ForeignKey("tenants.tenant", models.CASCADE, related_name="quota_alerts"),
    ),
    options={
        "ordering": ["-raised_at"],
        "constraints": [
            models.UniqueConstraint(
                fields=["quota", "period", "percent"], name="quota_alert_once_in_period"
            )
        ],
    },
)
