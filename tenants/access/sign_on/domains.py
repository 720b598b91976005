"""Mail domains of tenants: claimed, proven, given up. Call these inside the tenant's scope, but for
`tenant_of_address`."""

import re
import uuid
from typing import Final

from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from django.utils import timezone

from tenants.access.sign_on.dns_records import txt_records
from tenants.errors import Conflict
from tenants.isolation.audit_actor import Verb, audited_as
from tenants.isolation.scoping import give_connection_back, operator_scope, tenant_scope
from tenants.models import MailDomain, Membership, ProofOfDomain, SignOnConfiguration, Tenant
from tenants.pagination import NEWEST_FIRST, Order, Page, page

MAX_DOMAINS: Final = 50
DOMAINS_ORDER: Final = Order(name="mail domains", fields=NEWEST_FIRST, is_descending=True)
_LABEL: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", re.ASCII)


def list_domains(*, limit: int, cursor: str | None = None) -> Page[MailDomain]:
    """Return a page of the open scope's domains, the newest first. Raises `BadCursor`."""
    return page(MailDomain.objects.all(), DOMAINS_ORDER, limit=limit, cursor=cursor)


def add_domain(tenant: Tenant, *, domain: str) -> MailDomain:
    """Claim a domain, whose TXT record is to be made next. Raises `ValidationError`, and `Conflict`
    for one that is there already or one too many."""
    name = _checked(domain)
    # Of two at the same time the second counts the first.
    Tenant.objects.select_for_update(no_key=True, of=("self",)).get(pk=tenant.pk)
    if MailDomain.objects.filter(domain=name).exists():
        raise Conflict(
            f"This organisation has the domain {name} already.",
            code="domain_exists",
            param="domain",
        )
    if MailDomain.objects.count() >= MAX_DOMAINS:
        raise Conflict(
            f"There are {MAX_DOMAINS} mail domains already; remove one first.",
            code="too_many_domains",
        )
    return MailDomain.objects.create(tenant=tenant, domain=name)


def texts_at(tenant_id: uuid.UUID, domain_id: uuid.UUID) -> list[str] | Conflict:
    """Ask the DNS for the TXT records of a domain of the tenant that is yet to be proven; return
    the refusal where it does not answer. Takes seconds then: call it while no scope is open."""
    with tenant_scope(tenant_id):
        domain = MailDomain.objects.filter(pk=domain_id, proven_at=None).first()
    give_connection_back()
    try:
        return txt_records(domain.record_name) if domain else []
    except Conflict as refusal:
        return refusal


def verify_domain(domain: MailDomain, texts: list[str] | Conflict) -> MailDomain:
    """Look for the record among the texts of `texts_at` and prove the domain by it. Raises
    `Conflict` with the code `record_not_found`, `dns_unavailable` or `domain_taken`."""
    if domain.is_proven:
        return domain
    if isinstance(texts, Conflict):
        raise texts
    if domain.record_value not in texts:
        raise Conflict(
            f"There is no TXT record {domain.record_value!r} at {domain.record_name} yet. A new "
            "record can take an hour to be seen; check it and try again.",
            code="record_not_found",
        )
    return _prove(domain, ProofOfDomain.DNS)


def prove_domain(domain: MailDomain) -> MailDomain:
    """Prove the domain by an operator's word. Raises `Conflict` with the code `domain_taken`."""
    return domain if domain.is_proven else _prove(domain, ProofOfDomain.OPERATOR)


def remove_domain(domain: MailDomain) -> None:
    """Give the domain up: nobody new signs on with an address in it."""
    domain.delete()


def members_in(domain: MailDomain) -> int:
    """Count the open scope's members with an address in the domain."""
    return Membership.objects.filter(user__email__iendswith=f"@{domain.domain}").count()


def has_proven(domain: str) -> bool:
    """Return whether the open scope's tenant has proven the domain."""
    return MailDomain.objects.filter(domain=domain, proven_at__isnull=False).exists()


def domain_of(email: str) -> str:
    return email.rpartition("@")[2].lower()


def tenant_of_address(email: str) -> uuid.UUID | None:
    """Return the tenant whose provider knows addresses in the domain of this one, None without
    one. Needs no scope, and looks at no account: the answer tells nothing about who has one."""
    with operator_scope("sign-on by address"):
        found = MailDomain.objects.filter(
            domain=domain_of(email), proven_at__isnull=False, tenant__closed_at=None
        ).first()
        if found is None:
            return None
        has_provider = SignOnConfiguration.objects.filter(pk=found.tenant_id).exists()
        return found.tenant_id if has_provider else None


def _prove(domain: MailDomain, by: ProofOfDomain) -> MailDomain:
    domain.proven_at, domain.proven_by = timezone.now(), by.value
    try:
        with transaction.atomic(), audited_as(Verb.DOMAIN_PROVEN):
            domain.save(update_fields=["proven_at", "proven_by"])
    except IntegrityError:
        # Not to be seen from here by a query: it lies behind another tenant's wall.
        domain.proven_at, domain.proven_by = None, ""
        raise Conflict(
            f"The domain {domain.domain} is proven by another organisation. Contact the operator "
            "of the service.",
            code="domain_taken",
        ) from None
    return domain


def _checked(domain: str) -> str:
    """Return the domain in lower case and ASCII. Raises `ValidationError`."""
    name = domain.strip().lower().removeprefix("@").removesuffix(".")
    if not name.isascii():
        try:
            name = name.encode("idna").decode()
        except UnicodeError:
            name = ""
    labels = name.split(".")
    is_name = len(name) <= 253 and len(labels) > 1 and all(map(_LABEL.fullmatch, labels))
    if not is_name or labels[-1].isdigit():
        raise ValidationError(
            {
                "domain": ValidationError(
                    "A mail domain is what stands behind the @, like acme.example.", code="domain"
                )
            }
        )
    return name
