# From a transaction through the outbox, a relay and RabbitMQ into the transactions of consumers, while every part of it is killed
# again and again: each committed message takes effect once for each consumer, in order for each aggregate, and no other.
use strict;
use warnings;

use FindBin;
use IPC::Run;
use lib "$FindBin::RealBin/../perl";

use PgIdemTest;
use PgIdemTest::Broker;
use PgIdemTest::Crew;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $crew = PgIdemTest::Crew->new('relay', 'pika', 'psycopg2') or plan skip_all => 'python3 with pika and psycopg2 is not installed';
my $broker = PgIdemTest::Broker->new or plan skip_all => 'RabbitMQ is not installed';
my $url = $broker->url;
my $messages = $ENV{PG_IDEM_LARGE} ? 100_000 : 20_000;
my $rounds = 4;

# A killed relay leaves a lease that runs out: that counts as a failure, and here it must not park anything.
my $node = new_node('relay', worker => 0, conf => "pg_idem.outbox_max_attempts = 0\npg_idem.outbox_notify = on\nlog_statement = none\n");
my $s = session($node);
$s->ok(slurp_file("$crew->{programs}/schema.sql"));
$s->ok($crew->grants);
$s->ok(
	q{
	CREATE TABLE aggregates (id text PRIMARY KEY, type text, n integer NOT NULL DEFAULT 0);
	INSERT INTO aggregates SELECT 'a' || i, CASE WHEN i % 2 = 0 THEN 'order' ELSE 'customer' END FROM generate_series(1, 300) i;
	CREATE TABLE sent (message uuid, aggregate text, type text, n integer);
	-- One message for each of so many aggregates, numbered within the aggregate; now and then a savepoint is undone.
	CREATE FUNCTION produce(messages integer) RETURNS void LANGUAGE plpgsql AS $$
	DECLARE a record; undo boolean;
	BEGIN
		FOR a IN SELECT id FROM (SELECT id FROM aggregates ORDER BY random() LIMIT messages) x ORDER BY id LOOP
			undo := random() < 0.05;
			BEGIN
				WITH next AS (UPDATE aggregates SET n = n + 1 WHERE id = a.id RETURNING *),
				     message AS (SELECT id, type, n, idem_publish(type, id, 'step', jsonb_build_object('n', n, 'price', 1.10), '{"trace": "t"}') AS message FROM next)
				INSERT INTO sent SELECT message, id, type, n FROM message WHERE NOT undo;
				IF undo THEN RAISE 'undo' USING ERRCODE = 'P0001'; END IF;
			EXCEPTION WHEN SQLSTATE 'P0001' THEN NULL;
			END;
		END LOOP;
	END $$;
});

# What it prints; nothing where it fails.
sub amqp
{
	my (@arguments) = @_;
	my ($out, $err) = ('', '');
	IPC::Run::run [ $crew->{python}, "$crew->{tests}/amqp.py", $url, @arguments ], '>', \$out, '2>', \$err or return '';
	chomp $out;
	return $out;
}

# Each program as the role that the README gives it.
my ($as_relay, $as_mailer) = map { [ '--database', $node->connstr('postgres') . " user=$_", '--broker', $url, '--pause', '0.2' ] } 'relay', 'mailer';
my %consumers = (shipping => [ '--types', 'order' ], audit => []);
my @relay_dies = ('take before', 'take after', 'properties after', 'publish after', 'ack before', 'ack after');
my @consumer_dies = ('consume before', 'handle before', 'handle after', 'settle before', 'settle after');
my @everywhere = (@relay_dies, @consumer_dies);
foreach my $name (sort keys %consumers)
{
	$crew->hire("$name $_" => [ 'consumer.py', $name, @$as_mailer, '--batch', '200', @{ $consumers{$name} } ], CHAOS => 4, CHAOS_POINTS => join ',', @consumer_dies) foreach 1, 2;
}
# Who comes later misses what was published before.
$crew->tend_until(sub { (amqp('consumers', $_) || 0) > 0 }, "$_ to have a queue") foreach sort keys %consumers;
$crew->hire("relay $_" => [ 'relay.py', @$as_relay, '--lease', '1' ], CHAOS => 4, CHAOS_POINTS => join ',', @relay_dies) foreach 1 .. 2;

# ---- producers commit and roll back; broker and database crash

my $undelivered = q{SELECT (SELECT count(*) FROM idem_outbox)
	+ (SELECT count(*) FROM sent) + (SELECT count(*) FROM sent WHERE type = 'order') - (SELECT count(*) FROM received)};
my $per_round = int($messages / $rounds / 20 / 4 / 0.8 / 0.95) + 1;
# More rounds if too many transactions were rolled back, or somebody has not died everywhere yet.
my $sent = sub { return $s->ok('SELECT count(*) FROM sent'); };
my $missing = sub { my $deaths = $crew->deaths; return grep { !$deaths->{$_} } @everywhere; };
my $end = time + $PostgreSQL::Test::Utils::timeout_default;
for (my $round = 1; $round <= $rounds || $sent->() < $messages || time < $end && $missing->(); $round++)
{
	my $script = PostgreSQL::Test::Utils::tempdir() . '/produce';
	append_to_file($script, "\\set r random(1, 10)\nBEGIN;\nSELECT produce(20);\n\\if :r > 2\nCOMMIT;\n\\else\nROLLBACK;\n\\endif\n");
	my $producers = IPC::Run::start [ 'pgbench', '-n', '-c', 4, '-t', $round <= $rounds ? $per_round : 20, '-f', $script, '-h', $node->host, '-p', $node->port, 'postgres' ], '>', \my $out, '2>', \my $err;
	# It raises where they end in between.
	$crew->tend_until(sub { eval { $producers->pump_nb }; !$producers->pumpable }, 'the producers');
	$producers->finish;
	like($out, qr/number of failed transactions: 0 /, "producers, round $round") or diag $err;
	if ($round == 2)
	{
		$broker->kill9;
		$broker->start;
	}
	if ($round == 3)
	{
		$s->quit;
		$node->stop('immediate');
		$node->start;
		$s = session($node);
	}
}
$crew->tend_until(sub { $s->ok($undelivered) <= 0 }, 'the last message');
my $ended = $crew->dismiss;
is_deeply([ grep { $ended->{$_} !~ /^(?:0|9|15)$/ } keys %$ended ], [], 'SIGTERM ends each of them, or it has just started or died');

# ---- what is true after all that

cmp_ok($sent->(), '>=', $messages, 'messages were sent');
note($sent->(), ' messages');
my $wanted = q{(SELECT 'audit' AS consumer, * FROM sent UNION ALL SELECT 'shipping', * FROM sent WHERE type = 'order') w};
is($s->ok("SELECT count(*) FROM $wanted LEFT JOIN received r USING (consumer, message) WHERE r.message IS NULL"), '0', 'G10: every committed message took effect at every consumer');
is($s->ok("SELECT count(*) FROM received r LEFT JOIN $wanted USING (consumer, message) WHERE w.message IS NULL"), '0', 'G10: no message of what was rolled back was seen');
is($s->ok('SELECT count(*) FROM (SELECT FROM received GROUP BY consumer, message HAVING count(*) > 1) x'), '0', 'G10: none took effect twice');
my $seen_by = q{(SELECT *, xmin, (payload ->> 'n')::integer AS n, row_number() OVER (PARTITION BY consumer, aggregate ORDER BY position) AS place FROM received) x};
is($s->ok("SELECT count(*) FROM $seen_by WHERE n <> place"), '0', 'G10: each consumer saw each aggregate in order')
  or diag($s->ok("SELECT consumer, aggregate, string_agg(n || '@' || position || '#' || xmin, ', ' ORDER BY position) FILTER (WHERE n <> place)"
		  . " FROM $seen_by GROUP BY consumer, aggregate HAVING bool_or(n <> place) ORDER BY min(position) FILTER (WHERE n <> place) LIMIT 10"));
is($s->ok("SELECT count(*) FROM received r JOIN sent s USING (message) WHERE r.aggregate <> s.aggregate OR r.type <> 'step' OR r.payload::text <> '{\"n\": ' || s.n || ', \"price\": 1.10}'"), '0', 'G10: as it was published');
my $deaths = $crew->deaths;
note join ', ', map { "$_ x $deaths->{$_}" } sort keys %$deaths;
cmp_ok($deaths->{$_} // 0, '>', 0, "somebody died: $_")
  foreach @everywhere;
is($s->ok('SELECT (SELECT count(*) FROM idem_seen) - (SELECT count(*) FROM received)'), '0', 'G10: what is remembered is what took effect');

my $logged = sub { return join '', map { my $log = "$PostgreSQL::Test::Utils::log_path/$_.log"; -e $log ? slurp_file($log) : '' } @_; };
my $said = $logged->(map { ("$_ 1", "$_ 2") } sort keys %consumers);
like($said, qr/(?:StreamLost|ConnectionClosed|AMQPConnection|ConnectionReset)\w*\W.*trying again/, 'the broker was lost: consumers say why');
unlike($said, qr/WrongState|Traceback/, 'and not what came of it');

# ---- consumers: another body under a known id, and a message that cannot be dealt with

my @id = map { sprintf 'aaaaaaaa-0000-4000-8000-%012d', $_ } 0 .. 9;
amqp('publish', 'shipping', @$_) foreach [ $id[1], '{"n": 1}' ], [ $id[1], '{"n": 2}' ], [ $id[2], '{"poison": true}' ], [ $id[3], '{"n": 3}' ], [ '', '{}' ], [ $id[1], '{"n": 1}' ];
$s->ok(q{TRUNCATE received; ALTER TABLE received ADD CHECK (payload ->> 'poison' IS NULL)});
$crew->hire(shipping => [ 'consumer.py', 'shipping', @$as_mailer, '--tries', '2', '--types', 'order' ]);
my $seen = q{SELECT string_agg(payload ->> 'n', ' ' ORDER BY position) FROM received};
$crew->tend_until(sub { $s->ok($seen) eq '1 3' }, 'what comes after the poison');
my @dead;
$crew->tend_until(sub { push @dead, split /\n/, amqp('get', 'shipping.dead'); @dead == 3 }, 'the dead letters');
is_deeply(\@dead, [ "$id[1] {\"n\": 2}", "$id[2] {\"poison\": true}", 'None {}' ], 'G10: a mismatch, poison, and a message without id are dead-lettered');
is_deeply($crew->dismiss, { shipping => 0 }, 'the consumer ends well');
is($s->ok($seen), '1 3', 'G10: and nothing else took effect');
like($logged->('shipping'), qr/$id[1]: dead-lettered: .*another body.*$id[2]: dead-lettered: CheckViolation/s, 'it says so');

# ---- consumers: what is not the fault of a message

$s->ok(q{SET default_transaction_read_only = off; TRUNCATE received; REVOKE INSERT ON received FROM mailer});
my @consumer = ('consumer.py', 'shipping', @$as_mailer, '--tries', '2', '--types', 'order');
my $before = $logged->('shipping');
my $new_log = sub { return substr $logged->('shipping'), length $before; };
$crew->hire(shipping => \@consumer);
amqp('publish', 'shipping', $id[$_], qq({"n": $_})) foreach 4, 5;
$crew->tend_until(sub { (() = $new_log->() =~ /wait: InsufficientPrivilege/g) > 4 }, 'the consumer to try more often than --tries');
$s->ok('GRANT INSERT ON received TO mailer');
$crew->tend_until(sub { $s->ok($seen) eq '4 5' }, 'the grant');
$s->ok('ALTER SYSTEM SET default_transaction_read_only = on; SELECT pg_reload_conf()');
wait_until(session($node), 'SHOW default_transaction_read_only', 'on');
amqp('publish', 'shipping', $id[6], '{"n": 6}');
$crew->tend_until(sub { $new_log->() =~ /ReadOnlySqlTransaction.*session is read-only.*session is read-only.*session is read-only/s }, 'the consumer to look for a primary');
$s->ok('ALTER SYSTEM RESET default_transaction_read_only; SELECT pg_reload_conf()');
$crew->tend_until(sub { $s->ok($seen) eq '4 5 6' }, 'a primary');
is(amqp('count', 'shipping.dead'), '0', 'G10: nothing was dead-lettered meanwhile');
is_deeply($crew->dismiss, { shipping => 0 }, 'the consumer ends well');

# ---- consumers: one that stops gives back what it has before the next one is given what comes later

$s->ok('TRUNCATE received; REVOKE INSERT ON received FROM mailer');
my $waits = sub { my ($name) = @_; return $logged->($name) =~ /wait: InsufficientPrivilege/; };
amqp('publish', 'shipping', sprintf('bbbbbbbb-0000-4000-8000-%012d', $_), qq({"n": $_})) foreach 1 .. 10;
$crew->hire('shipping first' => [ @consumer, '--batch', '2' ]);
$crew->tend_until(sub { $waits->('shipping first') }, 'the first consumer to have some messages');
$crew->hire('shipping second' => [ @consumer, '--batch', '2' ]);
$crew->tend_until(sub { amqp('consumers', 'shipping') eq '2' }, 'another to stand by');
is_deeply($crew->dismiss('shipping first'), { 'shipping first' => 0 }, 'the first one is stopped');
$crew->tend_until(sub { $waits->('shipping second') }, 'the second one to have some');
$s->ok('GRANT INSERT ON received TO mailer');
$crew->tend_until(sub { $s->ok('SELECT count(*) FROM received') eq '10' }, 'all');
is($s->ok($seen), '1 2 3 4 5 6 7 8 9 10', 'G10: in order');
is_deeply($crew->dismiss, { 'shipping second' => 0 }, 'the consumer ends well');
$s->ok('TRUNCATE received; INSERT INTO received (message, aggregate, type, payload) SELECT gen_random_uuid(), 0, 0, jsonb_build_object(\'n\', n) FROM generate_series(4, 6) n');

# ---- consumers: stopped among messages that fail; dead letters that are put back

$before = $logged->('shipping');
amqp('publish', 'shipping', $id[$_], qq({"poison": true, "n": $_})) foreach 7, 8, 9;
$crew->hire(shipping => [ @consumer, '--pause', 600 ]);
$crew->tend_until(sub { $new_log->() =~ /$id[7]: CheckViolation/ }, 'the first failure');
is_deeply($crew->dismiss, { shipping => 0 }, 'SIGTERM ends a consumer that pauses');
$crew->tend_until(sub { amqp('count', 'shipping') eq '3' }, 'the messages to be back in the queue');
is(amqp('count', 'shipping.dead'), '0', 'G10: not in that of the dead letters');
$crew->hire(shipping => \@consumer);
$crew->tend_until(sub { amqp('count', 'shipping.dead') eq '3' }, 'them to be dead letters');
$s->ok('ALTER TABLE received DROP CONSTRAINT received_payload_check');
my @putback = ('putback.py', 'shipping', '--broker', $url);
is(join(' ', $crew->run([ @putback, '--id', $id[8] ])), "0 $id[8]", 'one is put back');
$crew->tend_until(sub { $s->ok($seen) eq '4 5 6 8' }, 'it to take effect');
is(join(' ', $crew->run(\@putback)), "0 $id[7]\n$id[9]", 'all others are');
$crew->tend_until(sub { $s->ok($seen) eq '4 5 6 8 7 9' }, 'them to take effect');
is(amqp('count', 'shipping.dead'), '0', 'no dead letter is left');
is_deeply($crew->dismiss, { shipping => 0 }, 'the consumer ends well');

# ---- relays: the pauses grow

is(qx($crew->{python} -B -c 'import sys; sys.path.insert(0, "$crew->{programs}"); import relay; from argparse import Namespace
print(*[int(relay.retry_after(n, Namespace(retry_after=5, max_retry_after=60))) for n in range(1, 10)])'), "5 10 20 40 60 60 60 60 60\n", 'pauses of a message, as the README has them');
my $due = q{SELECT failures || ' ' || round(EXTRACT(epoch FROM due_at - clock_timestamp()) / 30) FROM idem_outbox};
$s->ok(q{SELECT idem_publish('unbound', 'u', 'step', '{}')});
amqp('delete', 'audit');    # it would take everything
$crew->hire(relay => [ 'relay.py', @$as_relay, '--retry-after', '120', '--max-retry-after', '100000' ]);
$crew->tend_until(sub { $s->ok($due) eq '1 4' }, 'a pause after the first failure');
$s->ok('UPDATE idem_outbox SET due_at = NULL');
$crew->tend_until(sub { $s->ok($due) eq '2 8' }, 'one twice as long after the second');
is_deeply($crew->dismiss, { relay => 0 }, 'the relay ends well');
$s->ok('DELETE FROM idem_outbox');

# ---- relays: a message that the broker refuses

$s->ok(q{TRUNCATE received; SET pg_idem.outbox_notify = off; ALTER SYSTEM SET pg_idem.outbox_max_attempts = 2; SELECT pg_reload_conf()});
wait_until($s, 'SHOW pg_idem.outbox_max_attempts', '2');
my $publish = sub { my ($type, $id, $n, $size) = @_; return "SELECT idem_publish('$type', '$id', 'step', jsonb_build_object('n', $n, 'x', repeat('x', $size)))"; };
my $parked = 'SELECT count(*) FROM idem_outbox WHERE parked_at IS NOT NULL';
$crew->hire(shipping => [ 'consumer.py', 'shipping', @$as_mailer, '--types', 'order' ]);
$crew->hire(relay => [ 'relay.py', @$as_relay, '--retry-after', '0' ]);
# In one transaction, so that one batch has both.
$s->ok(q{BEGIN; SELECT idem_publish('order', 'headed', 'step', '{"n": 1}', jsonb_build_object(repeat('h', 300), 'x')); } . $publish->('order', 'headed', 2, 0) . '; COMMIT');
$crew->tend_until(sub { $s->ok($parked) eq '1' }, 'the first one to be parked');
$s->ok($publish->('lost', 'i1', 3, 0) . '; ' . $publish->('lost', 'i1', 4, 0) . '; ' . $publish->('order', 'big', 5, 100_000) . '; ' . $publish->('order', 'big', 6, 0) . '; ' . $publish->('order', 'small', 7, 0));
$crew->tend_until(sub { $s->ok($parked) eq '3' }, 'the refused ones to be parked');
like($s->ok(q{SELECT string_agg(format('%s %s %s', idem_outbox.aggregateid, payload ->> 'n', last_error), E'\n' ORDER BY position) FROM idem_outbox WHERE parked_at IS NOT NULL}),
	qr/\Aheaded 1 name of a header too long.*\ni1 3 312 NO_ROUTE\nbig 5 .*PRECONDITION_FAILED.*\z/, 'G10: what cannot be sent, what no queue wants, and what is too large, is parked with the reason');
$crew->tend_until(sub { $s->ok($seen) =~ /7/ }, 'what is not refused');
$crew->tend_until(sub { $s->ok(q{SELECT count(*) FROM idem_outbox WHERE payload ->> 'n' = '7'}) eq '0' }, 'its acknowledgement');
is($s->ok(q{SELECT string_agg(payload ->> 'n', ' ' ORDER BY position) FROM idem_outbox}), '1 2 3 4 5 6', 'G10: nothing overtakes a parked message of its aggregate');
is($s->ok($seen), '7', 'G10: nor is anything else sent');
$crew->hire(lost => [ 'consumer.py', 'lost', @$as_mailer, '--types', 'lost' ]);
$crew->tend_until(sub { $s->ok(q{SELECT * FROM idem_outbox_retry(ARRAY(SELECT id FROM idem_outbox WHERE aggregateid = 'i1'))}); $s->ok($seen) eq '7 3 4' }, 'the messages, once somebody wants them');
is_deeply($crew->dismiss, { shipping => 0, lost => 0, relay => 0 }, 'they end well');

$broker->stop;
$s->quit;
$node->stop;
done_testing();
