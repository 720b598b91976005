-- The audit log, written by PostgreSQL itself: whatever changes an audited table, by whichever way,
-- leaves an event in the transaction of the change. See docs/adr/0007-*.
--
-- Events come into their chain in the order in which their transactions commit; `at` is when it
-- happened, which may be a little before.
--
-- Nobody has a right to INSERT: the functions here run as the owner of the tables. Who acts is the
-- JSON of the setting penstock.actor (tenants/isolation/audit_actor.py).

-- Several texts as one, such that no two lists look the same: <bytes>:<text> for each, NULL as ''.
CREATE FUNCTION penstock_audit_encode(VARIADIC parts text[]) RETURNS bytea
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT string_agg(
        convert_to(octet_length(convert_to(part, 'UTF8')) || ':' || part, 'UTF8'), ''::bytea
        ORDER BY ordinal)
    FROM (
        SELECT coalesce(item, '') AS part, ordinal
        FROM unnest(parts) WITH ORDINALITY AS given(item, ordinal)
    ) AS listed
$$;

-- What happened in a transaction that has not committed yet. Rows never outlive their transaction,
-- so nothing of them needs to survive a crash.
CREATE UNLOGGED TABLE tenants_auditpending (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    of_tenant uuid,
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    actor_kind text NOT NULL,
    actor_id text NOT NULL,
    verb text NOT NULL,
    record_kind text NOT NULL,
    record_id text NOT NULL,
    changes text NOT NULL,
    actor_name text NOT NULL,
    address text NOT NULL,
    record_name text NOT NULL,
    personal_changes text NOT NULL,
    is_due boolean NOT NULL DEFAULT false
);

-- A commit fires its deferred triggers in rounds: what these queue comes after all that were queued
-- before. So the lock below is taken when the foreign keys of the transaction have theirs: who
-- took it before would wait, holding it, for a row of somebody who waits for it.
CREATE FUNCTION penstock_audit_mark_due() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    UPDATE tenants_auditpending SET is_due = true WHERE id = NEW.id;
    RETURN NULL;
END $$;

CREATE CONSTRAINT TRIGGER audit_mark_due AFTER INSERT ON tenants_auditpending
DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION penstock_audit_mark_due();

-- Note an event; it comes into its chain while the transaction commits.
CREATE FUNCTION penstock_audit_append(
    of_tenant uuid, what text, kind text, key text, label text, changes jsonb, personal jsonb
) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
    actor jsonb := coalesce(
        nullif(current_setting('penstock.actor', true), ''), '{"kind": "unknown"}')::jsonb;
BEGIN
    INSERT INTO tenants_auditpending (
        of_tenant, actor_kind, actor_id, verb, record_kind, record_id, changes,
        actor_name, address, record_name, personal_changes
    ) VALUES (
        of_tenant, left(actor ->> 'kind', 20), left(coalesce(actor ->> 'id', ''), 200),
        left(what, 40), left(kind, 100), left(coalesce(key, ''), 200), changes::text,
        left(coalesce(actor ->> 'name', ''), 320), left(coalesce(actor ->> 'address', ''), 45),
        left(coalesce(label, ''), 320), personal::text
    );
END $$;

-- Put an event at the end of the chain of its tenant, or of that of all that has none. One
-- transaction at a time, for its commit only: whoever changes something and then takes long keeps
-- nobody waiting, and the chains have no gap. The lock is that of the policy's version, which other
-- changes take while they commit: two locks would be taken in either order.
CREATE FUNCTION penstock_audit_seal() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
    of_chain uuid := coalesce(NEW.of_tenant, '00000000-0000-0000-0000-000000000000');
    head tenants_auditchain%ROWTYPE;
    event tenants_auditevent%ROWTYPE;
    detail tenants_personaldetail%ROWTYPE;
    moment text;
BEGIN
    INSERT INTO tenants_policyversion (id, version, mark)
        VALUES (1, 0, '00000000-0000-0000-0000-000000000000') ON CONFLICT DO NOTHING;
    PERFORM 1 FROM tenants_policyversion WHERE id = 1 FOR UPDATE;
    INSERT INTO tenants_auditchain (chain, sequence, hash)
        VALUES (of_chain, 0, sha256(''::bytea)) ON CONFLICT DO NOTHING;
    SELECT * INTO head FROM tenants_auditchain WHERE chain = of_chain FOR UPDATE;

    event.id := NEW.id;
    event.tenant_id := NEW.of_tenant;
    event.sequence := head.sequence + 1;
    event.at := NEW.at;
    event.actor_kind := NEW.actor_kind;
    event.actor_id := NEW.actor_id;
    event.verb := NEW.verb;
    event.record_kind := NEW.record_kind;
    event.record_id := NEW.record_id;
    event.changes := NEW.changes;

    detail.event_id := NEW.id;
    detail.tenant_id := NEW.of_tenant;
    detail.salt := uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid());
    detail.actor_name := NEW.actor_name;
    detail.address := NEW.address;
    detail.record_name := NEW.record_name;
    detail.changes := NEW.personal_changes;

    moment := to_char(event.at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"');
    event.personal_digest := sha256(detail.salt || penstock_audit_encode(
        detail.actor_name, detail.address, detail.record_name, detail.changes));
    event.previous_hash := head.hash;
    event.hash := sha256(head.hash || penstock_audit_encode(
        of_chain::text, event.sequence::text, moment, event.actor_kind, event.actor_id, event.verb,
        event.record_kind, event.record_id, event.changes, encode(event.personal_digest, 'hex')));

    INSERT INTO tenants_auditevent SELECT event.*;
    INSERT INTO tenants_personaldetail SELECT detail.*;
    UPDATE tenants_auditchain SET sequence = event.sequence, hash = event.hash
        WHERE chain = of_chain;
    DELETE FROM tenants_auditpending WHERE id = NEW.id;
    RETURN NULL;
END $$;

CREATE CONSTRAINT TRIGGER audit_seal AFTER UPDATE ON tenants_auditpending
DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION penstock_audit_seal();

-- For what is no change of a record: signing in, an export. The web role writes to the chain of
-- the tenant that is open, and to no other.
CREATE FUNCTION penstock_audit_record(
    of_tenant uuid, what text, kind text, key text, label text, details jsonb
) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    IF current_setting('role') <> 'penstock_operator' AND of_tenant IS DISTINCT FROM
        nullif(current_setting('penstock.tenant', true), '')::uuid
    THEN
        RAISE insufficient_privilege USING
            CONSTRAINT = 'audit_log_of_the_open_tenant',
            MESSAGE = 'this audit log is not of the open tenant';
    END IF;
    PERFORM penstock_audit_append(of_tenant, what, kind, key, label, details, '{}');
END $$;

-- Text is cut, so that an event stays small.
CREATE FUNCTION penstock_audit_truncate(value jsonb) RETURNS jsonb
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE
        WHEN octet_length(value::text) > 1000 THEN to_jsonb(left(value::text, 500) || '…')
        ELSE coalesce(value, 'null')
    END
$$;

-- {"field": [before, after]}. Secrets say "changed"; what may name a person is left to
-- penstock_audit_diff_of.
CREATE FUNCTION penstock_audit_diff(
    before jsonb, after jsonb, secret text[], personal text[]
) RETURNS jsonb
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, public, pg_temp AS $$
    SELECT coalesce(jsonb_object_agg(field, CASE
        WHEN field = ANY (secret) THEN '"changed"'
        WHEN field = ANY (personal) THEN '"personal"'
        ELSE jsonb_build_array(
            penstock_audit_truncate(before -> field), penstock_audit_truncate(after -> field))
    END), '{}')
    FROM jsonb_object_keys(coalesce(after, before)) AS field
    WHERE coalesce(before -> field, 'null') <> coalesce(after -> field, 'null')
$$;

-- The same for some fields only.
CREATE FUNCTION penstock_audit_diff_of(before jsonb, after jsonb, fields text[])
RETURNS jsonb
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, public, pg_temp AS $$
    SELECT coalesce(jsonb_object_agg(field, jsonb_build_array(
        penstock_audit_truncate(before -> field), penstock_audit_truncate(after -> field))), '{}')
    FROM unnest(fields) AS field
    WHERE coalesce(before -> field, 'null') <> coalesce(after -> field, 'null')
$$;

-- What a record was called, without asking Django.
CREATE FUNCTION penstock_audit_label(row_ jsonb, label text[]) RETURNS text
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
    from_column text;
BEGIN
    FOREACH from_column IN ARRAY label LOOP
        IF from_column = 'user_id' THEN
            RETURN (SELECT email FROM tenants_user WHERE id = (row_ ->> from_column)::uuid);
        ELSIF row_ ->> from_column <> '' THEN
            RETURN row_ ->> from_column;
        END IF;
    END LOOP;
    RETURN '';
END $$;

-- After each statement on an audited table. Arguments: the model, and the names of columns: its
-- key, its tenant ('' for none), its label, those that are noise, secret and personal (lists with
-- commas). Up to 200 rows have an event each; more of them have one for each tenant, and where
-- that would be more than 200 as well, one for all.
CREATE FUNCTION penstock_audit_statement() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
    kind text := TG_ARGV[0];
    key_column text := TG_ARGV[1];
    tenant_column text := TG_ARGV[2];
    label text[] := string_to_array(TG_ARGV[3], ',');
    noise text[] := string_to_array(TG_ARGV[4], ',') || key_column;
    secret text[] := string_to_array(TG_ARGV[5], ',');
    personal text[] := string_to_array(TG_ARGV[6], ',');
    actor jsonb := coalesce(nullif(current_setting('penstock.actor', true), ''), '{}')::jsonb;
    what text := coalesce(actor ->> 'verb', CASE TG_OP
        WHEN 'INSERT' THEN 'created' WHEN 'UPDATE' THEN 'changed' ELSE 'deleted' END);
    changed text := CASE TG_OP
        WHEN 'INSERT' THEN 'SELECT NULL::jsonb AS before, to_jsonb(n) AS after FROM new_rows n'
        WHEN 'DELETE' THEN 'SELECT to_jsonb(o) AS before, NULL::jsonb AS after FROM old_rows o'
        ELSE format(
            'SELECT * FROM (SELECT to_jsonb(o) AS before, to_jsonb(n) AS after'
            ' FROM old_rows o FULL JOIN new_rows n USING (%I)) AS pairs'
            ' WHERE before - %L::text[] IS DISTINCT FROM after - %L::text[]',
            key_column, noise, noise)
    END;
    tenant text := format('(coalesce(after, before) ->> %L)::uuid', tenant_column);
    number bigint;
    tenants bigint;
    before jsonb;
    after jsonb;
    of_tenant uuid;
BEGIN
    EXECUTE format('SELECT count(*), count(DISTINCT %s) FROM (%s) AS rows', tenant, changed)
        INTO number, tenants;
    IF number = 0 THEN
        RETURN NULL;
    END IF;
    -- A digest that somebody forgot to name must not be shown either.
    secret := secret || ARRAY(
        SELECT attname::text FROM pg_attribute
        WHERE attrelid = TG_RELID AND atttypid = 'bytea'::regtype);
    IF tenant_column <> '' THEN
        noise := noise || tenant_column;
    END IF;

    IF number <= 200 THEN
        FOR before, after, of_tenant IN
            EXECUTE format('SELECT before, after, %s FROM (%s) AS rows', tenant, changed)
        LOOP
            PERFORM penstock_audit_append(
                of_tenant, what, kind, coalesce(after, before) ->> key_column,
                penstock_audit_label(coalesce(after, before), label),
                penstock_audit_diff(before - noise, after - noise, secret, personal),
                penstock_audit_diff_of(before, after, personal));
        END LOOP;
    ELSE
        IF tenants > 200 THEN
            tenant := 'NULL::uuid';
        END IF;
        FOR of_tenant, number IN
            EXECUTE format('SELECT %s, count(*) FROM (%s) AS rows GROUP BY 1', tenant, changed)
        LOOP
            PERFORM penstock_audit_append(
                of_tenant, what, kind, '', number || ' at once',
                jsonb_build_object('rows', number), '{}');
        END LOOP;
    END IF;
    RETURN NULL;
END $$;

CREATE FUNCTION penstock_refuse_write() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RAISE insufficient_privilege USING CONSTRAINT = TG_NAME, TABLE = TG_TABLE_NAME,
        MESSAGE = format('%s refused: %s is only ever added to', TG_OP, TG_TABLE_NAME);
END $$;

-- The rights ------------------------------------------------------------------------------------

REVOKE ALL ON FUNCTION
    penstock_audit_append(uuid, text, text, text, text, jsonb, jsonb),
    penstock_audit_record(uuid, text, text, text, text, jsonb),
    penstock_audit_label(jsonb, text[]),
    penstock_audit_seal(),
    penstock_audit_statement()
FROM PUBLIC;
GRANT EXECUTE ON FUNCTION penstock_audit_record(uuid, text, text, text, text, jsonb)
TO penstock_web, penstock_operator;

-- By default both have all.
REVOKE ALL ON
    tenants_auditchain, tenants_auditevent, tenants_auditpending, tenants_personaldetail
FROM penstock_web, penstock_operator;
GRANT SELECT ON tenants_auditevent, tenants_personaldetail TO penstock_web;
GRANT SELECT ON tenants_auditchain, tenants_auditevent TO penstock_operator;
-- What names a person must be erasable.
GRANT SELECT, DELETE ON tenants_personaldetail TO penstock_operator;

-- Row security binds the owner of the tables too, as whom the functions run.
CREATE POLICY appending ON tenants_auditevent FOR INSERT TO CURRENT_USER WITH CHECK (true);
CREATE POLICY appending ON tenants_personaldetail FOR INSERT TO CURRENT_USER WITH CHECK (true);

CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON tenants_auditevent
FOR EACH STATEMENT EXECUTE FUNCTION penstock_refuse_write();
CREATE TRIGGER erase_only BEFORE UPDATE OR TRUNCATE ON tenants_personaldetail
FOR EACH STATEMENT EXECUTE FUNCTION penstock_refuse_write();
CREATE TRIGGER heads_stay BEFORE DELETE OR TRUNCATE ON tenants_auditchain
FOR EACH STATEMENT EXECUTE FUNCTION penstock_refuse_write();
ALTER TABLE tenants_auditevent ENABLE ALWAYS TRIGGER append_only;
ALTER TABLE tenants_personaldetail ENABLE ALWAYS TRIGGER erase_only;
ALTER TABLE tenants_auditchain ENABLE ALWAYS TRIGGER heads_stay;
