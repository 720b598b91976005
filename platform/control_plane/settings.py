"""Django's settings. Everything that differs between deployments comes from `env.py`."""

import os
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlsplit

from control_plane.edge import SESSION_COOKIE
from control_plane.env import InvalidSettings, Settings
from control_plane.logs import configure_structlog, logging_config
from control_plane.management_api.openapi.tags import tags
from tenants.money import NANOS_PER_DOLLAR

try:
    ENV = Settings.from_environ(os.environ)
except InvalidSettings as problem:
    raise SystemExit(f"Penstock cannot start: {problem}") from None

BASE_DIR = Path(__file__).resolve().parent.parent.parent

# For the apps, which may not know of the environment.
PENSTOCK_API_KEY_PEPPER = ENV.api_key_pepper
PENSTOCK_PREVIOUS_API_KEY_PEPPERS = ENV.previous_api_key_peppers
PENSTOCK_DISPATCH_REDIS_URL = ENV.dispatch_redis_url
PENSTOCK_REDIS_URL = ENV.redis_url
PENSTOCK_METRICS_NETWORKS = ENV.metrics_networks
PENSTOCK_DATABASE_URL = ENV.database_url
PENSTOCK_PUBLIC_URL = ENV.public_url
PENSTOCK_ALLOWED_ORIGINS = ENV.allowed_origins
PENSTOCK_MAX_BODY_BYTES = ENV.max_body_bytes
PENSTOCK_PAYMENT_PROVIDER = ENV.payment_provider
PENSTOCK_STRIPE_API_KEY = ENV.stripe_api_key
PENSTOCK_STRIPE_WEBHOOK_SECRET = ENV.stripe_webhook_secret
PENSTOCK_STRIPE_API_BASE = ENV.stripe_api_base
PENSTOCK_INVOICE_FONT = ENV.invoice_font
PENSTOCK_BLOB_STORE_URL = ENV.blob_store_url

PENSTOCK_API_CALLS_PER_MINUTE = ENV.api_calls_per_minute
PENSTOCK_PAGES_PER_MINUTE = ENV.pages_per_minute
PENSTOCK_SIGN_UP = ENV.sign_up
PENSTOCK_SIGN_UP_TIER = ENV.sign_up_tier
PENSTOCK_SIGN_UP_CREDIT_NANOS = int(ENV.sign_up_credit * NANOS_PER_DOLLAR)
PENSTOCK_WEBHOOK_ALLOW_LOOPBACK = ENV.webhook_allow_loopback
PENSTOCK_WEBHOOK_DENIED_NETWORKS = ENV.webhook_denied_networks

SECRET_KEY = ENV.secret_key
SECRET_KEY_FALLBACKS = list(ENV.previous_secret_keys)
DEBUG = ENV.debug
ALLOWED_HOSTS = list(ENV.allowed_hosts)

INSTALLED_APPS = [
    "unfold.apps.BasicAppConfig",
    "unfold.contrib.filters",
    "control_plane.apps.OperatorAdminConfig",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.postgres",
    "django.contrib.staticfiles",
    # For the templates of its widgets, which forms of the pages render beside our own.
    "django.forms",
    "template_partials",
    "rest_framework",
    "drf_spectacular",
    "channels",
    "django_ratelimit",
    "allauth",
    "allauth.account",
    "allauth.mfa",
    "allauth.usersessions",
    "allauth.socialaccount",
    "tenants.apps.TenantsConfig",
    "tenants.billing.apps.BillingConfig",
    "tenants.webhooks.apps.WebhooksConfig",
    "inference.apps.InferenceConfig",
    "control_plane.apps.ControlPlaneConfig",
]

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "control_plane.web.content_security.ContentSecurityMiddleware",
    "control_plane.serving.static_files.StaticFilesMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "allauth.account.middleware.AccountMiddleware",
]

ROOT_URLCONF = "control_plane.urls"
ASGI_APPLICATION = "control_plane.asgi.application"

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
            "libraries": {
                "dashboard": "control_plane.dashboard.tags",
                "docs": "control_plane.documentation.tags",
                "operators": "control_plane.operator_site.tags",
            },
        },
    },
]

# PostgreSQL --------------------------------------------------------------------------------------


def _database(url: str, **options: object) -> dict[str, object]:
    parts = urlsplit(url)
    given = dict(parse_qsl(parts.query))
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": unquote(parts.path.strip("/")),
        "USER": unquote(parts.username or ""),
        "PASSWORD": unquote(parts.password or ""),
        # A socket folder may be given as ?host=/path.
        "HOST": given.pop("host", parts.hostname or ""),
        "PORT": given.pop("port", str(parts.port or "")),
        # Under ASGI persistent connections are kept per thread and leak; the pool bounds them.
        "CONN_MAX_AGE": 0,
        # Asked when the pool hands one out, so that a restarted PostgreSQL is not noticed.
        "CONN_HEALTH_CHECKS": True,
        "OPTIONS": {"connect_timeout": 5, **given, **options},
    }


DATABASES = {
    "default": _database(ENV.database_url, pool={"min_size": 1, "max_size": 10, "timeout": 10}),
}
if ENV.owner_database_url:
    DATABASES["owner"] = _database(ENV.owner_database_url)
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

# Redis: cache, Celery ----------------------------------------------------------------------------

CACHES = {
    "default": {
        "BACKEND": "django.core.cache.backends.redis.RedisCache",
        "LOCATION": ENV.redis_url,
        "KEY_PREFIX": "cache",
        # What it holds are counts of attempts and calls: nobody waits for them longer than that.
        "OPTIONS": {
            "pool_class": "control_plane.live.cache_pool.SharedPool",
            # Not Django's own, which unpickles whatever lies there.
            "serializer": "control_plane.live.plain_values.PlainValues",
            "socket_connect_timeout": 1,
            "socket_timeout": 1,
        },
    }
}

CELERY_BROKER_URL = ENV.redis_url
CELERY_BROKER_TRANSPORT_OPTIONS = {"global_keyprefix": "celery:"}
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_SERIALIZER = "json"
CELERY_ACCEPT_CONTENT = ["json"]
CELERY_TASK_DEFAULT_QUEUE = "penstock"
# They wait for other people's servers, and hold up nothing of ours: see tenants/webhooks/tasks.py.
# Those of `adapters` run what may take seconds of CPU each: see inference/adapters/intake.py. Those
# of `slow` take minutes, or wait for a payment provider or an answer of an engine: what rescues a
# lost Redis waits for none.
CELERY_TASK_ROUTES = {
    "webhooks.*": {"queue": "webhooks"},
    "adapters.*": {"queue": "adapters"},
    "billing.request_payments": {"queue": "slow"},
    "billing.run_month_end": {"queue": "slow"},
    "inference.compute_digest": {"queue": "slow"},
    "inference.deal_out_days": {"queue": "slow"},
    "inference.retry_dead_letter": {"queue": "slow"},
    "tenants.check_everything": {"queue": "slow"},
}
CELERY_TASK_TIME_LIMIT = 120
CELERY_TASK_SOFT_TIME_LIMIT = 90
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
CELERY_TIMEZONE = "UTC"

# E-mail ------------------------------------------------------------------------------------------

_mail = urlsplit(ENV.email_url)
_mail_backend = {"": "console", "file": "filebased"}.get(_mail.scheme, "smtp")
EMAIL_BACKEND = f"django.core.mail.backends.{_mail_backend}.EmailBackend"
EMAIL_FILE_PATH = ENV.email_url.removeprefix("file:") if _mail.scheme == "file" else None
EMAIL_HOST = _mail.hostname or ""
EMAIL_USE_SSL = _mail.scheme == "smtps"
EMAIL_USE_TLS = _mail.scheme == "smtp+starttls"
EMAIL_PORT = _mail.port or {"smtps": 465, "smtp+starttls": 587}.get(_mail.scheme, 25)
EMAIL_HOST_USER = unquote(_mail.username or "")
EMAIL_HOST_PASSWORD = unquote(_mail.password or "")
EMAIL_TIMEOUT = 15
DEFAULT_FROM_EMAIL = ENV.email_from

# People ------------------------------------------------------------------------------------------

AUTH_USER_MODEL = "tenants.User"
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator"},
    {
        "NAME": "django.contrib.auth.password_validation.MinimumLengthValidator",
        "OPTIONS": {"min_length": 12},
    },
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
    {"NAME": "django.contrib.auth.password_validation.NumericPasswordValidator"},
]
LOGIN_URL = "account_login"
LOGIN_REDIRECT_URL = "dashboard:organisations"
# What a forgotten password is set anew with; void once used, or once the account has changed.
PASSWORD_RESET_TIMEOUT = 3600

# Accounts as pages, by django-allauth: see control_plane/accounts. Django's own backend checks
# passwords, as at every door; accounts come only with an address that was proven, or by an
# operator, so that no door has to ask for that.
ACCOUNT_ADAPTER = "control_plane.accounts.adapter.AccountAdapter"
ACCOUNT_FORMS = {"reset_password": "control_plane.accounts.forms.AskForResetForm"}
ACCOUNT_USER_MODEL_USERNAME_FIELD = None
ACCOUNT_LOGIN_METHODS = {"email"}
ACCOUNT_SIGNUP_FIELDS = ["email*", "password1*"]
ACCOUNT_EMAIL_VERIFICATION = "none"
ACCOUNT_PREVENT_ENUMERATION = True
ACCOUNT_PASSWORD_RESET_TOKEN_GENERATOR = "django.contrib.auth.tokens.PasswordResetTokenGenerator"  # noqa: S105
ACCOUNT_REAUTHENTICATION_REQUIRED = True
ACCOUNT_EMAIL_NOTIFICATIONS = True
ACCOUNT_EMAIL_SUBJECT_PREFIX = "[Penstock] "
ACCOUNT_LOGOUT_REDIRECT_URL = "account_login"
ACCOUNT_SESSION_REMEMBER = True
# The limits are django-ratelimit's, which all doors share: see tenants/access/sign_in.py.
ACCOUNT_RATE_LIMITS = False
MFA_ADAPTER = "control_plane.accounts.second_factor.SecondFactorAdapter"
MFA_FORMS = {
    "activate_totp": "control_plane.accounts.second_factor.ActivateForm",
    "add_webauthn": "control_plane.accounts.passkeys.AddPasskeyForm",
    "authenticate_webauthn": "control_plane.accounts.passkeys.SecondFactorForm",
    "reauthenticate_webauthn": "control_plane.accounts.passkeys.ConfirmForm",
    "login_webauthn": "control_plane.accounts.passkeys.SignInForm",
}
MFA_SUPPORTED_TYPES = ["totp", "webauthn", "recovery_codes"]
MFA_PASSKEY_LOGIN_ENABLED = True
# The device asks its owner for a finger, a face or a PIN, each time: so a passkey is both factors,
# and a challenge for one use is worth no more at another.
MFA_WEBAUTHN_USER_VERIFICATION = "required"
MFA_TOTP_ISSUER = "Penstock"
MFA_RECOVERY_CODES_SHOW_ONCE = True
MFA_RATE_LIMITS = False
# Single sign-on: the tenants' configurations are the apps. No account is found by its address here.
SOCIALACCOUNT_ADAPTER = "control_plane.accounts.openid_connect.SignOnAdapter"
SOCIALACCOUNT_EMAIL_AUTHENTICATION = False
SOCIALACCOUNT_AUTO_SIGNUP = False
SOCIALACCOUNT_STORE_TOKENS = False
USERSESSIONS_ADAPTER = "control_plane.accounts.sessions.SessionsAdapter"

# Edges -------------------------------------------------------------------------------------------

_is_https = ENV.public_url.startswith("https://")

# The edge (edge.py) has set scheme and client from what trusted proxies say, so Django trusts no
# such header itself: neither SECURE_PROXY_SSL_HEADER nor USE_X_FORWARDED_HOST.
SECURE_SSL_REDIRECT = _is_https
PENSTOCK_OPERATORS_NEED_SECOND_FACTOR = _is_https
SECURE_REDIRECT_EXEMPT = [r"^healthz$", r"^readyz$", r"^metrics$"]
SECURE_HSTS_SECONDS = 365 * 24 * 3600 if _is_https else 0
# Both bind hosts that are not ours, for a year: only who runs the whole domain can say so.
SECURE_HSTS_INCLUDE_SUBDOMAINS = _is_https and ENV.hsts != "host"
SECURE_HSTS_PRELOAD = _is_https and ENV.hsts == "preload"
SESSION_COOKIE_SECURE = _is_https
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_NAME = SESSION_COOKIE
CSRF_COOKIE_SECURE = _is_https
CSRF_COOKIE_NAME = "penstock_csrf"
CSRF_TRUSTED_ORIGINS = list(ENV.allowed_origins)
SECURE_REFERRER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"
DATA_UPLOAD_MAX_MEMORY_SIZE = 2 * 1024 * 1024
FILE_UPLOAD_HANDLERS = [
    "django.core.files.uploadhandler.MemoryFileUploadHandler",
    "control_plane.blobs.nameless_files.NamelessFileUploadHandler",
]

SILENCED_SYSTEM_CHECKS = [
    # django-ratelimit knows few caches by name; Django's own for Redis counts as it needs.
    "django_ratelimit.W001",
    # HSTS for subdomains and for browsers' own lists: a choice, PENSTOCK_HSTS.
    "security.W005",
    "security.W021",
]

# Files, words, logs ------------------------------------------------------------------------------

STATIC_URL = "/static/"
# Served straight from the packages, indexed once at start: there is nothing to collect.
WHITENOISE_USE_FINDERS = True
WHITENOISE_AUTOREFRESH = DEBUG
WHITENOISE_MAX_AGE = 0 if DEBUG else 3600

LANGUAGE_CODE = "en"
TIME_ZONE = "UTC"
USE_TZ = True
USE_I18N = False
FORMAT_MODULE_PATH = "control_plane.formats"

LOGGING = logging_config(ENV.log_format, ENV.log_level)
configure_structlog()

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "control_plane.management_api.authentication.ApiKeyAuthentication",
        "control_plane.management_api.authentication.SessionAuthentication",
    ],
    "DEFAULT_PERMISSION_CLASSES": ["control_plane.management_api.permissions.IsKnown"],
    "DEFAULT_PARSER_CLASSES": ["control_plane.management_api.parsers.StrictJSONParser"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_THROTTLE_CLASSES": ["control_plane.management_api.throttling.CallerThrottle"],
    "DEFAULT_FILTER_BACKENDS": ["control_plane.management_api.filters.ListFilterBackend"],
    "DEFAULT_PAGINATION_CLASS": "control_plane.management_api.pagination.ListPagination",
    "EXCEPTION_HANDLER": "control_plane.management_api.errors.exception_handler",
    "DEFAULT_SCHEMA_CLASS": "control_plane.management_api.openapi.operations.ManagementSchema",
    # The Accept header alone says what is accepted.
    "URL_FORMAT_OVERRIDE": None,
}

# The API's description. Operations are the viewsets'; /v1 comes with the hook.
SPECTACULAR_SETTINGS = {
    "OAS_VERSION": "3.1.0",
    "TITLE": "Penstock",
    "VERSION": "1",
    "DESCRIPTION": (
        "Everything that Penstock answers over HTTP: inference below /v1, compatible with OpenAI's "
        "API, and the management of an organisation below /api/v1. Every answer carries "
        "`X-Request-Id`; lists are read page by page with `cursor`; refusals are OpenAI's error "
        "envelope, whose `code` is for programs."
    ),
    "SERVERS": [{"url": ENV.public_url}],
    "TAGS": tags(),
    "SCHEMA_PATH_PREFIX": "/api/v1",
    "COMPONENT_SPLIT_REQUEST": True,
    "ENUM_GENERATE_CHOICE_DESCRIPTION": False,
    "GET_LIB_DOC_EXCLUDES": (
        "control_plane.management_api.openapi.extensions.undocumented_classes"
    ),
    "POSTPROCESSING_HOOKS": [
        "control_plane.management_api.openapi.inference_api.add_inference_api",
        "control_plane.management_api.openapi.examples.add_examples",
    ],
}

UNFOLD = {
    "SITE_TITLE": "Penstock",
    "SITE_HEADER": "Penstock",
    "SITE_SUBHEADER": "operators",
    "SITE_ICON": "/static/penstock/mark.svg",
    "SITE_FAVICONS": [
        {"rel": "icon", "type": "image/svg+xml", "href": "/static/penstock/mark.svg"}
    ],
    "STYLES": ["/static/penstock/operators.css"],
    "SCRIPTS": ["/static/penstock/operators.js"],
    "SITE_URL": "/",
    "SHOW_HISTORY": True,
    "SHOW_VIEW_ON_SITE": False,
    "SHOW_BACK_BUTTON": True,
    "ENVIRONMENT": "control_plane.operator_site.impersonation_label.impersonation_label",
    "SIDEBAR": {
        "show_search": True,
        "navigation": "control_plane.operator_site.sidebar.navigation",
    },
    # The blue-green of the front page.
    "COLORS": {
        "primary": {
            "50": "oklch(98% .014 215)",
            "100": "oklch(95% .03 215)",
            "200": "oklch(90% .055 215)",
            "300": "oklch(83% .09 215)",
            "400": "oklch(74% .11 218)",
            "500": "oklch(62% .11 222)",
            "600": "oklch(51% .1 225)",
            "700": "oklch(44% .085 227)",
            "800": "oklch(38% .07 228)",
            "900": "oklch(33% .055 230)",
            "950": "oklch(24% .045 232)",
        }
    },
}
