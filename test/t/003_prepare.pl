# Two-phase commit.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";

use PgIdemTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('prepare', worker => 0, conf => 'max_prepared_transactions = 20');
my $s = session($node);
my $token = '22222222-2222-2222-2222-222222222222';

# What may not be prepared
$s->ok('BEGIN; ' . claim('open'));
$s->ok(q(INSERT INTO effects VALUES ('open')));
is($s->try(q(PREPARE TRANSACTION 'open')), 'IDM01', 'G9: a claim that is not settled cannot be prepared');
is($s->ok(q(SELECT count(*) FROM pg_prepared_xacts)), '0', 'nothing was prepared');
is($s->ok(q(SELECT count(*) FROM effects)), '0', 'G9: nor is anything left of its changes');
is($s->ok('BEGIN; ' . claim('open') . '; ROLLBACK'), 'claimed', 'the key is free');
$s->ok('BEGIN; ' . claim('bound', lease => q('1 h'), session_bound => 'true'));
is($s->try(q(PREPARE TRANSACTION 'bound')), '0A000', 'a session-bound claim cannot be prepared');
is($s->ok(call('idem_lookup', 'bound')), '', 'and leaves nothing');
$s->ok('BEGIN; SELECT outcome FROM ' . "idem_claim('acme', 'pay', 'doom', request => '{}', lease => '1 h', token => '$token')" . '; COMMIT');
$s->ok('BEGIN; SAVEPOINT a');
is($s->try(call('idem_guard', 'doom', token => q('33333333-3333-3333-3333-333333333333'))), 'IDM02', 'a wrong token is refused');
$s->ok(q(ROLLBACK TO a; INSERT INTO effects VALUES ('doom')));
is($s->try(q(PREPARE TRANSACTION 'doom')), 'IDM02', 'G6: after a refused owner call nothing can be prepared');
is($s->ok(q(SELECT count(*) FROM effects)), '0', 'G6: its changes are gone');

# What may: a settlement (c: to be committed, r: to be rolled back), a leased claim, a settled lease, a guard, a
# checkpoint, a release, a message, all together
sub prepare
{
	my ($gid, @sql) = @_;
	$s->ok('BEGIN');
	$s->ok($_) foreach @sql;
	$s->ok("INSERT INTO effects VALUES ('$gid'); PREPARE TRANSACTION '$gid'");
	return;
}
foreach my $end (qw(c r))
{
	prepare("settled-$end", claim("settled-$end"), call('idem_complete', "settled-$end", result => q('{"n": 1}'), body => q('b')));
	prepare("sub-$end", 'SAVEPOINT a', claim("sub-$end"), 'SAVEPOINT b', call('idem_fail', "sub-$end", status => 402), 'RELEASE a');
	prepare("leased-$end", claim("leased-$end", lease => q('1 h'), token => "'$token'"));
	$s->ok(claim("$_-$end", lease => q('1 h'), token => "'$token'")) foreach qw(lsettled guard ckpt released);
	prepare("lsettled-$end", call('idem_complete', "lsettled-$end", token => "'$token'", result => q('"l"')));
	prepare("guard-$end", call('idem_guard', "guard-$end", token => "'$token'"));
	prepare("ckpt-$end", call('idem_checkpoint', "ckpt-$end", token => "'$token'", checkpoint => q('c1')));
	prepare("released-$end", call('idem_release', "released-$end", token => "'$token'"));
	prepare("once-$end", call('idem_once', "once-$end"));
}

sub rivals
{
	my ($when) = @_;
	foreach my $end (qw(c r))
	{
		foreach my $name (map { "$_-$end" } qw(settled sub leased))
		{
			is($s->ok(claim($name, columns => 'outcome, holder')),
				'in_progress|prepared transaction', "G1: $name: in progress $when");
			is($s->ok(call('idem_lookup', $name, columns => 'state, owner')),
				'in_progress|prepared transaction', "G8: $name: not absent $when");
		}
		is($s->ok(claim($_, columns => 'outcome')), 'in_progress', "G1: $_: in progress $when")
		  foreach map { "$_-$end" } qw(lsettled guard ckpt released);
		is($s->try("SET lock_timeout = '50ms'; " . call('idem_guard', "$_-$end", token => "'$token'")),
			'55P03', "G6: $_-$end: an owner call waits $when")
		  foreach qw(lsettled guard ckpt released);
		$s->ok('RESET lock_timeout');
		is($s->ok(call('idem_renew', "ckpt-$end", token => "'$token'", columns => 'r > now()')), 't', "G5: heartbeat does not wait for it $when");
	}
	is( $s->ok(claim('settled-c', wait => q('50 ms'))), 'in_progress', "G5: waiting ends at its limit $when");
	return;
}
rivals('before the restart');
is($s->ok(claim('lsettled-c', request => q('{"amount": 2}'))), 'mismatch', 'G4: a committed fingerprint tells a mismatch meanwhile');
my $once = session($node);
$once->send(call('idem_once', 'once-c'));
wait_until($s, 'SELECT wait_event_type = \'Lock\' FROM pg_stat_activity WHERE pid = ' . $once->pid);
pass('G10: idem_once waits for a prepared rival');
$node->stop('immediate');
$node->start;
$s = session($node);
rivals('after the restart');

# Ended from another session, while somebody waits
my $waiter = session($node);
$waiter->send(claim('settled-c', wait => q('1 min'), columns => 'outcome, result, body'));
wait_lock($s, $waiter);
$s->ok("COMMIT PREPARED '$_-c'") foreach qw(settled sub leased lsettled guard ckpt released once);
is($waiter->get, '', 'the waiter has its answer');
is($waiter->out, 'completed|{"n": 1}|b', 'G1: the waiter gets the outcome at COMMIT PREPARED');
$waiter->send('BEGIN; ' . claim('settled-r', wait => q('1 min')));
wait_lock($s, $waiter);
$s->ok("ROLLBACK PREPARED '$_-r'") foreach qw(settled sub leased lsettled guard ckpt released once);
is($waiter->get, '', 'the waiter has its answer');
is($waiter->out, 'claimed', 'G1: the waiter gets the claim at ROLLBACK PREPARED');
$waiter->ok('ROLLBACK');

is($s->ok(claim('settled-c', columns => 'outcome, result, body')), 'completed|{"n": 1}|b', 'G2: settled');
is($s->ok(claim('sub-c', columns => 'outcome, status')), 'failed|402', 'G2: settled in savepoints');
is($s->ok(claim('leased-c')), 'in_progress', 'G2: leased');
is($s->ok(call('idem_complete', 'leased-c', token => "'$token'", columns => 'r > now()')), 't', 'its token is good');
is($s->ok(claim('lsettled-c', columns => 'outcome, result')), 'completed|"l"', 'G2: settled lease');
is($s->ok(call('idem_lookup', 'ckpt-c', columns => 'state, checkpoint')), 'in_progress|c1', 'G2: checkpoint');
is($s->ok(claim('released-c', lease => q('1 h'), columns => 'outcome, attempt')), 'recovered|2', 'G2: released');
is($s->ok(call('idem_once', 'once-c')), 'f', 'G10: message known');
is($s->ok('BEGIN; ' . claim("$_-r") . '; ROLLBACK'), 'claimed', "G2: $_ rolled back") foreach qw(settled sub leased);
is($s->ok(call('idem_guard', "$_-r", token => "'$token'", columns => 'r > now()')), 't', "G2: $_ rolled back, still its owner")
  foreach qw(lsettled guard ckpt released);
is($s->ok(call('idem_lookup', 'ckpt-r', columns => 'checkpoint IS NULL')), 't', 'G2: checkpoint rolled back');
is($s->ok(call('idem_once', 'once-r')), 't', 'G10: message rolled back is new');
is($s->ok(q(SELECT count(*), count(*) FILTER (WHERE key LIKE '%-c') FROM effects)), '8|8', 'G2: business changes with them');
is($s->ok("SELECT count(*) FROM pg_locks WHERE objsubid = ${\ LOCK_CLASS}"), '0', 'no lock is left behind');

# A lease that runs out while its owner's settlement is prepared cannot be taken.
$s->ok(claim('late', lease => q('200 ms'), token => "'$token'"));
prepare('late', call('idem_complete', 'late', token => "'$token'", result => q('"late"')));
wait_until($s, call('idem_lookup', 'late', columns => q(state = 'interrupted' OR lease_expires_at < clock_timestamp())));
is($s->ok(claim('late', lease => q('1 h'))), 'in_progress', 'G5: not taken while the settlement is prepared');
$s->ok(q(COMMIT PREPARED 'late'));
is($s->ok(claim('late', columns => 'outcome, result')), 'completed|"late"', 'G1: it commits all the same');

# Calls of an operator: prepared, they hold the key, and take effect, the record of them included, with the transaction.
foreach my $end (qw(c r))
{
	$s->ok(claim("$_-$end", lease => q('1 h'), token => "'$token'")) foreach qw(decided retried);
	$s->ok('BEGIN; ' . claim("$_-$end") . '; ' . call('idem_complete', "$_-$end", result => q('"secret"')) . '; COMMIT') foreach qw(reset);
	$s->ok("BEGIN; SELECT outcome FROM idem_claim('erase-$end', 'pay', 'k', '{}'); SELECT idem_complete('erase-$end', 'pay', 'k', '1'); COMMIT");
	prepare("decided-$end", call('idem_resolve', "decided-$end", verdict => q('completed'), result => q('"o"')));
	prepare("retried-$end", call('idem_resolve', "retried-$end", verdict => q('retry')));
	prepare("reset-$end", call('idem_reset', "reset-$end", note => q('n')));
	prepare("imported-$end", call('idem_import', "imported-$end", settled_as => q('failed'), settled_at => 'now()'));
	prepare("erased-$end", "SELECT sum(rows) FROM idem_erase('erase-$end', 'n')");
}
my $records = q(SELECT count(*) FROM idem_audit);
is($s->ok($records), '0', 'no record of what is only prepared');
is($s->try("SET lock_timeout = '50ms'; " . call('idem_guard', 'decided-c', token => "'$token'")), '55P03', 'G6: the owner waits for a prepared decision');
is($s->try(call('idem_resolve', 'retried-c', verdict => q('retry'))), '55P03', 'G1: another operator waits too');
$s->ok('RESET lock_timeout');
is($s->ok(claim('imported-c')), 'in_progress', 'G1: what is being imported is not granted');
is($s->ok(claim('reset-c')), 'completed', 'G3: what is being reset is replayed');
$node->stop('immediate');
$node->start;
$s = session($node);
is($s->ok(claim('imported-c', columns => 'outcome, holder')), 'in_progress|prepared transaction', 'G1: nor after a crash');
$s->ok("COMMIT PREPARED '$_-c'; ROLLBACK PREPARED '$_-r'") foreach qw(decided retried reset imported erased);
is($s->try(call('idem_guard', 'decided-c', token => "'$token'")), 'IDM04', 'G6: decided');
is($s->ok(call('idem_guard', 'decided-r', token => "'$token'", columns => 'r > now()')), 't', 'G6: rolled back, still the owner');
is($s->try(call('idem_guard', 'retried-c', token => "'$token'")), 'IDM02', 'G6: granted to another attempt');
is($s->ok(claim('retried-c', lease => q('1 h'), columns => 'outcome, attempt')), 'recovered|2', 'G5: which is this one');
is($s->ok('BEGIN; ' . claim('reset-c') . '; ROLLBACK'), 'claimed', 'reset');
is($s->ok(claim('reset-r', columns => 'outcome, result')), 'completed|"secret"', 'G3: not reset');
is($s->ok(claim('imported-c')), 'failed', 'imported');
is($s->ok('BEGIN; ' . claim('imported-r') . '; ROLLBACK'), 'claimed', 'not imported');
is($s->ok("SELECT outcome FROM idem_claim('erase-c', 'pay', 'k', '{}')"), 'expired', 'G7: erased');
is($s->ok("SELECT outcome FROM idem_claim('erase-r', 'pay', 'k', '{}')"), 'completed', 'G3: not erased');
is($s->ok(q(SELECT string_agg(call || ' ' || COALESCE(key, account), ', ' ORDER BY call, key) FROM idem_audit)),
	'erase erase-c, import imported-c, reset reset-c, resolve decided-c, resolve retried-c', 'the record of what was committed');
is($s->ok("SELECT count(*) FROM pg_locks WHERE objsubid = ${\ LOCK_CLASS}"), '0', 'no lock is left behind');

# A pass that is prepared would keep every other away
is($s->try("BEGIN; SELECT sum(rows) FROM idem_maintain(); PREPARE TRANSACTION 'pass'"), '0A000', 'a transaction with idem_maintain is not prepared');
is($s->ok("ROLLBACK; SELECT sum(rows) FROM idem_maintain()"), '0', 'and keeps nobody away');

$s->quit;
$once->quit;
$node->stop;
done_testing();
