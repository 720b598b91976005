-- A tenant's slug, the first part of its adapters' names: made from its name as it is created,
-- whichever way that is, and then the same for ever. No served model's name begins with one, so that
-- `acme/support` means the same to everybody. Both are checked under one lock, which is held until
-- the commit: of a tenant and a model that come at the same time the second sees the first.

CREATE FUNCTION penstock_lock_names() RETURNS void
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    SELECT pg_advisory_xact_lock(x'736c7567'::int)
$$;

CREATE FUNCTION penstock_slug_of(name text) RETURNS text
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT coalesce(nullif(btrim(left(btrim(regexp_replace(
        lower(regexp_replace(normalize(name, NFKD), '[^\x01-\x7f]', '', 'g')),
        '[^a-z0-9]+', '-', 'g'), '-'), 40), '-'), ''), 'tenant')
$$;

CREATE FUNCTION penstock_is_slug_taken(candidate text) RETURNS boolean
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    IF EXISTS (SELECT FROM tenants_tenant WHERE slug = candidate) THEN
        RETURN true;
    END IF;
    -- The catalogue stands on a floor above, and is built after this one.
    IF to_regclass('public.inference_servedmodel') IS NULL THEN
        RETURN false;
    END IF;
    RETURN EXISTS (
        SELECT FROM inference_servedmodel
        WHERE name LIKE '%/%' AND split_part(lower(name), '/', 1) = candidate);
END $$;

-- The slug of a new tenant: of its name, or that with a number, or with its id.
CREATE FUNCTION penstock_free_slug(name text, id uuid) RETURNS text
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
DECLARE
    base text := penstock_slug_of(name);
    candidate text := base;
BEGIN
    FOR number IN 2..9 LOOP
        IF NOT penstock_is_slug_taken(candidate) THEN
            RETURN candidate;
        END IF;
        candidate := base || '-' || number;
    END LOOP;
    candidate := base || '-' || right(id::text, 12);
    IF penstock_is_slug_taken(candidate) THEN
        RETURN 'tenant-' || id;
    END IF;
    RETURN candidate;
END $$;

CREATE FUNCTION penstock_give_slug() RETURNS trigger
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    PERFORM penstock_lock_names();
    IF NEW.slug = '' THEN
        NEW.slug := penstock_free_slug(NEW.name, NEW.id);
    ELSIF penstock_is_slug_taken(NEW.slug) THEN
        RAISE EXCEPTION 'The slug % is taken, by another tenant or a served model.', NEW.slug
            USING ERRCODE = 'unique_violation', CONSTRAINT = 'tenant_slug_once';
    END IF;
    RETURN NEW;
END $$;

CREATE FUNCTION penstock_keep_slug() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RAISE EXCEPTION 'The slug % of a tenant never changes.', OLD.slug
        USING ERRCODE = 'check_violation', CONSTRAINT = 'tenant_slug_never_changes';
END $$;

-- Those that were there before slugs were. The wall is forced on the tables' owner too, who sees
-- nobody behind it.
ALTER TABLE tenants_tenant NO FORCE ROW LEVEL SECURITY;
DO $$
DECLARE tenant record;
BEGIN
    PERFORM penstock_lock_names();
    FOR tenant IN SELECT id, name FROM tenants_tenant ORDER BY created_at, id LOOP
        UPDATE tenants_tenant SET slug = penstock_free_slug(tenant.name, tenant.id)
        WHERE id = tenant.id;
    END LOOP;
END $$;
ALTER TABLE tenants_tenant FORCE ROW LEVEL SECURITY;

ALTER TABLE tenants_tenant ADD CONSTRAINT tenant_slug_is_one
CHECK (slug ~ '^[a-z0-9]+(-[a-z0-9]+)*$');

CREATE TRIGGER give_slug BEFORE INSERT ON tenants_tenant
FOR EACH ROW EXECUTE FUNCTION penstock_give_slug();
CREATE TRIGGER keep_slug BEFORE UPDATE ON tenants_tenant
FOR EACH ROW WHEN (NEW.slug IS DISTINCT FROM OLD.slug) EXECUTE FUNCTION penstock_keep_slug();
