-- The books of the example's shop.
CREATE TABLE card_payments (account text NOT NULL, key text NOT NULL, charge text NOT NULL);
