-- Charges that wait to be posted: see docs/adr/0043-* and `waiting.py`. Nobody has a right to write
-- their table; these functions run as its owner.

-- Add up charges, a list of {tenant_id, model, day, nanos, requests}, at most one of each tenant,
-- model and day; in one order, so that two who charge the same tenants wait, and none for ever.
CREATE FUNCTION penstock_ledger_charge(charges jsonb) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
    INSERT INTO billing_waitingcharge AS waiting (tenant_id, model, day, nanos, requests, since)
        SELECT tenant_id, model, day, nanos, requests, clock_timestamp()
        FROM jsonb_to_recordset(charges) AS charge(
            tenant_id uuid, model text, day date, nanos bigint, requests integer)
        ORDER BY tenant_id, model, day
        ON CONFLICT (tenant_id, model, day) DO UPDATE SET
            nanos = waiting.nanos + excluded.nanos,
            requests = waiting.requests + excluded.requests
$$;

-- Take what waits for tenants whose heads are locked, to be posted in the same transaction. Waits
-- for those that are adding to it, and takes their part as well.
CREATE FUNCTION penstock_ledger_take_waiting(of_tenants uuid[])
RETURNS TABLE (of_tenant uuid, of_model text, of_day date, charged bigint, counted integer)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
    chosen bigint[] := ARRAY(
        SELECT id FROM billing_waitingcharge WHERE tenant_id = ANY (of_tenants)
        ORDER BY tenant_id, model, day FOR UPDATE);
BEGIN
    RETURN QUERY
    WITH taken AS (
        DELETE FROM billing_waitingcharge WHERE id = ANY (chosen)
        RETURNING tenant_id, model::text, day, nanos, requests
    )
    SELECT tenant_id, model, day, nanos, requests FROM taken ORDER BY tenant_id, model, day;
END $$;

REVOKE ALL ON FUNCTION
    penstock_ledger_charge(jsonb),
    penstock_ledger_take_waiting(uuid[])
FROM PUBLIC;
GRANT EXECUTE ON FUNCTION
    penstock_ledger_charge(jsonb),
    penstock_ledger_take_waiting(uuid[])
TO penstock_operator;

REVOKE ALL ON billing_waitingcharge FROM penstock_web, penstock_operator;
GRANT SELECT ON billing_waitingcharge TO penstock_web, penstock_operator;
CREATE POLICY posting ON billing_waitingcharge TO CURRENT_USER USING (true) WITH CHECK (true);

-- A row lives for a minute and is added to all the while.
ALTER TABLE billing_waitingcharge SET (
    fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
