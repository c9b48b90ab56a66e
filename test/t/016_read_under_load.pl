# What is answered while rows and locks change all the time: a committed fingerprint is never taken for work in progress, and a holder
# that has just ended is never taken for a prepared transaction.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";

use PgIdemTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('read_under_load', worker => 0, conf => "max_prepared_transactions = 5\n");
my $admin = session($node);
my $token = 'aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa';
my $seconds = 3;
$admin->ok(
	q{
	CREATE UNLOGGED TABLE answers (answer text, n bigint);
	-- Makes the calls of one kind until the time is over; each is a transaction of its own.
	CREATE PROCEDURE call_until(call text, until timestamptz, undo boolean DEFAULT false) LANGUAGE plpgsql AS $$
	DECLARE answer text;
	BEGIN
		WHILE clock_timestamp() < until LOOP
			EXECUTE call INTO answer;
			IF undo THEN
				ROLLBACK;
			ELSE
				COMMIT;
			END IF;
		END LOOP;
	END $$;
	-- The same, within a transaction, and counts the answers
	CREATE FUNCTION count_until(call text, until timestamptz) RETURNS void LANGUAGE plpgsql AS $$
	DECLARE answer text; seen jsonb := '{}';
	BEGIN
		WHILE clock_timestamp() < until LOOP
			EXECUTE call INTO answer;
			answer := coalesce(answer, 'none');
			seen := jsonb_set(seen, ARRAY[answer], to_jsonb(coalesce((seen ->> answer)::bigint, 0) + 1));
		END LOOP;
		INSERT INTO answers SELECT key, value::bigint FROM jsonb_each_text(seen);
	END $$;
});

# Runs writers and readers at once; returns how often each answer was given, and the errors.
sub answers
{
	my ($writers, $readers, $undo) = @_;
	$admin->ok('TRUNCATE answers');
	my $until = "'" . $admin->ok("SELECT clock_timestamp() + '$seconds s'") . "'";
	my @sessions;
	foreach my $call (@$writers)
	{
		push @sessions, session($node)->send("CALL call_until(\$call\$$call\$call\$, $until, $undo)");
	}
	foreach my $call (@$readers)
	{
		push @sessions, session($node)->send("SELECT count_until(\$call\$$call\$call\$, $until)");
	}
	my @errors = grep { $_ ne '' } map { $_->get } @sessions;
	$_->quit foreach @sessions;
	my %n = map { split /\|/ } split /\n/, $admin->ok('SELECT answer, sum(n) FROM answers GROUP BY 1');
	note(join(', ', map { "$_: $n{$_}" } sort keys %n));
	return (\%n, "@errors");
}

# --- G4: a forgotten outcome, beside it an attempt in flight with another fingerprint that is renewed all the time. A probe may miss the
# row that is just being updated, and the lock is the owner's.
$admin->ok(q{INSERT INTO idem_policies (action, retention, remember) VALUES ('forgetful', '1 ms', '1 ms')});
my $key = [ 'acme', 'forgetful', 'k' ];
$admin->ok('BEGIN; ' . claim($key, request => q('"first"')) . '; ' . call('idem_complete', $key) . '; COMMIT; SELECT pg_sleep(0.05)');
$admin->ok('CREATE TABLE forgotten AS TABLE idem_settled');
is($admin->ok(claim($key, request => q('"second"'), lease => q('1 h'), token => "'$token'")), 'claimed', 'G7: forgotten, and claimed anew');
is($admin->ok(q(SELECT count(*) FROM idem_settled WHERE action = 'forgetful')), '0', 'G7: what is forgotten goes when its key is claimed anew');
$admin->ok('INSERT INTO idem_settled TABLE forgotten');    # as an old one that was restored
my $renew = call('idem_renew', $key, token => "'$token'");
my $other = claim($key, request => q('"other"'));
my ($n, $errors) = answers([ $renew, $renew ], [ $other, $other ], 'false');
is($errors, '', 'G4: no errors');
is(join(' ', sort keys %$n), 'mismatch', 'G4: other inputs are a mismatch, never in progress');
cmp_ok($n->{mismatch} // 0, '>', 100, 'G4: asked often');
# The same inputs are in progress, and the outcome that is forgotten is not replayed.
($n, $errors) = answers([$renew], [ claim($key, request => q('"second"')) ], 'false');
is($errors, '', 'G4: no errors');
is(join(' ', sort keys %$n), 'in_progress', 'G4: the same inputs are in progress');

# --- G8: claims that end all the time, settled or rolled back
$key = 'ends';
my $lookup = q(SELECT coalesce((SELECT CASE WHEN owner ~ '^\d+$' THEN 'pid' ELSE coalesce(owner, state::text) END FROM idem_lookup('acme', 'pay', 'ends')), 'nothing'));
my $holder = q(SELECT CASE WHEN holder ~ '^\d+$' THEN 'pid' ELSE coalesce(holder, outcome::text) END FROM idem_claim('acme', 'pay', 'ends', '{"amount": 1}'));
($n, $errors) = answers([ (claim($key)) x 2 ], [ $lookup, $lookup ], 'true');
is($errors, '', 'G8: rolled back: no errors');
ok(!exists $n->{'prepared transaction'}, 'G8: rolled back: a lookup names no prepared transaction, for there is none');
cmp_ok($n->{pid} // 0, '>', 0, 'G8: rolled back: a lookup names the process that holds it');
is(join(' ', grep { !/^(pid|nothing|prepared transaction)$/ } sort keys %$n), '', 'G8: rolled back: or says that there is nothing');
# The claims of the reader are undone one by one, so that the key lock goes back and forth.
my $claim_undone = 'SELECT claim_undone()';
$admin->ok(
	qq{
	CREATE FUNCTION claim_undone() RETURNS text LANGUAGE plpgsql AS \$\$
	DECLARE answer text;
	BEGIN
		$holder INTO answer;
		RAISE SQLSTATE 'UNDO0';
	EXCEPTION WHEN SQLSTATE 'UNDO0' THEN RETURN answer;
	END \$\$;
} =~ s/FROM idem_claim(.*) INTO answer/INTO answer FROM idem_claim$1/r);
($n, $errors) = answers([ (claim($key)) x 2 ], [$claim_undone], 'true');
is($errors, '', 'G1: rolled back: no errors');
ok(!exists $n->{'prepared transaction'}, 'G1: rolled back: a claim names no prepared transaction');
cmp_ok($n->{claimed} // 0, '>', 0, 'G1: rolled back: it is granted');
# settled: each claim and its settlement, looked up until they are there
$admin->ok(
	q{
	CREATE SEQUENCE settled_keys;
	CREATE FUNCTION settle_next() RETURNS text LANGUAGE plpgsql AS $$
	DECLARE k text := 's' || nextval('settled_keys');
	BEGIN
		PERFORM FROM idem_claim('acme', 'pay', k, '{}');
		PERFORM idem_complete('acme', 'pay', k);
		RETURN k;
	END $$;
	CREATE FUNCTION look_at_last() RETURNS text LANGUAGE sql AS $$
		SELECT CASE WHEN owner ~ '^\d+$' THEN 'pid' ELSE coalesce(owner, state::text) END
		  FROM idem_lookup('acme', 'pay', 's' || (SELECT last_value FROM settled_keys)) $$;
});
($n, $errors) = answers(['SELECT settle_next()'], [ ('SELECT look_at_last()') x 2 ], 'false');
is($errors, '', 'G8: settled: no errors');
ok(!exists $n->{'prepared transaction'}, 'G8: settled: a lookup names no prepared transaction');
cmp_ok($n->{completed} // 0, '>', 0, 'G8: settled: the outcome is found');

# --- a real one is named so
my $s = session($node);
$s->ok('BEGIN; ' . claim('prepared') . '; ' . call('idem_complete', 'prepared') . q(; PREPARE TRANSACTION 'p'));
is($admin->ok(call('idem_lookup', 'prepared', columns => 'state, owner')), 'in_progress|prepared transaction', 'G8: a prepared transaction is named in a lookup');
is($admin->ok(claim('prepared', columns => 'outcome, holder')), 'in_progress|prepared transaction', 'G1: and in a claim');
# its session goes on with other claims, and ends
$s->ok('BEGIN; ' . claim('another'));
is($admin->ok(call('idem_lookup', 'prepared', columns => 'state, owner')), 'in_progress|prepared transaction', 'G8: also while its session holds another claim');
is($admin->ok(call('idem_lookup', 'another', columns => 'owner')), $s->pid, 'G8: which is told by its pid');
$s->quit;
is($admin->ok(claim('prepared', columns => 'outcome, holder')), 'in_progress|prepared transaction', 'G1: also after its session has ended');
$admin->quit;
$node->restart;
$admin = session($node);
is($admin->ok(call('idem_lookup', 'prepared', columns => 'state, owner')), 'in_progress|prepared transaction', 'G8: also after a restart');
is($admin->ok(claim('prepared', columns => 'outcome, holder')), 'in_progress|prepared transaction', 'G1: and in a claim');
$admin->ok(q(COMMIT PREPARED 'p'));
is($admin->ok(call('idem_lookup', 'prepared', columns => 'state, owner')), 'completed|', 'G8: committed, it is completed');
is($admin->ok(claim('prepared')), 'completed', 'G3: and replayed');
$admin->quit;
$node->stop;
done_testing();
