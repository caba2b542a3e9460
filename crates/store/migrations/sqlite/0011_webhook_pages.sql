-- Pages of one receiver's deliveries.
CREATE INDEX webhook_deliveries_listed ON webhook_deliveries (webhook_id, seq);
