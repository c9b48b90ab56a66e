# DDL on the extension and its tables, also under load.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";

use IPC::Run;
use PgIdemTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);

my $node = new_node('ddl');
my $s = session($node);
my $other = session($node);
my $settle = sub { my ($key, $result) = @_; 'BEGIN; ' . claim($key) . '; ' . call('idem_complete', $key, result => "'$result'", columns => q('settled')) . '; COMMIT' };

# Drop and create again in the sessions that have used it; another schema the next time
foreach my $round (1 .. 3)
{
	foreach my $session ($s, $other)
	{
		my $key = $session == $s ? 'k' : 'l';
		is($session->ok($settle->($key, $round)), "claimed\nsettled", "round $round: works");
		is($session->ok(claim($key, columns => 'outcome, result')), "completed|$round", "G3: round $round: replayed");
		is($session->ok(call('idem_once', $key)), 't', "G10: round $round: nothing remembered of the round before");
	}
	$s->ok('DROP EXTENSION pg_idem');
	isnt($other->try(claim('k')), '', "round $round: gone in the other session");
	is($s->ok('SELECT count(*) FROM pg_class WHERE relname LIKE \'idem%\''), '0', "round $round: dropped without rest");
	my $schema = $round == 2 ? 'elsewhere' : 'public';
	$s->ok("CREATE SCHEMA IF NOT EXISTS $schema; CREATE EXTENSION pg_idem SCHEMA $schema; SET search_path = $schema, public");
	$other->ok("SET search_path = $schema, public");
}
# In one transaction with claims of it
$s->ok('BEGIN; ' . claim('dropped') . '; ' . call('idem_complete', 'dropped'));
$s->ok('DROP EXTENSION pg_idem; CREATE EXTENSION pg_idem SCHEMA public');
is($s->ok(call('idem_lookup', 'dropped', columns => 'state')), '', 'dropped and created in the transaction of a settlement: gone with it');
is($s->try('ROLLBACK'), '', 'and back');
is($s->ok($settle->('dropped', 1)), "claimed\nsettled", 'works');
# A claim of a dropped extension is still a claim that nobody settled.
$s->ok('BEGIN; ' . claim('dropped2') . '; DROP EXTENSION pg_idem');
is($s->try('COMMIT'), 'IDM01', 'G9: dropping the extension does not settle the claim');
is($s->ok($settle->('dropped2', 1)), "claimed\nsettled", 'the extension is still there');
# A schema that was renamed, and one dropped with everything in it
$s->ok('ALTER SCHEMA public RENAME TO other; SET search_path = other');
is($s->ok(claim('dropped2', columns => 'outcome, result')), 'completed|1', 'schema renamed');
$s->ok('ALTER SCHEMA other RENAME TO public; SET search_path = public');
is($s->ok(claim('dropped2', columns => 'outcome, result')), 'completed|1', 'and back');
isnt($s->try('DROP TABLE idem_settled'), '', 'its tables cannot be dropped');

# Altered by hand in ways that direct access would skip
my %altered = (
	'trigger' => [ q(CREATE TRIGGER t BEFORE INSERT ON idem_settled FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger()), 'DROP TRIGGER t ON idem_settled' ],
	'row security' => [ 'ALTER TABLE idem_settled ENABLE ROW LEVEL SECURITY', 'ALTER TABLE idem_settled DISABLE ROW LEVEL SECURITY' ],
	'check constraint' => [ 'ALTER TABLE idem_settled ADD CONSTRAINT c CHECK (attempt > 0)', 'ALTER TABLE idem_settled DROP CONSTRAINT c' ],
	'generated column' => [ 'ALTER TABLE idem_settled ADD g int GENERATED ALWAYS AS (attempt + 1) STORED', 'ALTER TABLE idem_settled DROP g' ]);
foreach my $name (sort keys %altered)
{
	my ($do, $undo) = @{ $altered{$name} };
	my $was = $s->ok('SELECT count(*) FROM idem_settled');
	next unless is($s->try($do), '', "$name added");
	is($_->try($settle->("altered-$name", 1)), '0A000', "$name on idem_settled: refused") foreach $s, $other;
	$_->ok('ROLLBACK') foreach $s, $other;
	like($s->err . $other->err, qr/^/, 'session goes on');
	$s->ok($undo);
	# A dropped column stays behind as a hole in the row.
	is($s->ok($settle->("restored-$name", 1)), "claimed\nsettled", "$name removed: works again");
}
# An added index is maintained.
$s->ok('CREATE INDEX more ON idem_settled (action, settled_at)');
is($s->ok($settle->('indexed', 1)), "claimed\nsettled", 'with an index added');
is($s->ok(q(SET enable_seqscan = off; SELECT count(*) FROM idem_settled WHERE action = 'pay' AND settled_at > now() - interval '1 min' AND key = 'indexed'; RESET enable_seqscan)),
	'1', 'the added index is maintained');
$s->ok('DROP INDEX more');

# A rewrite of the table comes between the owner's call and its lock on the table, and moves the rows: Z's row stands
# where A's will be. The owner of Z must not meet A.
my ($tz, $ta) = ('0000000f-0000-0000-0000-00000000000f', '0000000a-0000-0000-0000-00000000000a');
my %rewrite = (
	idem_complete => sub { call('idem_complete', $_[0], token => "'$tz'", columns => q('called')) },
	idem_checkpoint => sub { call('idem_checkpoint', $_[0], token => "'$tz'", checkpoint => q('c'), columns => q('called')) },
	idem_renew => sub { call('idem_renew', $_[0], token => "'$tz'", columns => q('called')) },
	idem_release => sub { call('idem_release', $_[0], token => "'$tz'", columns => q('called')) },
	idem_claim => sub { claim($_[0], lease => q('1 h'), columns => q('called')) });
my $third = session($node);
foreach my $name (sort keys %rewrite)
{
	$s->ok('TRUNCATE idem_inflight');
	$s->ok(claim("z-$name", lease => q('1 h'), token => "'$tz'"));
	$s->ok(call('idem_release', "z-$name", token => "'$tz'")) if $name eq 'idem_claim';
	$s->ok(claim("a-$name", lease => q('1 h'), token => "'$ta'"));
	$s->ok('BEGIN; LOCK TABLE idem_inflight IN SHARE MODE');
	$other->send($rewrite{$name}->("z-$name"));
	wait_until($third, 'SELECT count(*) > 0 FROM pg_locks WHERE NOT granted AND pid = ' . $other->pid);
	$s->ok('CLUSTER idem_inflight USING idem_inflight_pkey; COMMIT');
	is($other->get, '', "G12: $name while the table is rewritten: no error");
	is($other->out, 'called', "$name while the table is rewritten");
	is($s->ok(call('idem_lookup', "a-$name", columns => 'state, attempt, checkpoint')), 'in_progress|1|', "G1: $name: another operation is not touched");
	is($s->ok(q(SELECT string_agg(key || ' ' || attempt, ', ' ORDER BY key) FROM idem_inflight)),
		"a-$name 1" . ($name eq 'idem_complete' ? '' : ", z-$name " . ($name eq 'idem_claim' ? 2 : 1)), "G1: $name: the rows are right");
}
$s->ok('TRUNCATE idem_inflight');
$third->quit;

# A database made from one that has the extension
$s->ok(claim('copied', lease => q('1 h')));
my $count = $s->ok('SELECT count(*) FROM idem_settled');
$_->quit foreach $s, $other;
$node->safe_psql('template1', 'CREATE DATABASE copy TEMPLATE postgres');
$s = session($node, dbname => 'copy');
is($s->ok('SELECT count(*) FROM idem_settled'), $count, 'CREATE DATABASE TEMPLATE copies the operations');
is($s->ok(claim('indexed', columns => 'outcome, result')), 'completed|1', 'G3: which are replayed');
is($s->ok(claim('copied')), 'in_progress', 'G1: and held');
is($s->ok($settle->('new', 2)), "claimed\nsettled", 'and goes its own way');
my $original = session($node);
is($original->ok(call('idem_lookup', 'new')), '', 'which the original does not see');
is($original->ok('BEGIN; ' . claim('two databases')), 'claimed', 'keys of two databases');
is($s->ok('BEGIN; ' . claim('two databases')), 'claimed', 'are not the same');
$_->quit foreach $original, $s;
$node->safe_psql('template1', 'DROP DATABASE copy');

# Under load: hot keys, leases and messages, while the tables are reindexed, rewritten and moved, and indexes are added.
$s = session($node);
$s->ok(q(CREATE EXTENSION amcheck; INSERT INTO idem_policies (action, max_attempts) VALUES ('load', 1000000)));
my $space = PostgreSQL::Test::Utils::tempdir();
$s->ok("CREATE TABLESPACE elsewhere LOCATION '$space'");
$s->ok('CREATE TABLE done (key text)');
my %scripts = (
	hot => q{
		\set i :i + 1
		BEGIN;
		SELECT outcome = 'claimed' AS mine FROM idem_claim('acme', 'load', 'h' || :i, request => '{}', wait => '30 s') \gset
		\if :mine
		INSERT INTO done VALUES ('h' || :i);
		SELECT idem_complete('acme', 'load', 'h' || :i, result => '{"by": :client_id}');
		\endif
		COMMIT;
	},
	leased => q{
		\set k random(1, 1000000000000)
		SELECT token FROM idem_claim('acme', 'load', 'l' || :k, request => '{}', lease => '1 h') \gset
		SELECT idem_checkpoint('acme', 'load', 'l' || :k, ':token', 'half', '{"n": 1}');
		SELECT idem_renew('acme', 'load', 'l' || :k, ':token');
		BEGIN;
		INSERT INTO done VALUES ('l' || :k);
		SELECT idem_complete('acme', 'load', 'l' || :k, token => ':token');
		COMMIT;
	},
	once => q{
		\set k random(1, 2000)
		BEGIN;
		SELECT CASE WHEN idem_once('acme', 'load', 'm' || :k) THEN 1 ELSE 0 END AS n \gset
		INSERT INTO done SELECT 'm' || :k WHERE :n = 1;
		COMMIT;
	});
my $dir = PostgreSQL::Test::Utils::tempdir();
append_to_file("$dir/$_", $scripts{$_}) foreach keys %scripts;
my ($out, $err) = ('', '');
my $load = IPC::Run::start [ 'pgbench', '-n', '-h', $node->host, '-p', $node->port, '-c', 8, '-j', 2, '-T', 12, '-D', 'i=0',
	(map { ('-f', "$dir/$_") } sort keys %scripts), 'postgres' ],
  '<', \undef, '>', \$out, '2>', \$err;
my $end = time + 11;
my @ddl;
foreach my $table (qw(idem_settled idem_inflight idem_seen))
{
	push @ddl, "REINDEX TABLE CONCURRENTLY $table", "VACUUM $table", "REINDEX TABLE $table", "CREATE INDEX ON $table (account, key)",
	  "VACUUM FULL $table", "ALTER TABLE $table SET (fillfactor = 70)", "CREATE INDEX CONCURRENTLY ON $table (action)",
	  "ALTER TABLE $table SET TABLESPACE elsewhere", "CLUSTER $table USING ${table}_pkey", "ALTER INDEX ${table}_pkey SET TABLESPACE elsewhere",
	  "ALTER TABLE $table SET TABLESPACE pg_default", "ANALYZE $table";
}
push @ddl, q(INSERT INTO idem_policies (action, retention) VALUES ('other', '1 day') ON CONFLICT (action) DO UPDATE SET retention = '2 days');
my ($failures, $rounds) = ('', 0);
$s->ok('SET lock_timeout = 0');
while (time < $end)
{
	foreach my $sql (@ddl)
	{
		last if time > $end;
		my $state = $s->try($sql);
		# REINDEX CONCURRENTLY and CREATE INDEX CONCURRENTLY may meet a deadlock with the strongest locks; that is the server's own affair.
		$failures .= "$state $sql " . $s->err if $state ne '';
	}
	$rounds++;
	# Not more and more indexes
	my $drop = $s->ok(q(SELECT string_agg('DROP INDEX ' || indexrelid::regclass, '; ') FROM pg_index
		WHERE indrelid IN ('idem_settled'::regclass, 'idem_inflight'::regclass, 'idem_seen'::regclass) AND NOT indisprimary));
	if ($rounds % 3 == 0 && $drop) { $s->ok($drop); }
}
$load->finish;
is($failures, '', 'DDL under load works');
is($load->result || 0, 0, 'G12: the load never saw an error') or diag($err);
is($out =~ /number of failed transactions: (\d+)/ ? $1 : '', 0, 'G12: nor a failed transaction') or diag($out);
note("$rounds rounds of DDL; " . join(' ', $out =~ /number of transactions actually processed: \d+/g));
is( $s->ok(
		q(SELECT count(*) FROM (SELECT bt_index_check(indexrelid, true) FROM pg_index
		 WHERE indrelid IN ('idem_settled'::regclass, 'idem_inflight'::regclass, 'idem_seen'::regclass) AND indisvalid) x)) > 2,
	1, 'amcheck finds every row in every index');
is($s->ok(q(SELECT count(*) FROM idem_settled, verify_heapam('idem_settled') LIMIT 1)), '0', 'and no damage in the table');
is($s->ok(q(SELECT count(*) FROM (SELECT key FROM done GROUP BY key HAVING count(*) > 1) x)), '0', 'G1: no effect twice');
is($s->ok(q(SELECT count(*) FROM done d FULL JOIN (SELECT key FROM idem_settled WHERE action = 'load' UNION ALL SELECT key FROM idem_seen WHERE action = 'load') o USING (key)
		WHERE d IS NULL OR o IS NULL)), '0', 'G2: effect and outcome always together');
is($s->ok(q(SELECT count(*) FROM idem_inflight WHERE action = 'load' AND key IN (SELECT key FROM done))), '0', 'G1: nothing settled is still in flight');

# Our primary keys reindexed over and over under hot keys: while there are two of them, neither raises 23505 nor lets anything
# be done twice.
my %hot = (
	claim => $scripts{hot} =~ s/'load'/'pkey'/gr =~ s/'h'/'ph'/gr,
	once => q{
		\set i :i + 1
		BEGIN;
		SELECT CASE WHEN idem_once('acme', 'pkey', 'po' || :i) THEN 1 ELSE 0 END AS n \gset
		INSERT INTO done SELECT 'po' || :i WHERE :n = 1;
		COMMIT;
	},
	leased => q{
		\set i :i + 1
		SELECT coalesce(token::text, '') AS token, outcome = 'claimed' AS mine FROM idem_claim('acme', 'pkey', 'pl' || :i, request => '{}', lease => '1 h', wait => '30 s') \gset
		\if :mine
		BEGIN;
		INSERT INTO done VALUES ('pl' || :i);
		SELECT idem_complete('acme', 'pkey', 'pl' || :i, token => ':token');
		COMMIT;
		\endif
	});
foreach my $name (sort keys %hot)
{
	my $index = { claim => 'idem_settled_pkey', once => 'idem_seen_pkey', leased => 'idem_inflight_pkey' }->{$name};
	append_to_file("$dir/hot-$name", $hot{$name});
	($out, $err) = ('', '');
	# A number of transactions, not a time: each client goes through the same keys.
	my $hot = IPC::Run::start [ 'pgbench', '-n', '-h', $node->host, '-p', $node->port, '-c', 6, '-j', 2, '-t', 1500, '-D', 'i=0', '-f', "$dir/hot-$name", 'postgres' ],
	  '<', \undef, '>', \$out, '2>', \$err;
	my $reindexed = 0;
	my $failed = '';
	while ($hot->pumpable)
	{
		$failed ||= $s->err if $s->try("REINDEX INDEX CONCURRENTLY $index") ne '';
		$reindexed++;
		$hot->pump_nb;
	}
	$hot->finish;
	is($failed, '', "REINDEX INDEX CONCURRENTLY $index under load: $reindexed times");
	is($hot->result || 0, 0, "G12: $name: the load never saw an error") or diag($err);
	is($out =~ /number of failed transactions: (\d+)/ ? $1 : '', 0, "G12: $name: nor a failed transaction") or diag($out);
	my $prefix = 'p' . substr($name eq 'claim' ? 'hot' : $name, 0, 1);
	is($s->ok("SELECT count(*), count(DISTINCT key) FROM done WHERE key LIKE '$prefix%'"), '1500|1500', "G1: $name: each key exactly once");
}
is($s->ok(q(SELECT count(*) FROM pg_index WHERE NOT indisvalid AND indrelid IN ('idem_settled'::regclass, 'idem_inflight'::regclass, 'idem_seen'::regclass))), '0', 'no index is left half-made');

# DROP and CREATE EXTENSION while others use it: they get errors, nothing worse, and it works afterwards.
my @users = map { session($node) } 1 .. 6;
foreach my $round (1 .. 5)
{
	foreach my $i (0 .. $#users)
	{
		$users[$i]->send(join(";\n", map { $settle->("drop-$round-$i-$_", 1) } 1 .. 40));
	}
	# The planner opens the result's row type, whose relation may have gone: the server's own error.
	my $row_type = $s->ok(q(SELECT 'idem_claim_result'::regclass::oid));
	# It locks our tables in an order of its own, so either side may be the victim of a deadlock, as with any DROP of two tables.
	my $state;
	do { $state = $s->try('DROP EXTENSION pg_idem') } while ($state eq '40P01');
	is($state, '', "dropped under load, round $round");
	$s->ok('CREATE EXTENSION pg_idem');
	foreach my $user (@users)
	{
		$user->get;
		my @strange = grep { !/ERROR:  (42P01|42883|42704|25P02|IDM01|IDM03|0A000|XX000: cache lookup|XX000: could not open relation with OID $row_type\b|55000|40P01)/ } $user->err =~ /^ERROR:.*/mg;
		is("@strange", '', "only expected errors while the extension is dropped, round $round");
		ok(!$user->closed, 'and the session lives');
		$user->ok('ROLLBACK');
	}
}
is($_->ok($settle->('after-' . $_->pid, 1)), "claimed\nsettled", 'works again in a session that went through it') foreach @users;
$_->quit foreach @users, $s;
$node->stop;
done_testing();
