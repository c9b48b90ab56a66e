"""Carries messages from idem_outbox to RabbitMQ. Run as many as you like: each takes what the others do not hold.

A message is acknowledged to the database only after the broker has confirmed it. Where a relay dies does not matter: the
message is handed out again, and consumers see the same message id a second time.
"""
import argparse
import signal
import sys
import time
from collections import deque
from contextlib import closing
from typing import Any

import psycopg2
from pika.exceptions import AMQPError, ChannelClosedByBroker
from psycopg2.extras import NamedTupleCursor

from publisher import Publisher

stopping = False


def call(database: Any, sql: str, *arguments: Any) -> list[Any]:
    with database.cursor(cursor_factory=NamedTupleCursor) as cursor:
        cursor.execute(sql, arguments)      # a transaction of its own
        return cursor.fetchall() if cursor.description else []


def take(database: Any, options: argparse.Namespace) -> list[Any]:
    # the payload as text: no number in it changes on its way
    return call(database, """SELECT receipt, id, aggregatetype, aggregateid, type, payload::text AS payload, headers, created_at, deliveries
                               FROM idem_outbox_take(batch => %s, lease => make_interval(secs => %s), aggregatetypes => %s::text[])""",
                options.batch, options.lease, options.types)


def ack(database: Any, receipts: list[str]) -> None:
    call(database, "SELECT * FROM idem_outbox_ack(%s::uuid[])", receipts)


def nack(database: Any, receipts: list[str], error: str | None = None, retry_after: float = 0) -> None:
    """With an error it is a failed attempt, and many of them park the message; without, it is only given back."""
    call(database, "SELECT * FROM idem_outbox_nack(%s::uuid[], retry_after => make_interval(secs => %s), error => %s)",
         receipts, retry_after, error)


def retry_after(deliveries: int, options: argparse.Namespace) -> float:
    """Doubled each time. (One that was handed out behind another's failure has been delivered more often: it waits longer than it must.)"""
    return min(options.retry_after * 2 ** min(deliveries - 1, 30), options.max_retry_after)


def deliver(database: Any, broker: Publisher, messages: list[Any], end: float, one_by_one: bool, options: argparse.Namespace) -> None:
    """At most one message of an aggregate is on its way: none overtakes one that is refused or lost."""
    aggregates: dict[tuple[str, str], deque[Any]] = {}
    for m in messages:
        aggregates.setdefault((m.aggregatetype, m.aggregateid), deque()).append(m)
    confirmed, back = [], []
    while aggregates and broker.alive and not stopping and (left := end - time.monotonic()) > 0:
        answers = broker.publish([queue[0] for queue in aggregates.values()][:1 if one_by_one else None], left)
        for aggregate, queue in list(aggregates.items()):
            if queue[0].id not in answers:
                continue
            error = answers[queue[0].id]
            if error is None:
                confirmed.append(queue.popleft().receipt)
            else:
                m = queue.popleft()
                print(f"relay: {m.id}: {error}", file=sys.stderr, flush=True)
                nack(database, [m.receipt], error, retry_after(m.deliveries, options))
            if error is not None or not queue:
                back += [m.receipt for m in aggregates.pop(aggregate)]
    back += [m.receipt for queue in aggregates.values() for m in queue]
    if confirmed:
        ack(database, confirmed)
    if back:
        nack(database, back)


def relay(database: Any, broker: Publisher, one_by_one: bool, options: argparse.Namespace) -> None:
    """Until one of the two is lost."""
    call(database, "LISTEN pg_idem_outbox")     # wakes us where pg_idem.outbox_notify is on
    pause = 0.01
    while broker.alive and not stopping:
        end = time.monotonic() + options.lease      # the lease begins with the call, not with its answer
        if messages := take(database, options):
            deliver(database, broker, messages, end, one_by_one, options)
            pause, one_by_one = 0.01, False
        else:
            broker.rest(pause, database.fileno())
            database.poll()
            if database.notifies:
                database.notifies.clear()
                pause = 0.01
            pause = min(pause * 2, options.pause)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--database", default="", help="connection string; default: PGHOST and so on")
    parser.add_argument("--broker", default="amqp://localhost", help="URL")
    parser.add_argument("--exchange", default="outbox", help="topic exchange; the routing key is the aggregatetype")
    parser.add_argument("--types", nargs="+", help="only these aggregatetypes")
    parser.add_argument("--batch", type=int, default=100)
    parser.add_argument("--lease", type=float, default=30, help="seconds; longer than a batch takes")
    parser.add_argument("--retry-after", type=float, default=5, help="seconds until a refused message is tried again; doubled each time")
    parser.add_argument("--max-retry-after", type=float, default=60, help="seconds; that many at most")
    parser.add_argument("--pause", type=float, default=1, help="seconds at most between two looks at an empty outbox")
    options = parser.parse_args()

    def stop(*_: Any) -> None:
        global stopping
        stopping = True

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    lost: Any = None
    while not stopping:
        try:
            with closing(psycopg2.connect(options.database)) as database, closing(Publisher(options.broker, options.exchange)) as broker:
                database.autocommit = True
                # A broker that closes the channel does not say because of which message.
                relay(database, broker, isinstance(lost, ChannelClosedByBroker), options)
                lost = broker.lost
        except (psycopg2.Error, AMQPError) as error:
            lost = error
        if not stopping:
            print(f"relay: {lost!r}; trying again", file=sys.stderr, flush=True)
            time.sleep(options.pause)


if __name__ == "__main__":
    main()
