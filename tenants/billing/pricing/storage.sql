-- What storage costs is only ever added to, as the price book is (prices.sql).

CREATE TRIGGER period_guard BEFORE INSERT OR UPDATE ON billing_storageprice
FOR EACH ROW EXECUTE FUNCTION penstock_period_guard();
CREATE TRIGGER append_only BEFORE DELETE OR TRUNCATE ON billing_storageprice
FOR EACH STATEMENT EXECUTE FUNCTION penstock_refuse_write();
ALTER TABLE billing_storageprice ENABLE ALWAYS TRIGGER append_only;
