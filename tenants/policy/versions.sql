-- Versions of the policy snapshot are in the order in which changes commit.
--
-- The functions run as the owner of the tables while the transaction commits: nobody else may write
-- the version, and its row is locked for the commit only, not from the change on: in the second round
-- of the deferred triggers, when the transaction's foreign keys have their locks (see audit.sql).
CREATE FUNCTION penstock_policy_change_mark_due() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
    UPDATE tenants_policychange SET part = part WHERE id = NEW.id;
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER policy_change_mark_due AFTER INSERT ON tenants_policychange
DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION penstock_policy_change_mark_due();

CREATE FUNCTION penstock_assign_policy_version() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE number bigint;
BEGIN
    INSERT INTO tenants_policyversion AS current (id, version, mark) VALUES (1, 1, NEW.id)
    ON CONFLICT (id) DO UPDATE SET version = current.version + 1, mark = NEW.id
    RETURNING current.version INTO number;
    UPDATE tenants_policychange SET version = number WHERE id = NEW.id;
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER assign_policy_version AFTER UPDATE ON tenants_policychange
DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (NEW.version IS NULL)
EXECUTE FUNCTION penstock_assign_policy_version();
