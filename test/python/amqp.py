"""What the tests ask of a broker: amqp.py URL publish QUEUE MESSAGE-ID BODY, get QUEUE (message id and body of each), delete QUEUE,
consumers QUEUE, count QUEUE (how many consumers, messages it has)."""
import sys

import pika

url, what, queue, *rest = sys.argv[1:]
connection = pika.BlockingConnection(pika.URLParameters(url))
channel = connection.channel()
if what == "publish":
    channel.confirm_delivery()
    channel.basic_publish("", queue, rest[1].encode(), pika.BasicProperties(message_id=rest[0] or None, delivery_mode=2, headers={"aggregateid": "a", "type": "t"}))
elif what == "consumers":
    print(channel.queue_declare(queue, passive=True).method.consumer_count)
elif what == "count":
    print(channel.queue_declare(queue, passive=True).method.message_count)
elif what == "delete":
    channel.queue_delete(queue)
else:
    while (found := channel.basic_get(queue, auto_ack=True))[0]:
        print(found[1].message_id, found[2].decode())
connection.close()
