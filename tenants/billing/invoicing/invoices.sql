-- What is issued stays as it is, whoever asks: the triggers hold for every role.

-- An invoice begins as a draft. From its issue on only its state moves, and what says how.
CREATE FUNCTION penstock_invoice_guard() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
    -- Columns that may change after the issue: with the state, and at the payment provider.
    of_state CONSTANT text[] := ARRAY['state', 'paid_at', 'voided_at', 'void_reason'];
    of_provider CONSTANT text[] := ARRAY['provider', 'provider_reference', 'payment_url'];
    fixed text[] := of_provider;
    lines_nanos numeric;
BEGIN
    IF TG_OP = 'INSERT' THEN
        IF NEW.state <> 'draft' THEN
            RAISE check_violation USING CONSTRAINT = 'invoice_begins_as_draft', MESSAGE = format(
                'an invoice begins as a draft, this one is %s', NEW.state);
        END IF;
        RETURN NEW;
    END IF;
    IF TG_OP = 'DELETE' THEN
        IF OLD.state <> 'draft' THEN
            RAISE check_violation USING CONSTRAINT = 'invoice_kept_once_issued', MESSAGE = format(
                'invoice %s is %s and cannot be deleted; only a draft can', OLD.number, OLD.state);
        END IF;
        RETURN OLD;
    END IF;
    IF OLD.state = 'draft' AND NEW.state = 'draft' THEN
        RETURN NEW;
    END IF;
    IF (OLD.state, NEW.state) NOT IN (
        ('draft', 'issued'), ('issued', 'issued'), ('issued', 'paid'), ('issued', 'void'),
        ('paid', 'paid'), ('void', 'void')
    ) THEN
        RAISE check_violation USING CONSTRAINT = 'invoice_state_order', MESSAGE = format(
            'an invoice that is %s does not become %s', OLD.state, NEW.state);
    END IF;
    IF OLD.state = 'draft' THEN
        SELECT coalesce(sum(amount_nanos), 0) INTO lines_nanos
            FROM billing_invoiceline WHERE invoice_id = OLD.id;
        IF lines_nanos <> NEW.due_nanos THEN
            RAISE check_violation USING CONSTRAINT = 'invoice_lines_add_up', MESSAGE = format(
                'the lines of invoice %s come to %s nano-dollars, its sum is %s',
                NEW.number, lines_nanos, NEW.due_nanos);
        END IF;
        RETURN NEW;
    END IF;
    IF NEW.state <> OLD.state THEN
        fixed := fixed || of_state;
    END IF;
    IF to_jsonb(NEW) - fixed <> to_jsonb(OLD) - fixed THEN
        RAISE check_violation USING CONSTRAINT = 'invoice_fixed_once_issued', MESSAGE = format(
            'invoice %s is %s and cannot be edited; post an adjustment for the next one',
            OLD.number, OLD.state);
    END IF;
    RETURN NEW;
END $$;

CREATE TRIGGER invoice_guard BEFORE INSERT OR UPDATE OR DELETE ON billing_invoice
FOR EACH ROW EXECUTE FUNCTION penstock_invoice_guard();

CREATE FUNCTION penstock_invoice_line_guard() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
    of_line uuid := CASE TG_OP WHEN 'INSERT' THEN NEW.invoice_id ELSE OLD.invoice_id END;
    of_invoice record;
BEGIN
    SELECT state, number INTO of_invoice FROM billing_invoice WHERE id = of_line;
    IF TG_OP = 'UPDATE' THEN
        RAISE check_violation USING CONSTRAINT = 'invoice_line_never_changed', MESSAGE =
            'a line of an invoice is never changed; discard the draft and make it anew';
    END IF;
    IF of_invoice.state IS DISTINCT FROM 'draft' THEN
        RAISE check_violation USING CONSTRAINT = 'invoice_lines_fixed_once_issued', MESSAGE = format(
            'invoice %s is %s; its lines stay as they are', of_invoice.number, of_invoice.state);
    END IF;
    RETURN CASE TG_OP WHEN 'DELETE' THEN OLD ELSE NEW END;
END $$;

CREATE TRIGGER invoice_line_guard BEFORE INSERT OR UPDATE OR DELETE ON billing_invoiceline
FOR EACH ROW EXECUTE FUNCTION penstock_invoice_line_guard();

-- Numbers ascend by one and are never taken back.
CREATE FUNCTION penstock_invoice_counter_guard() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    IF TG_OP = 'DELETE' OR NEW.last <> OLD.last + 1
            OR (NEW.seller_id, NEW.year) <> (OLD.seller_id, OLD.year) THEN
        RAISE check_violation USING CONSTRAINT = 'invoice_numbers_ascend', MESSAGE = format(
            'invoice numbers of %s only ascend by one, from %s', OLD.year, OLD.last);
    END IF;
    RETURN NEW;
END $$;

CREATE TRIGGER invoice_counter_guard BEFORE UPDATE OR DELETE ON billing_invoicecounter
FOR EACH ROW EXECUTE FUNCTION penstock_invoice_counter_guard();

-- Payments, and what providers told us, are added and never changed.
CREATE FUNCTION penstock_payment_guard() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    RAISE check_violation USING CONSTRAINT = TG_NAME, TABLE = TG_TABLE_NAME,
        MESSAGE = format('%s is never changed, only added to', TG_TABLE_NAME);
END $$;

CREATE TRIGGER payment_guard BEFORE UPDATE OR DELETE ON billing_payment
FOR EACH ROW EXECUTE FUNCTION penstock_payment_guard();
CREATE TRIGGER payment_guard BEFORE UPDATE OR DELETE ON billing_providerevent
FOR EACH ROW EXECUTE FUNCTION penstock_payment_guard();

-- Drafts are the operator's: no tenant sees one.
CREATE POLICY no_drafts ON billing_invoice AS RESTRICTIVE FOR SELECT TO penstock_web
    USING (state <> 'draft');
