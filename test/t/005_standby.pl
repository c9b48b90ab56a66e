# A streaming standby, and its promotion.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";

use PgIdemTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $primary = new_node('primary', worker => 0, init => [ allows_streaming => 1 ], conf => 'max_prepared_transactions = 10');
$primary->safe_psql('postgres', 'CREATE FUNCTION echo(jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT $1 $$');
$primary->backup('base');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($primary, 'base', has_streaming => 1);
$standby->start;

my $token = '66666666-6666-6666-6666-666666666666';
my $p = session($primary);
my $bound = session($primary);
my $open = session($primary);
$p->ok('BEGIN; ' . claim('done') . q(; INSERT INTO effects VALUES ('done'); )
	  . call('idem_complete', 'done', result => q('{"n": 1}'), body_bytes => q('\x00ff')) . '; COMMIT');
$p->ok('BEGIN; ' . claim('failed') . '; ' . call('idem_fail', 'failed', status => 402) . '; COMMIT');
$p->ok(claim('leased', lease => q('1 h'), owner => q('w1'), token => "'$token'"));
$p->ok(call('idem_checkpoint', 'leased', token => "'$token'", checkpoint => q('half'), progress => q('[1]')));
$p->ok(claim('brief', lease => q('1 ms'), token => "'$token'"));
$bound->ok(claim('bound', lease => q('1 h'), session_bound => 'true'));
$open->ok('BEGIN; ' . claim('open'));
$p->ok(call('idem_once', 'message'));
$p->ok('BEGIN; ' . claim('prepared') . '; ' . call('idem_complete', 'prepared', result => q('"p"'))
	  . q(; INSERT INTO effects VALUES ('prepared'); PREPARE TRANSACTION 'p'));
$p->ok(q(INSERT INTO idem_policies (action, retention) VALUES ('standby', '1 day')));
$primary->wait_for_catchup($standby, 'replay', $primary->lsn('insert'));

my $s = session($standby);
is($s->ok(call('idem_lookup', 'done', columns => 'state, result, body_bytes')), 'completed|{"n": 1}|\x00ff', 'G3: lookup on the standby: completed');
is($s->ok(call('idem_lookup', 'failed', columns => 'state, status')), 'failed|402', 'lookup on the standby: failed');
is($s->ok(call('idem_lookup', 'leased', columns => 'state, owner, checkpoint, progress')), 'in_progress|w1|half|[1]', 'lookup on the standby: leased');
is($s->ok(call('idem_lookup', 'brief', columns => 'state')), 'interrupted', 'lookup on the standby: lease over');
is($s->ok(call('idem_lookup', 'bound', columns => 'state')), 'in_progress', 'G8: a session-bound claim is never judged on the standby');
is($s->ok(call('idem_lookup', 'nothing')), '', 'lookup on the standby: nothing');
is($s->ok(call('idem_lookup', 'open')), '', 'G8: on the standby absence proves nothing');
is($s->ok('BEGIN ISOLATION LEVEL REPEATABLE READ; ' . call('idem_lookup', 'done', columns => 'state') . '; COMMIT'), 'completed', 'lookup at REPEATABLE READ');
is( $s->ok(q(SELECT key, state FROM idempotent_operations ORDER BY key)),
	"bound|in_progress\nbrief|interrupted\ndone|completed\nfailed|failed\nleased|in_progress",
	'the view works on the standby');

my %writers = (
	'idem_claim' => claim('new'),
	'idem_claim of what is settled' => claim('done'),
	'idem_claim with a lease' => claim('new', lease => q('1 min')),
	'idem_complete' => call('idem_complete', 'leased', token => "'$token'"),
	'idem_fail' => call('idem_fail', 'leased', token => "'$token'"),
	'idem_release' => call('idem_release', 'leased', token => "'$token'"),
	'idem_renew' => call('idem_renew', 'leased', token => "'$token'"),
	'idem_checkpoint' => call('idem_checkpoint', 'leased', token => "'$token'", checkpoint => q('x')),
	'idem_guard' => call('idem_guard', 'leased', token => "'$token'"),
	'idem_once' => call('idem_once', 'message'),
	'idem_once_batch' => q{SELECT * FROM idem_once_batch('acme', 'pay', '{a,b}')},
	'idem_resolve' => call('idem_resolve', 'leased', verdict => q('retry')),
	'idem_reset' => call('idem_reset', 'done', note => q('n')),
	'idem_erase' => q{SELECT * FROM idem_erase('acme', 'n')},
	'idem_import' => call('idem_import', 'new', settled_as => q('failed'), settled_at => 'now()'),
	'idem_run' => q{SELECT * FROM idem_run('acme', 'pay', 'new', '{}', 'echo(jsonb)')});
foreach my $writer (sort keys %writers)
{
	is($s->try($writers{$writer}), '25006', "G12: $writer on the standby");
	is($s->try("BEGIN; $writers{$writer}"), '25006', "G12: $writer in a transaction of the standby");
	$s->ok('ROLLBACK');
}
is($p->try('BEGIN READ ONLY; ' . claim('new')), '25006', 'G12: the same in a read-only transaction of the primary');
is($p->ok('ROLLBACK; BEGIN READ ONLY; ' . call('idem_lookup', 'done', columns => 'state') . '; COMMIT'), 'completed', 'where lookup works');

# Failover, with every session of the primary lost
$primary->stop('immediate');
$s->quit;
$standby->promote;
$s = session($standby);
is($s->ok(claim('done', columns => 'outcome, result, body_bytes')), 'completed|{"n": 1}|\x00ff', 'G1: promoted: outcome is replayed');
is($s->ok(claim('done', request => q('{"amount": 2}'))), 'mismatch', 'G4: promoted: mismatch');
is($s->ok(claim('failed', columns => 'outcome, status')), 'failed|402', 'G1: promoted: failure is replayed');
is($s->ok(claim('leased')), 'in_progress', 'G1: promoted: leased claim is held');
is($s->ok('BEGIN; ' . call('idem_guard', 'leased', token => "'$token'", columns => 'r > now()') . q(; INSERT INTO effects VALUES ('leased'); )
		  . call('idem_complete', 'leased', token => "'$token'", columns => 'r > now()') . '; COMMIT'),
	"t\nt", 'G6: promoted: its owner goes on');
is($s->ok(claim('bound', lease => q('1 h'), columns => 'outcome, attempt')), 'recovered|2', 'G5: promoted: session-bound claim is free');
is($s->ok(claim('brief', lease => q('1 h'), columns => 'outcome, attempt')), 'recovered|2', 'G5: promoted: lease that is over is recovered');
is($s->ok('BEGIN; ' . claim('open') . '; ' . call('idem_complete', 'open', columns => 'r > now()') . '; COMMIT'), "claimed\nt", 'G1: promoted: what never committed is new');
is($s->ok(call('idem_once', 'message')), 'f', 'G10: promoted: message is known');
is($s->ok(call('idem_lookup', 'prepared', columns => 'state')), 'in_progress', 'G8: promoted: prepared settlement is not absent');
is($s->ok(claim('prepared', columns => 'outcome, holder')), 'in_progress|prepared transaction', 'G1: promoted: prepared claim is held');
$s->ok(q(COMMIT PREPARED 'p'));
is($s->ok(claim('prepared', columns => 'outcome, result')), 'completed|"p"', 'G1: promoted: prepared settlement commits');
is($s->ok(q(SELECT string_agg(key, ' ' ORDER BY key) FROM effects)), 'done leased prepared', 'G2: each effect once');

$_->quit foreach $s, $p, $bound, $open;
$standby->stop;
done_testing();
