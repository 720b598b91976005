-- The usage table's partitions: a month (UTC) each, by the time in the UUIDv7 of the request.
-- See docs/adr/0015-*.

-- The lowest UUIDv7 of a moment: its Unix milliseconds in the first 48 bits.
CREATE FUNCTION penstock_lowest_request_id(at timestamptz) RETURNS uuid
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT (lpad(to_hex(floor(extract(epoch FROM at) * 1000)::bigint), 12, '0')
        || repeat('0', 20))::uuid
$$;

-- Make the partition of a month if it is not there; whether it was made. A partition has the wall
-- of the whole table, and no role has a right to it: all go through the whole table.
CREATE FUNCTION penstock_make_usage_partition(of_month date) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
    month timestamptz := date_trunc('month', of_month::timestamp) AT TIME ZONE 'UTC';
    next_month timestamptz := (date_trunc('month', of_month::timestamp) + interval '1 month')
        AT TIME ZONE 'UTC';
    partition text := 'inference_usagerecord_' || to_char(of_month, '"y"YYYY"m"MM');
    own text := 'tenant_id = NULLIF(current_setting(''penstock.tenant'', true), '''')::uuid';
BEGIN
    IF of_month < '2020-01-01' OR of_month > now() + interval '13 months' THEN
        RAISE invalid_parameter_value USING MESSAGE =
            format('no usage is of %s: expected a month since 2020, a year ahead at most', of_month);
    END IF;
    IF to_regclass('public.' || partition) IS NOT NULL THEN
        RETURN false;
    END IF;
    -- One at a time; whoever waited looks again, into the table itself: to_regclass remembers.
    PERFORM pg_advisory_xact_lock(hashtext('penstock_make_usage_partition'));
    IF EXISTS (
        SELECT FROM pg_class WHERE relname = partition AND relnamespace = 'public'::regnamespace)
    THEN
        RETURN false;
    END IF;
    EXECUTE format('CREATE TABLE public.%I (LIKE public.inference_usagerecord'
        ' INCLUDING DEFAULTS INCLUDING CONSTRAINTS)', partition);
    EXECUTE format('ALTER TABLE public.%I ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY',
        partition);
    EXECUTE format('CREATE POLICY tenant_wall ON public.%I TO penstock_web'
        ' USING (%s) WITH CHECK (%s)', partition, own, own);
    EXECUTE format('CREATE POLICY operators ON public.%I TO penstock_operator'
        ' USING (true) WITH CHECK (true)', partition);
    EXECUTE format('REVOKE ALL ON public.%I FROM penstock_web, penstock_operator', partition);
    -- Attached and not made as a part: readers and writers of the other months are not stopped.
    EXECUTE format('ALTER TABLE public.inference_usagerecord ATTACH PARTITION public.%I'
        ' FOR VALUES FROM (%L) TO (%L)', partition,
        penstock_lowest_request_id(month), penstock_lowest_request_id(next_month));
    RETURN true;
END $$;

REVOKE ALL ON FUNCTION penstock_make_usage_partition(date) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION penstock_make_usage_partition(date) TO penstock_operator;
