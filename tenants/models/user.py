"""People who sign in. The email address is the login."""

import uuid
from typing import Any

from django.contrib.auth.base_user import AbstractBaseUser, BaseUserManager
from django.contrib.auth.models import PermissionsMixin
from django.db import models
from django.db.models.functions import Lower
from django.utils import timezone

from tenants.isolation.audit_actor import Actor, ActorKind
from tenants.names import one_line


class UserManager(BaseUserManager["User"]):
    """Email addresses are kept and compared in lower case."""

    def create_user(self, email: str, password: str | None = None, **fields: Any) -> "User":
        if not email:
            raise ValueError("a user needs an email address")
        user = self.model(email=email.strip().lower(), **fields)
        user.set_password(password)
        user.save(using=self._db)
        return user

    def create_superuser(self, email: str, password: str | None = None, **fields: Any) -> "User":
        return self.create_user(email, password, is_staff=True, is_superuser=True, **fields)

    def get_by_natural_key(self, username: str | None) -> "User":
        return self.get(email=(username or "").strip().lower())


class User(AbstractBaseUser, PermissionsMixin):
    """A person; what of a tenant they may do is in `Membership`."""

    is_audited = True

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    email = models.EmailField(unique=True)
    name = models.CharField(max_length=200, blank=True, validators=[one_line])
    is_staff = models.BooleanField(
        "operator", default=False, help_text="Can sign in to the operators' admin."
    )
    is_active = models.BooleanField(
        "active", default=True, help_text="Turn off instead of deleting the account."
    )
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    USERNAME_FIELD = "email"
    EMAIL_FIELD = "email"

    objects = UserManager()

    class Meta:
        ordering = ["email"]
        constraints = [
            models.UniqueConstraint(
                Lower("email"),
                name="user_email_in_any_case",
                violation_error_message="A user with this email address already exists.",
            )
        ]

    def __str__(self) -> str:
        return self.email

    def as_actor(self) -> Actor:
        return Actor(kind=ActorKind.USER, id=str(self.pk), name=self.email)

    def clean(self) -> None:
        super().clean()
        self.email = self.email.strip().lower()
