-- The ledger as PostgreSQL keeps it. See docs/adr/0014-*.
--
-- Nobody has a right to write its tables: the functions here run as their owner. A transaction is
-- posted in one call, under the lock of its tenant's head, which is also the end of its hash chain;
-- who posts for several tenants locks them in the order of their ids. Triggers refuse what is not an
-- addition, to everybody; a deferred one refuses a commit that leaves a transaction unbalanced.

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
CREATE FUNCTION penstock_ledger_sense(account text) RETURNS integer
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE WHEN account IN (
        'promotional_credit', 'sla_credit', 'prepaid_credit', 'revenue') THEN -1 ELSE 1 END
$$;

-- As ledger_chain.py writes a time; '' for none.
CREATE FUNCTION penstock_ledger_moment(moment timestamptz) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT coalesce(to_char(moment AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'), '')
$$;

-- Post one transaction. `entries` is a list of {account, nanos, model, day, requests}, in order.
-- -> false: one of this reference was posted before, and nothing is changed.
CREATE FUNCTION penstock_ledger_post(
    new_id uuid, of_tenant uuid, what text, with_reference text, with_memo text, until timestamptz,
    entries jsonb
) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
    actor jsonb := coalesce(
        nullif(current_setting('penstock.actor', true), ''), '{"kind": "unknown"}')::jsonb;
    head billing_ledgerhead%ROWTYPE;
    posted billing_ledgertransaction%ROWTYPE;
    digest bytea;
BEGIN
    SELECT * INTO head FROM billing_ledgerhead WHERE tenant_id = of_tenant FOR UPDATE;
    IF NOT FOUND THEN
        PERFORM penstock_ledger_lock(ARRAY[of_tenant]);
        SELECT * INTO head FROM billing_ledgerhead WHERE tenant_id = of_tenant;
    END IF;
    PERFORM 1 FROM billing_ledgertransaction
        WHERE tenant_id = of_tenant AND reference = with_reference;
    IF FOUND THEN
        RETURN false;
    END IF;

    posted.id := new_id;
    posted.tenant_id := of_tenant;
    posted.sequence := head.sequence + 1;
    posted.at := clock_timestamp();
    posted.kind := what;
    posted.reference := with_reference;
    posted.memo := with_memo;
    posted.expires_at := until;
    posted.actor_kind := left(actor ->> 'kind', 20);
    posted.actor_id := left(coalesce(actor ->> 'id', ''), 200);
    posted.previous_hash := head.hash;
    SELECT sha256(string_agg(penstock_audit_encode(
            (place - 1)::text, each ->> 'account', each ->> 'nanos', each ->> 'model',
            each ->> 'day', each ->> 'requests'), ''::bytea ORDER BY place))
        INTO digest FROM jsonb_array_elements(entries) WITH ORDINALITY AS listed(each, place);
    posted.hash := sha256(head.hash || penstock_audit_encode(
        of_tenant::text, posted.sequence::text, penstock_ledger_moment(posted.at), posted.kind,
        posted.reference, posted.memo, penstock_ledger_moment(posted.expires_at),
        posted.actor_kind, posted.actor_id, encode(digest, 'hex')));

    INSERT INTO billing_ledgertransaction SELECT posted.*;
    INSERT INTO billing_ledgerentry (
            transaction_id, tenant_id, position, account, nanos, model, day, requests)
        SELECT new_id, of_tenant, place - 1, each ->> 'account', (each ->> 'nanos')::bigint,
            each ->> 'model', (each ->> 'day')::date, (each ->> 'requests')::integer
        FROM jsonb_array_elements(entries) WITH ORDINALITY AS listed(each, place);
    INSERT INTO billing_ledgeraccount (tenant_id, name, balance_nanos)
        SELECT DISTINCT of_tenant, each ->> 'account', 0 FROM jsonb_array_elements(entries) AS each
        ON CONFLICT DO NOTHING;
    UPDATE billing_ledgeraccount AS held SET balance_nanos = balance_nanos + moved.nanos
        FROM (
            SELECT account, sum(nanos) * penstock_ledger_sense(account) AS nanos
            FROM billing_ledgerentry WHERE transaction_id = new_id GROUP BY account
        ) AS moved
        WHERE held.tenant_id = of_tenant AND held.name = moved.account;
    UPDATE billing_ledgerhead SET sequence = posted.sequence, hash = posted.hash,
            usage_nanos = usage_nanos + CASE WHEN what <> 'usage' THEN 0 ELSE (
                SELECT -coalesce(sum(nanos), 0) FROM billing_ledgerentry
                WHERE transaction_id = new_id AND account = 'revenue') END
        WHERE tenant_id = of_tenant;
    RETURN true;
END $$;

-- While a transaction commits: each that it added must balance, and have entries.
CREATE FUNCTION penstock_ledger_check() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
    of_transaction uuid := CASE TG_TABLE_NAME
        WHEN 'billing_ledgerentry' THEN (to_jsonb(NEW) ->> 'transaction_id')::uuid
        ELSE (to_jsonb(NEW) ->> 'id')::uuid END;
    entries bigint;
    total numeric;
BEGIN
    SELECT count(*), coalesce(sum(nanos), 0) INTO entries, total
        FROM billing_ledgerentry WHERE transaction_id = of_transaction;
    IF entries < 2 THEN
        RAISE check_violation USING MESSAGE = format(
            'ledger transaction %s has %s entries, at least 2 are expected', of_transaction,
            entries);
    ELSIF total <> 0 THEN
        RAISE check_violation USING MESSAGE = format(
            'ledger transaction %s does not balance: its entries come to %s nano-dollars, not to 0',
            of_transaction, total);
    END IF;
    RETURN NULL;
END $$;

CREATE CONSTRAINT TRIGGER ledger_balances AFTER INSERT ON billing_ledgertransaction
DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION penstock_ledger_check();
CREATE CONSTRAINT TRIGGER ledger_balances AFTER INSERT ON billing_ledgerentry
DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION penstock_ledger_check();

-- The rights ------------------------------------------------------------------------------------

REVOKE ALL ON FUNCTION
    penstock_ledger_lock(uuid[]),
    penstock_ledger_post(uuid, uuid, text, text, text, timestamptz, jsonb),
    penstock_ledger_check()
FROM PUBLIC;
GRANT EXECUTE ON FUNCTION
    penstock_ledger_lock(uuid[]),
    penstock_ledger_post(uuid, uuid, text, text, text, timestamptz, jsonb)
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
FOR EACH STATEMENT EXECUTE FUNCTION penstock_audit_refuse();
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON billing_ledgerentry
FOR EACH STATEMENT EXECUTE FUNCTION penstock_audit_refuse();
CREATE TRIGGER heads_stay BEFORE DELETE OR TRUNCATE ON billing_ledgerhead
FOR EACH STATEMENT EXECUTE FUNCTION penstock_audit_refuse();
CREATE TRIGGER accounts_stay BEFORE DELETE OR TRUNCATE ON billing_ledgeraccount
FOR EACH STATEMENT EXECUTE FUNCTION penstock_audit_refuse();
ALTER TABLE billing_ledgertransaction ENABLE ALWAYS TRIGGER append_only;
ALTER TABLE billing_ledgerentry ENABLE ALWAYS TRIGGER append_only;
ALTER TABLE billing_ledgerhead ENABLE ALWAYS TRIGGER heads_stay;
ALTER TABLE billing_ledgeraccount ENABLE ALWAYS TRIGGER accounts_stay;
