-- A version of an adapter is what was validated: its facts are written once, when it becomes ready,
-- and it goes one way through its states. What a worker finds of it then is noted once. Numbers and
-- owners never change, whoever asks.
CREATE OR REPLACE FUNCTION penstock_keep_adapter_version() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE step text := OLD.state || '-' || NEW.state;
BEGIN
    IF (NEW.id, NEW.tenant_id, NEW.adapter_id, NEW.number, NEW.created_at)
        IS DISTINCT FROM (OLD.id, OLD.tenant_id, OLD.adapter_id, OLD.number, OLD.created_at) THEN
        RAISE EXCEPTION 'An adapter version keeps its number and its owner.'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'adapter_version_keeps_identity';
    END IF;
    IF NEW.state <> OLD.state AND step NOT IN (
        'queued-validating', 'queued-refused', 'validating-ready', 'validating-refused',
        'ready-archived', 'ready-refused', 'archived-deleted', 'refused-deleted')
        OR step = 'ready-refused' AND NEW.effect <> 'not_finite' THEN
        RAISE EXCEPTION 'An adapter version that is % does not become %.', OLD.state, NEW.state
            USING ERRCODE = 'check_violation', CONSTRAINT = 'adapter_version_state';
    END IF;
    IF step <> 'validating-ready' AND (
        NEW.opaque_name, NEW.digest, NEW.stored_bytes, NEW.base_digest, NEW.rank, NEW.parameters,
        NEW.ready_at
    ) IS DISTINCT FROM (
        OLD.opaque_name, OLD.digest, OLD.stored_bytes, OLD.base_digest, OLD.rank, OLD.parameters,
        OLD.ready_at) THEN
        RAISE EXCEPTION 'What was validated of an adapter version never changes.'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'adapter_version_never_changes';
    END IF;
    IF step <> 'validating-ready' AND (
        NEW.effect <> OLD.effect AND OLD.effect <> 'unknown'
        OR NEW.warnings <> OLD.warnings AND NOT (OLD.effect = 'unknown' AND NEW.effect = 'none')
        OR NEW.live_at IS DISTINCT FROM OLD.live_at AND OLD.live_at IS NOT NULL) THEN
        RAISE EXCEPTION 'What was found of an adapter version never changes.'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'adapter_version_never_changes';
    END IF;
    IF NEW.salt IS DISTINCT FROM OLD.salt AND OLD.salt IS NOT NULL THEN
        RAISE EXCEPTION 'What is stored of an adapter version was sealed once.'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'adapter_version_never_changes';
    END IF;
    IF NEW.path <> OLD.path AND step <> 'validating-ready'
        AND NOT (NEW.path = '' AND NEW.state IN ('deleted', 'refused')) THEN
        RAISE EXCEPTION 'What is stored of an adapter version stays where it is.'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'adapter_version_never_moves';
    END IF;
    RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER keep_version BEFORE UPDATE ON inference_adapterversion
FOR EACH ROW EXECUTE FUNCTION penstock_keep_adapter_version();

-- An adapter keeps its name and its owner.
CREATE OR REPLACE FUNCTION penstock_keep_adapter() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RAISE EXCEPTION 'An adapter keeps its name and its owner.'
        USING ERRCODE = 'check_violation', CONSTRAINT = 'adapter_keeps_identity';
END $$;
CREATE OR REPLACE TRIGGER keep_adapter BEFORE UPDATE ON inference_adapter
FOR EACH ROW WHEN ((NEW.id, NEW.tenant_id, NEW.slug) IS DISTINCT FROM (OLD.id, OLD.tenant_id, OLD.slug))
EXECUTE FUNCTION penstock_keep_adapter();
