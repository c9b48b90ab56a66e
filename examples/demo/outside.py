"""The cases that reach out of the database: an effect elsewhere, and a message."""
import psycopg2
from psycopg2.extras import Json

from stage import admin, case, check, clock_ahead, connect, rows, tell


def acknowledgement_lost():
    case("An external side effect succeeds, but its acknowledgement is lost")

    def attempt(key):
        """Claims, and says what the processor is about to be asked. Both are committed before it is called."""
        connection = connect()
        claim = rows(connection, """SELECT outcome, token FROM idem_claim('ada', 'card', %s, request => '{"amount": 30}',
                                                                          lease => '10 minutes')""", key)[0]
        effect = rows(connection, """SELECT state, downstream_key FROM idem_effect('ada', 'card', %s, token => %s,
                                            name => 'charge', provider_window => '1 day')""", key, claim.token)[0]
        return connection, claim, effect

    def charge(connection, key, effect):
        return rows(connection, "SELECT charge_card(%s, %s, 30)", effect.downstream_key, key)[0].charge_card

    def settle(connection, key, token):
        rows(connection, """SELECT * FROM idem_complete('ada', 'card', %s, token => %s)""", key, token)

    def report(connection, effect, number):
        rows(connection, "SELECT idem_effect_report(%s, 'confirmed', %s)", effect.downstream_key, Json({"charge": number}))

    for key in "card-1", "card-2":      # a worker that charges, and dies before it hears of it
        connection, _, effect = attempt(key)
        charge(connection, key, effect)
        connection.close()
    with clock_ahead(minutes=11):
        b, b_claim, b_effect = attempt("card-1")
        report(b, b_effect, charge(b, "card-1", b_effect))
        settle(b, "card-1", b_claim.token)
    with clock_ahead(days=2):
        c, c_claim, c_effect = attempt("card-2")
        try:
            settle(c, "card-2", c_claim.token)
            refused = "nothing"
        except psycopg2.DatabaseError as error:
            refused = error.pgcode
        statement = rows(c, "SELECT id FROM card_charges WHERE key = %s", c_effect.downstream_key)
        report(c, c_effect, statement[0].id)
        settle(c, "card-2", c_claim.token)
    charges = [rows(admin, "SELECT count(*) FROM card_charges WHERE operation = %s", key)[0].count
               for key in ("card-1", "card-2")]
    tell(sent="charge a card at a processor that remembers keys for a day; the worker dies before it hears the answer. Twice",
         next=f"11 minutes later the next worker is told: {b_effect.state}, with the same key; the processor knows it, and answers as before",
         late=f"of the other, two days later: {c_effect.state}; it asks for the processor's statement instead of calling, and reports",
         why="the key of the effect is on record before the call; repeating is safe while the processor remembers it, and no "
             "longer; meanwhile nobody can record an outcome that nobody knows")
    check("inside the processor's window: called again under the same key", b_effect.state == "call")
    check("past it: unknown, no second call, and no outcome until somebody reports (IDM11)",
          c_effect.state == "unknown" and refused == "IDM11")
    check("each card was charged once", charges == [1, 1])


def message_with_change():
    case("A committed change must also produce a message")

    def take():
        return rows(connect("relay"), "SELECT receipt, id, payload, deliveries FROM idem_outbox_take(batch => 1000, lease => '1 minute')")

    def deliver(message):
        """The mailer, as in the case before."""
        connection = connect()
        connection.autocommit = False
        if rows(connection, "SELECT idem_once('mailer', 'reservation-made', %s)", message.id)[0].idem_once:
            rows(connection, "INSERT INTO mails VALUES (%s, %s)", message.id, f"Reservation {message.payload['reservation']}")
        connection.commit()
        connection.close()

    made = rows(admin, "SELECT count(*) FROM reservations")[0].count
    first = take()                      # this relay delivers, and dies before it acknowledges
    for message in first:
        deliver(message)
    meanwhile = take()
    with clock_ahead(minutes=2):
        second = take()
    for message in second:
        deliver(message)
    acknowledged = rows(connect("relay"), "SELECT idem_outbox_ack(%s::uuid[])", [message.receipt for message in second])[0].idem_outbox_ack
    mails = rows(admin, "SELECT count(*) FROM mails WHERE text LIKE 'Reservation %%'")[0].count
    tell(sent=f"every reservation so far also published a message, in its own transaction: {made} reservations, {len(first)} messages",
         relay_A=f"delivers {len(first)} to the mailer, and dies before it acknowledges",
         relay_B=f"finds {len(meanwhile)} while A's lease lasts; after it {len(second)}, delivers them again, acknowledges {acknowledged}",
         why="the message is a row of the same transaction, so there is one if and only if there is a reservation; it may be delivered "
             "twice, under the same id, and the mailer knows the id")
    check("a message for each reservation; none from what was rolled back", len(first) == made)
    check("the second relay got the same messages", [m.id for m in second] == [m.id for m in first] and not meanwhile)
    check("one mail for each", mails == made)
