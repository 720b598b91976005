-- The price book is only ever added to. See docs/adr/0014-*.

-- On what holds for a period: it begins no earlier than now, and of what is there only an open period
-- may be closed, no earlier than now.
CREATE FUNCTION penstock_period_guard() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        IF NEW.effective_from < now() THEN
            RAISE check_violation USING CONSTRAINT = 'period_not_begun_in_past', MESSAGE = format(
                '%s: a period cannot begin in the past, at %s; it is %s', TG_TABLE_NAME,
                NEW.effective_from, now());
        END IF;
        NEW.closed_at := NULL;
        RETURN NEW;
    END IF;
    IF to_jsonb(OLD) - ARRAY['effective_until', 'closed_at']
            IS DISTINCT FROM to_jsonb(NEW) - ARRAY['effective_until', 'closed_at']
        OR OLD.effective_until IS NOT NULL OR NEW.effective_until IS NULL
    THEN
        RAISE check_violation USING CONSTRAINT = 'period_closed_once', MESSAGE = format(
            '%s: nothing is changed but the end of an open period, once', TG_TABLE_NAME);
    ELSIF NEW.effective_until < now() THEN
        RAISE check_violation USING CONSTRAINT = 'period_not_ended_in_past', MESSAGE = format(
            '%s: a period cannot end in the past, at %s; it is %s', TG_TABLE_NAME,
            NEW.effective_until, now());
    END IF;
    NEW.closed_at := clock_timestamp();
    RETURN NEW;
END $$;

CREATE TRIGGER period_guard BEFORE INSERT OR UPDATE ON billing_price
FOR EACH ROW EXECUTE FUNCTION penstock_period_guard();
CREATE TRIGGER period_guard BEFORE INSERT OR UPDATE ON billing_poolcost
FOR EACH ROW EXECUTE FUNCTION penstock_period_guard();

CREATE TRIGGER append_only BEFORE DELETE OR TRUNCATE ON billing_price
FOR EACH STATEMENT EXECUTE FUNCTION penstock_refuse_write();
CREATE TRIGGER append_only BEFORE DELETE OR TRUNCATE ON billing_poolcost
FOR EACH STATEMENT EXECUTE FUNCTION penstock_refuse_write();
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON billing_pricecorrection
FOR EACH STATEMENT EXECUTE FUNCTION penstock_refuse_write();
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON billing_tiermultiplier
FOR EACH STATEMENT EXECUTE FUNCTION penstock_refuse_write();
ALTER TABLE billing_price ENABLE ALWAYS TRIGGER append_only;
ALTER TABLE billing_poolcost ENABLE ALWAYS TRIGGER append_only;
ALTER TABLE billing_pricecorrection ENABLE ALWAYS TRIGGER append_only;
ALTER TABLE billing_tiermultiplier ENABLE ALWAYS TRIGGER append_only;

-- Prices know tiers by name: while one names it that has not ended, a tier keeps its name, and stays.
CREATE FUNCTION penstock_protect_priced_tier() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
    models text[];
BEGIN
    SELECT array_agg(DISTINCT model ORDER BY model) INTO models FROM billing_price
        WHERE tier = OLD.name
        AND (effective_until IS NULL OR effective_until > clock_timestamp());
    IF models IS NOT NULL THEN
        RAISE restrict_violation USING
            CONSTRAINT = 'priced_tier_stays',
            DETAIL = jsonb_build_object('models', models)::text,
            MESSAGE = format('the tier %s is named by prices of %s that have not ended',
                OLD.name, array_to_string(models, ', '));
    END IF;
    RETURN CASE TG_OP WHEN 'DELETE' THEN OLD ELSE NEW END;
END $$;

CREATE TRIGGER protect_priced BEFORE DELETE ON tenants_tier
FOR EACH ROW EXECUTE FUNCTION penstock_protect_priced_tier();
CREATE TRIGGER protect_priced_name BEFORE UPDATE ON tenants_tier FOR EACH ROW
WHEN (OLD.name <> NEW.name) EXECUTE FUNCTION penstock_protect_priced_tier();
REVOKE ALL ON FUNCTION penstock_protect_priced_tier() FROM PUBLIC;

-- What each tier multiplied prices by, and since when.
CREATE FUNCTION penstock_record_multiplier() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    INSERT INTO billing_tiermultiplier (tier, permille, effective_from)
        VALUES (NEW.name, trunc(NEW.price_multiplier * 1000), clock_timestamp());
    RETURN NULL;
END $$;

CREATE TRIGGER record_first_multiplier AFTER INSERT ON tenants_tier
FOR EACH ROW EXECUTE FUNCTION penstock_record_multiplier();
CREATE TRIGGER record_multiplier AFTER UPDATE ON tenants_tier FOR EACH ROW
WHEN (OLD.price_multiplier IS DISTINCT FROM NEW.price_multiplier OR OLD.name <> NEW.name)
EXECUTE FUNCTION penstock_record_multiplier();

REVOKE ALL ON FUNCTION penstock_record_multiplier() FROM PUBLIC;
REVOKE INSERT, UPDATE, DELETE ON billing_tiermultiplier FROM penstock_web, penstock_operator;
