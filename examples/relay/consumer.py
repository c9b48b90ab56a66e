"""Takes messages from a RabbitMQ queue, and makes each take effect once, in the order of the queue.

A message is acknowledged to the broker only after its effect is committed. Where a consumer dies does not matter: the message is
delivered again, and idem_once_batch knows it.
"""
import argparse
import hashlib
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any, NamedTuple

import pika
import psycopg2
from pika.exceptions import AMQPError

stopping = False


class Message(NamedTuple):
    tag: int                # the broker's, for the acknowledgement
    properties: Any
    body: bytes


# ---- the effect: your code

def handle(cursor: Any, message: Message) -> None:
    """Nothing but the database, or it may happen twice. Raises where the message cannot be dealt with."""
    headers = message.properties.headers
    cursor.execute("INSERT INTO received (message, aggregate, type, payload) VALUES (%s, %s, %s, %s)",
                   (message.properties.message_id, headers["aggregateid"], headers["type"], message.body.decode() or None))


# ---- once

def consume(database: Any, name: str, batch: list[Message]) -> list[Message]:
    """What is new takes effect, in one transaction with the record that it did. Returns the mismatches: an id seen with another body."""
    with database, database.cursor() as cursor:     # commits, or rolls back
        cursor.execute("SELECT key, verdict FROM idem_once_batch(account => %s, action => 'consume', keys => %s::text[], fingerprints => %s::bytea[])",
                       (name, [m.properties.message_id for m in batch], [hashlib.sha256(m.body).digest() for m in batch]))
        verdicts = dict(cursor.fetchall())
        mismatches = [m for m in batch if verdicts[m.properties.message_id] == "mismatch"]
        for m in batch:
            if verdicts[m.properties.message_id] == "first":
                verdicts[m.properties.message_id] = "duplicate"     # where it comes twice in the batch
                handle(cursor, m)
    return mismatches


def consume_alone(database: Any, channel: Any, message: Message, options: argparse.Namespace) -> list[Message]:
    """Tried again where it is, so that those behind do not overtake it; given up after so many tries."""
    for _ in range(options.tries):
        try:
            return consume(database, options.name, [message])
        except Exception as error:      # whatever it is: poison must not stop the queue
            if database.closed:
                raise
            print(f"{options.name}: {message.properties.message_id}: {error!r}", file=sys.stderr, flush=True)
            channel.connection.sleep(options.pause)
    return [message]


def work(database: Any, channel: Any, batch: list[Message], options: argparse.Namespace) -> None:
    try:
        dead = consume(database, options.name, batch)
    except Exception:
        if database.closed:
            raise
        # One of them did it. All is rolled back: each by itself.
        dead = [d for m in batch for d in consume_alone(database, channel, m, options)]
    settle(channel, batch, dead)


# ---- the broker

def settle(channel: Any, batch: list[Message], dead: list[Message]) -> None:
    for m in batch:
        if m in dead:
            channel.basic_reject(m.tag, requeue=False)      # to the dead-letter queue
        else:
            channel.basic_ack(m.tag)


def declare(channel: Any, options: argparse.Namespace) -> None:
    channel.exchange_declare(options.exchange, "topic", durable=True)
    channel.queue_declare(f"{options.name}.dead", durable=True)
    # One active consumer at a time keeps the order; the others stand by.
    channel.queue_declare(options.name, durable=True, arguments={"x-single-active-consumer": True, "x-dead-letter-exchange": "",
                                                                 "x-dead-letter-routing-key": f"{options.name}.dead"})
    for aggregatetype in options.types:
        channel.queue_bind(options.name, options.exchange, aggregatetype)
    channel.basic_qos(prefetch_count=2 * options.batch)


def batches(channel: Any, options: argparse.Namespace) -> Iterator[list[Message]]:
    """What has arrived, and no more: nothing waits for a batch to be full."""
    batch: list[Message] = []
    for method, properties, body in channel.consume(options.name, inactivity_timeout=0.2):
        if stopping:
            return                      # what is not acknowledged goes back to the queue
        if method:
            batch.append(Message(method.delivery_tag, properties, body))
        if batch and (len(batch) >= options.batch or not channel.get_waiting_message_count()):
            yield batch
            batch = []


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", help="of the consumer and of its queue")
    parser.add_argument("--types", nargs="+", default=["#"], help="aggregatetypes; default: all")
    parser.add_argument("--database", default="", help="connection string; default: PGHOST and so on")
    parser.add_argument("--broker", default="amqp://localhost", help="URL")
    parser.add_argument("--exchange", default="outbox")
    parser.add_argument("--batch", type=int, default=100)
    parser.add_argument("--tries", type=int, default=3, help="of a message by itself, until it is dead-lettered")
    parser.add_argument("--pause", type=float, default=1, help="seconds between two tries")
    options = parser.parse_args()

    def stop(*_: Any) -> None:
        global stopping
        stopping = True

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    while not stopping:
        try:
            with (closing(psycopg2.connect(options.database, application_name=options.name)) as database,
                  closing(pika.BlockingConnection(pika.URLParameters(options.broker))) as broker):
                channel = broker.channel()
                declare(channel, options)
                for batch in batches(channel, options):
                    work(database, channel, batch, options)
        except (psycopg2.Error, AMQPError) as error:
            print(f"{options.name}: {error!r}; trying again", file=sys.stderr, flush=True)
            time.sleep(options.pause)


if __name__ == "__main__":
    main()
