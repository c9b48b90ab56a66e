-- One payment in one transaction, from psql.
-- prints: claimed; completed
\set account acme
\set key k1
\set request '{"amount": 10}'

BEGIN;
SELECT outcome, outcome IN ('claimed', 'recovered') AS granted
  FROM idem_claim(:'account', 'pay', :'key', request => :'request') \gset
\if :granted
    INSERT INTO payments (account, amount) VALUES (:'account', 10) RETURNING id \gset
    SELECT idem_complete(:'account', 'pay', :'key', result => jsonb_build_object('payment', :id)) \gset
\endif
COMMIT;
\echo :outcome

SELECT outcome FROM idem_claim(:'account', 'pay', :'key', request => :'request');
