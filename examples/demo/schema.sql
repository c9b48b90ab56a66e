-- A small hotel. Everything that must not happen twice is here: a room taken, money charged, a mail sent.
-- No table has a constraint that would stop a repetition: that is left to pg_idem.

CREATE EXTENSION pg_idem;

CREATE TABLE accounts     (account text PRIMARY KEY, opening integer NOT NULL,
                           balance integer NOT NULL CHECK (balance >= 0));
CREATE TABLE rooms        (room text PRIMARY KEY, total integer NOT NULL, free integer NOT NULL CHECK (free >= 0),
                           price integer NOT NULL);
CREATE TABLE reservations (id bigint GENERATED ALWAYS AS IDENTITY, account text NOT NULL, key text NOT NULL,
                           room text NOT NULL, nights integer NOT NULL, price integer NOT NULL);
CREATE TABLE invoices     (id bigint GENERATED ALWAYS AS IDENTITY, account text NOT NULL, key text NOT NULL,
                           amount integer NOT NULL, paid boolean NOT NULL DEFAULT false);
CREATE TABLE mails        (message text NOT NULL, text text NOT NULL);

-- Somebody else's books: a card processor. It remembers a key for a day, and after that charges again.
CREATE TABLE card_charges (id bigint GENERATED ALWAYS AS IDENTITY, key uuid NOT NULL, operation text NOT NULL, amount integer NOT NULL,
                           at timestamptz NOT NULL DEFAULT idem_now());
CREATE FUNCTION charge_card(key_ uuid, operation_ text, amount_ integer) RETURNS bigint LANGUAGE sql AS $$
    INSERT INTO card_charges (key, operation, amount)
    SELECT key_, operation_, amount_
     WHERE NOT EXISTS (SELECT FROM card_charges WHERE key = key_ AND at > idem_now() - interval '1 day');
    SELECT max(id) FROM card_charges WHERE key = key_;
$$;

INSERT INTO accounts VALUES ('ada', 5000, 5000), ('bob', 5000, 5000);
INSERT INTO rooms VALUES ('sea view', 40, 40, 100);

-- The operation: ordinary code, almost without a word about retries. idem_run calls it, and records what it returns in
-- the same transaction as what it changes.
CREATE FUNCTION reserve(request jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    operation record;
    cost      integer;
    number    bigint;
BEGIN
    SELECT * INTO operation FROM idem_current();    -- whose request this is, and its key

    UPDATE rooms SET free = free - 1
     WHERE room = request->>'room' AND free > 0
    RETURNING price * (request->>'nights')::integer INTO cost;
    IF NOT FOUND THEN
        PERFORM idem_reject('{"error": "sold out"}', 409);      -- a final answer too, recorded and replayed
    END IF;

    UPDATE accounts SET balance = balance - cost WHERE account = operation.account;
    INSERT INTO reservations (account, key, room, nights, price)
    VALUES (operation.account, operation.key, request->>'room', (request->>'nights')::integer, cost)
    RETURNING id INTO number;
    PERFORM idem_publish('reservation', number::text, 'made', jsonb_build_object('reservation', number));

    RETURN jsonb_build_object('reservation', number, 'charged', cost);
END $$;

-- What must be true whatever went wrong.
CREATE VIEW invariants AS
SELECT 'each completed operation has its reservation, and no reservation is without one' AS invariant,
       NOT EXISTS (SELECT FROM reservations
                     FULL JOIN (SELECT account, key, settled_as FROM idempotent_operations
                                 WHERE action = 'reserve' AND settled_as = 'completed') o USING (account, key)
                    WHERE id IS NULL OR settled_as IS NULL) AS holds
UNION ALL
SELECT 'no key has two reservations, two invoices or two mails',
       NOT EXISTS (SELECT FROM reservations GROUP BY account, key HAVING count(*) > 1)
       AND NOT EXISTS (SELECT FROM invoices GROUP BY account, key HAVING count(*) > 1)
       AND NOT EXISTS (SELECT FROM mails GROUP BY message HAVING count(*) > 1)
UNION ALL
SELECT 'rooms free and rooms taken add up to the rooms there are',
       NOT EXISTS (SELECT FROM rooms h
                    WHERE free + (SELECT count(*) FROM reservations r WHERE r.room = h.room) <> total)
UNION ALL
SELECT 'every account paid for what it has, once',
       NOT EXISTS (SELECT FROM accounts a
                    WHERE opening - balance
                          <> COALESCE((SELECT sum(price) FROM reservations r WHERE r.account = a.account), 0)
                           + COALESCE((SELECT sum(amount) FROM invoices i WHERE i.account = a.account AND paid), 0))
UNION ALL
SELECT 'each reservation has its mail, and no mail is without one',
       NOT EXISTS (SELECT FROM reservations r FULL JOIN (SELECT text FROM mails WHERE text LIKE 'Reservation %') m ON m.text = 'Reservation ' || r.id
                    WHERE r.id IS NULL OR m.text IS NULL)
UNION ALL
SELECT 'no card is charged twice for one operation',
       NOT EXISTS (SELECT FROM card_charges GROUP BY operation HAVING count(*) > 1)
UNION ALL
SELECT 'nothing is left half done',
       NOT EXISTS (SELECT FROM idem_outbox) AND NOT EXISTS (SELECT FROM idem_effects WHERE state IN ('call', 'unknown')) AND
       NOT EXISTS (SELECT FROM idempotent_operations WHERE settled_as IS NULL)
       AND NOT EXISTS (SELECT FROM invoices WHERE NOT paid);

-- The application's login. Of pg_idem it may call what it is granted, and nothing else.
CREATE ROLE app LOGIN;
ALTER ROLE app SET statement_timeout = '60s';     -- nothing here waits that long: fail rather than hang
GRANT SELECT, INSERT, UPDATE ON card_charges TO app;
GRANT SELECT, INSERT, UPDATE ON accounts, rooms, reservations, invoices, mails TO app;
GRANT EXECUTE ON FUNCTION idem_run, idem_current, idem_reject, idem_lookup, idem_claim, idem_complete, idem_checkpoint,
    idem_guard, idem_renew, idem_release, idem_once, idem_publish, idem_effect, idem_effect_report, idem_now TO app;
CREATE ROLE relay LOGIN;
GRANT EXECUTE ON FUNCTION idem_outbox_take, idem_outbox_ack TO relay;
