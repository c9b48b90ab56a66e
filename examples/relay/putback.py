"""Puts dead letters back into the queue that they come from, behind what is there. Their ids stay: what took effect already does not again.

    putback.py NAME [--id ID...]
"""
import argparse
from contextlib import closing

import pika


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", help="of the consumer")
    parser.add_argument("--id", nargs="+", help="only these messages; default: all that are there now")
    parser.add_argument("--broker", default="amqp://localhost", help="URL")
    options = parser.parse_args()
    with closing(pika.BlockingConnection(pika.URLParameters(options.broker))) as broker:
        channel = broker.channel()
        channel.confirm_delivery()
        dead = f"{options.name}.dead"
        for _ in range(channel.queue_declare(dead, passive=True).method.message_count):
            method, properties, body = channel.basic_get(dead)
            if method is None:
                break
            if options.id and properties.message_id not in options.id:
                continue        # not acknowledged: it stays where it is
            channel.basic_publish("", options.name, body, properties, mandatory=True)     # returns when it is confirmed
            channel.basic_ack(method.delivery_tag)
            print(properties.message_id, flush=True)


if __name__ == "__main__":
    main()
