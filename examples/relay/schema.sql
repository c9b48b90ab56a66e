-- What the example's consumer changes: put your own tables and your own handle() in its place.
CREATE TABLE received (
    position  bigint GENERATED ALWAYS AS IDENTITY,
    consumer  text NOT NULL DEFAULT current_setting('application_name'),
    message   uuid NOT NULL,
    aggregate text NOT NULL,
    type      text NOT NULL,
    payload   jsonb
);
