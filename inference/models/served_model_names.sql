-- No served model's name begins with a tenant's slug and a slash: see tenants/models/slugs.sql.
CREATE FUNCTION penstock_check_model_name() RETURNS trigger
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    PERFORM penstock_lock_names();
    IF EXISTS (SELECT FROM tenants_tenant WHERE slug = split_part(lower(NEW.name), '/', 1)) THEN
        RAISE EXCEPTION 'The name % begins with the slug of a tenant.', NEW.name
            USING ERRCODE = 'check_violation', CONSTRAINT = 'served_model_name_of_nobody';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER check_name_on_insert BEFORE INSERT ON inference_servedmodel
FOR EACH ROW WHEN (NEW.name LIKE '%/%') EXECUTE FUNCTION penstock_check_model_name();
CREATE TRIGGER check_name_on_update BEFORE UPDATE ON inference_servedmodel
FOR EACH ROW WHEN (NEW.name LIKE '%/%' AND NEW.name IS DISTINCT FROM OLD.name)
EXECUTE FUNCTION penstock_check_model_name();
