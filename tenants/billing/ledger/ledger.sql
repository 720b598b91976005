-- The ledger as PostgreSQL keeps it. See docs/adr/0014-*.
--
-- Nobody has a right to write its tables: the functions here run as their owner. A transaction is
-- posted in one call, under the lock of its tenant's head, which is also the end of its hash chain;
-- who posts for several tenants locks them in the order of their ids. Triggers refuse, to everybody,
-- what is not an addition, entries that do not balance, and a transaction without any.

-- Lock the heads of tenants, in the order of their ids. -> what each of their accounts holds
CREATE FUNCTION penstock_ledger_lock(of_tenants uuid[])
RETURNS TABLE (of_tenant uuid, account text, balance bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    INSERT INTO billing_ledgerhead (tenant_id, sequence, hash, usage_nanos)
        SELECT each, 0, sha256(''::bytea), 0 FROM unnest(of_tenants) AS each ORDER BY each
        ON CONFLICT DO NOTHING;
    PERFORM 1 FROM billing_ledgerhead WHERE tenant_id = ANY (of_tenants)
        ORDER BY tenant_id FOR UPDATE;
    RETURN QUERY
        SELECT tenant_id, name::text, balance_nanos FROM billing_ledgeraccount
        WHERE tenant_id = ANY (of_tenants);
END $$;

-- Whether a debit adds to what an account holds (1) or takes from it (-1).
CREATE FUNCTION penstock_ledger_sign(account text) RETURNS integer
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE WHEN account IN (
        'promotional_credit', 'sla_credit', 'prepaid_credit', 'revenue') THEN -1 ELSE 1 END
$$;

-- As ledger_chain.py writes a time; '' for none.
CREATE FUNCTION penstock_ledger_timestamp(moment timestamptz) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT coalesce(to_char(moment AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'), '')
$$;

-- As the audit log encodes one part of what is hashed; inlined, so cheap.
CREATE FUNCTION penstock_ledger_encode(part text) RETURNS bytea
LANGUAGE sql STABLE AS $$
    SELECT convert_to(
        octet_length(convert_to(coalesce(part, ''), 'UTF8')) || ':' || coalesce(part, ''), 'UTF8')
$$;

-- Post transactions, at most one of a tenant. `postings` is a list of {tenant_id, kind, reference,
-- memo, expires_at, entries}, entries one of {account, nanos, model, day, requests}, in order.
-- -> whose were posted: not those whose reference was posted before, for whom nothing is changed.
CREATE FUNCTION penstock_ledger_post(postings jsonb) RETURNS SETOF uuid
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
    actor jsonb := coalesce(
        nullif(current_setting('penstock.actor', true), ''), '{"kind": "unknown"}')::jsonb;
    tenants uuid[] := ARRAY(
        SELECT (each ->> 'tenant_id')::uuid FROM jsonb_array_elements(postings) AS each);
BEGIN
    IF cardinality(tenants) <> (SELECT count(DISTINCT each) FROM unnest(tenants) AS each) THEN
        RAISE invalid_parameter_value USING CONSTRAINT = 'ledger_post_one_of_tenant', MESSAGE =
            'a call posts at most one transaction of a tenant, got more';
    END IF;
    PERFORM penstock_ledger_lock(tenants);
    SELECT coalesce(jsonb_agg(each), '[]'::jsonb) INTO postings
        FROM jsonb_array_elements(postings) AS each
        WHERE NOT EXISTS (
            SELECT FROM billing_ledgertransaction
            WHERE tenant_id = (each ->> 'tenant_id')::uuid AND reference = each ->> 'reference');
    -- Before they are added to: a new one must not be below its floor for a moment.
    INSERT INTO billing_ledgeraccount (tenant_id, name, balance_nanos)
        SELECT DISTINCT (each ->> 'tenant_id')::uuid, entry ->> 'account', 0
        FROM jsonb_array_elements(postings) AS each, jsonb_array_elements(each -> 'entries') AS entry
        ON CONFLICT DO NOTHING;

    RETURN QUERY
    WITH given AS MATERIALIZED (
        SELECT gen_random_uuid() AS id, posting.tenant_id, head.sequence + 1 AS sequence,
            clock_timestamp() AS at, kind, reference, memo, expires_at, entries,
            left(actor ->> 'kind', 20) AS actor_kind,
            left(coalesce(actor ->> 'id', ''), 200) AS actor_id, head.hash AS previous_hash
        FROM jsonb_to_recordset(postings) AS posting(
            tenant_id uuid, kind text, reference text, memo text, expires_at timestamptz,
            entries jsonb)
        JOIN billing_ledgerhead AS head ON head.tenant_id = posting.tenant_id
    ), lines AS MATERIALIZED (
        SELECT id, tenant_id, place - 1 AS position, account, nanos, model, day, requests
        FROM given, ROWS FROM (
            jsonb_to_recordset(entries) AS (
                account text, nanos bigint, model text, day date, requests integer)
        ) WITH ORDINALITY AS line(account, nanos, model, day, requests, place)
    ), digests AS (
        SELECT id, sha256(string_agg(
            penstock_ledger_encode(position::text) || penstock_ledger_encode(account)
            || penstock_ledger_encode(nanos::text) || penstock_ledger_encode(model)
            || penstock_ledger_encode(to_char(day, 'YYYY-MM-DD'))
            || penstock_ledger_encode(requests::text), ''::bytea ORDER BY position)) AS digest
        FROM lines GROUP BY id
    ), posted AS (
        INSERT INTO billing_ledgertransaction (id, tenant_id, sequence, at, kind, reference, memo,
            expires_at, actor_kind, actor_id, previous_hash, hash)
        SELECT id, tenant_id, sequence, at, kind, reference, memo, expires_at, actor_kind, actor_id,
            previous_hash, sha256(previous_hash
                || penstock_ledger_encode(tenant_id::text) || penstock_ledger_encode(sequence::text)
                || penstock_ledger_encode(penstock_ledger_timestamp(at)) || penstock_ledger_encode(kind)
                || penstock_ledger_encode(reference) || penstock_ledger_encode(memo)
                || penstock_ledger_encode(penstock_ledger_timestamp(expires_at))
                || penstock_ledger_encode(actor_kind) || penstock_ledger_encode(actor_id)
                || penstock_ledger_encode(encode(digest, 'hex')))
        FROM given LEFT JOIN digests USING (id)
        RETURNING tenant_id, id, sequence, hash, kind
    ), written AS (
        INSERT INTO billing_ledgerentry (
            transaction_id, tenant_id, position, account, nanos, model, day, requests)
        SELECT id, tenant_id, position, account, nanos, model, day, requests FROM lines
    ), moved AS (
        SELECT tenant_id, account, sum(nanos) AS nanos FROM lines GROUP BY tenant_id, account
    ), held AS (
        UPDATE billing_ledgeraccount AS held
        SET balance_nanos = balance_nanos + nanos * penstock_ledger_sign(account)
        FROM moved WHERE held.tenant_id = moved.tenant_id AND held.name = account
    )
    UPDATE billing_ledgerhead AS head SET sequence = posted.sequence, hash = posted.hash,
        usage_nanos = usage_nanos - CASE WHEN kind = 'usage' THEN coalesce(nanos, 0) ELSE 0 END
    FROM posted LEFT JOIN moved
        ON moved.tenant_id = posted.tenant_id AND moved.account = 'revenue'
    WHERE head.tenant_id = posted.tenant_id
    RETURNING head.tenant_id;
END $$;

-- What a statement adds to the entries of a transaction comes to nothing.
CREATE FUNCTION penstock_ledger_check_balance() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
    wrong record;
BEGIN
    SELECT transaction_id, sum(nanos) AS total INTO wrong
        FROM added GROUP BY transaction_id HAVING sum(nanos) <> 0 LIMIT 1;
    IF FOUND THEN
        RAISE check_violation USING
            CONSTRAINT = TG_NAME,
            DETAIL = jsonb_build_object('difference_nanos', wrong.total)::text,
            MESSAGE = format('ledger transaction %s does not balance: its entries come to %s '
                'nano-dollars, not to 0', wrong.transaction_id, wrong.total);
    END IF;
    RETURN NULL;
END $$;

-- While a transaction commits: each that it added has entries. As none moves nothing, two or more.
CREATE FUNCTION penstock_ledger_check_entries() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM billing_ledgerentry WHERE transaction_id = NEW.id) THEN
        RAISE check_violation USING CONSTRAINT = TG_NAME,
            MESSAGE = format('ledger transaction %s has no entries', NEW.id);
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER ledger_balances AFTER INSERT ON billing_ledgerentry
REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION penstock_ledger_check_balance();
CREATE CONSTRAINT TRIGGER ledger_has_entries AFTER INSERT ON billing_ledgertransaction
DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION penstock_ledger_check_entries();

-- The rights ------------------------------------------------------------------------------------

REVOKE ALL ON FUNCTION
    penstock_ledger_lock(uuid[]),
    penstock_ledger_post(jsonb),
    penstock_ledger_check_balance(),
    penstock_ledger_check_entries()
FROM PUBLIC;
GRANT EXECUTE ON FUNCTION
    penstock_ledger_lock(uuid[]),
    penstock_ledger_post(jsonb)
TO penstock_operator;

-- By default both have all.
REVOKE ALL ON
    billing_ledgerhead, billing_ledgeraccount, billing_ledgertransaction, billing_ledgerentry
FROM penstock_web, penstock_operator;
GRANT SELECT ON
    billing_ledgerhead, billing_ledgeraccount, billing_ledgertransaction, billing_ledgerentry
TO penstock_web, penstock_operator;

-- Row security binds the owner of the tables too, as whom the functions run.
CREATE POLICY posting ON billing_ledgerhead TO CURRENT_USER USING (true) WITH CHECK (true);
CREATE POLICY posting ON billing_ledgeraccount TO CURRENT_USER USING (true) WITH CHECK (true);
CREATE POLICY posting ON billing_ledgertransaction TO CURRENT_USER USING (true) WITH CHECK (true);
CREATE POLICY posting ON billing_ledgerentry TO CURRENT_USER USING (true) WITH CHECK (true);

CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON billing_ledgertransaction
FOR EACH STATEMENT EXECUTE FUNCTION penstock_refuse_write();
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON billing_ledgerentry
FOR EACH STATEMENT EXECUTE FUNCTION penstock_refuse_write();
CREATE TRIGGER heads_stay BEFORE DELETE OR TRUNCATE ON billing_ledgerhead
FOR EACH STATEMENT EXECUTE FUNCTION penstock_refuse_write();
CREATE TRIGGER accounts_stay BEFORE DELETE OR TRUNCATE ON billing_ledgeraccount
FOR EACH STATEMENT EXECUTE FUNCTION penstock_refuse_write();
ALTER TABLE billing_ledgertransaction ENABLE ALWAYS TRIGGER append_only;
ALTER TABLE billing_ledgerentry ENABLE ALWAYS TRIGGER append_only;
ALTER TABLE billing_ledgerhead ENABLE ALWAYS TRIGGER heads_stay;
ALTER TABLE billing_ledgeraccount ENABLE ALWAYS TRIGGER accounts_stay;
