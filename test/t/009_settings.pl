# Settings: who may change them, and what they do.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";

use PgIdemTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $roles = q{
	CREATE ROLE shop LOGIN;
	CREATE ROLE acme LOGIN;
	CREATE ROLE clerk LOGIN IN ROLE acme;
	GRANT USAGE ON SCHEMA public TO PUBLIC;
	GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA public TO shop, acme, clerk;
	GRANT ALL ON effects TO PUBLIC;
	CREATE FUNCTION echo(jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT $1';
};
my $token = 'aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa';
my %with_account = (
	idem_claim => claim('k'),
	idem_complete => call('idem_complete', 'k'),
	idem_fail => call('idem_fail', 'k'),
	idem_release => call('idem_release', 'k'),
	idem_renew => call('idem_renew', 'k', token => "'$token'"),
	idem_checkpoint => call('idem_checkpoint', 'k', token => "'$token'", checkpoint => q('c')),
	idem_guard => call('idem_guard', 'k', token => "'$token'"),
	idem_lookup => call('idem_lookup', 'k'),
	idem_once => call('idem_once', 'k'),
	idem_once_batch => q{SELECT * FROM idem_once_batch('acme', 'pay', '{a}')},
	idem_run => q{SELECT * FROM idem_run('acme', 'pay', 'k', '{}', 'echo(jsonb)')});
my $settled = sub { my ($key) = @_; 'BEGIN; ' . claim($key) . '; ' . call('idem_complete', $key, columns => q('settled')) . '; COMMIT' };

# --- account_from, preloaded
my $node = new_node('settings', worker => 0, init => [ allows_streaming => 1 ]);
$node->safe_psql('postgres', $roles);
my $admin = session($node);
$admin->ok(q(ALTER SYSTEM SET pg_idem.account_from = 'role'));
$node->reload;
wait_until($admin, 'SHOW pg_idem.account_from', 'role');

my $refused = session($node, user => 'shop', options => '-c pg_idem.account_from=argument', may_fail => 1);
like($refused->err, qr/permission denied to set parameter "pg_idem.account_from"/, 'account_from: preloaded, a start-up option of a client is refused');
ok($refused->closed, 'account_from: with its connection');
$refused->quit;
my $shop = session($node, user => 'shop');
is($shop->try(q(SET pg_idem.account_from = 'argument')), '42501', 'account_from: nor may it be SET');
foreach my $name (sort keys %with_account)
{
	is($shop->try($with_account{$name}), '42501', "account_from: $name for the account of another");
}
isnt($shop->ok(q(SELECT idem_fingerprint('{}'))), '', 'account_from: what takes no account works');
is($shop->ok($settled->([ 'shop', 'pay', 'own' ])), "claimed\nsettled", 'account_from: role: its own account');
my $clerk = session($node, user => 'clerk');
is($clerk->ok($settled->('member')), "claimed\nsettled", 'account_from: role: an account of which it is a member');
is($clerk->try(claim([ 'shop', 'pay', 'own' ])), '42501', 'account_from: role: not another one');
is($clerk->ok('SET ROLE acme; ' . $settled->('set role') . '; RESET ROLE'), "claimed\nsettled", 'account_from: role: after SET ROLE');
$admin->ok(q{
	CREATE FUNCTION as_admin(account text, key text) RETURNS text LANGUAGE sql SECURITY DEFINER
	  AS $$ SELECT outcome::text FROM idem_claim(account, 'pay', key, request => '{"amount": 1}') $$;
	GRANT EXECUTE ON FUNCTION as_admin TO PUBLIC;
});
is($shop->try(q(SELECT as_admin('acme', 'member'))), '42501', 'account_from: role: the outer user counts in a SECURITY DEFINER function');
is($clerk->ok(q(SELECT as_admin('acme', 'member'))), 'completed', 'account_from: role: who may be a member');
is($admin->ok($settled->('by superuser')), "claimed\nsettled", 'account_from: role: a superuser is a member of every role');
is($shop->try(claim([ 'nosuchrole', 'pay', 'x' ])), '42501', 'account_from: role: no such role');

$admin->ok(q(ALTER ROLE shop SET pg_idem.account_from = 'setting:app.tenant'));
$shop = session($node, user => 'shop');
is($shop->try(claim('k')), '42501', 'account_from: setting: not set');
$shop->ok(q(SET app.tenant = 'acme'));
is($shop->ok(claim('member')), 'completed', 'account_from: setting: equal');
is($shop->try(claim([ 'shop', 'pay', 'own' ])), '42501', 'account_from: setting: other');
$shop->ok(q(SET app.tenant = ''));
is($shop->try(claim('member')), '42501', 'account_from: setting: empty');
$admin->ok(q(ALTER ROLE shop SET pg_idem.account_from = 'setting:request.jwt.claims#/app/tenant'));
$shop = session($node, user => 'shop');
is($shop->try(claim('member')), '42501', 'account_from: pointer: not set');
$shop->ok(q(SET request.jwt.claims = '{"app": {"tenant": "acme"}}'));
is($shop->ok(claim('member')), 'completed', 'account_from: pointer: equal');
foreach my $bad ('{"app": {"tenant": "other"}}', '{"app": {}}', '{"tenant": "acme"}', 'no json', '[]', '{"app": {"tenant": ["acme"]}}')
{
	$shop->ok("SET request.jwt.claims = '$bad'");
	is($shop->try(claim('member')), '42501', "account_from: pointer: $bad");
}
foreach my $bad ('', 'none', 'setting:', 'setting:#/a', 'roles')
{
	isnt($admin->try("SET pg_idem.account_from = '$bad'"), '', "account_from: '$bad' is no value");
}
$admin->ok(q(ALTER ROLE shop RESET pg_idem.account_from; ALTER SYSTEM RESET pg_idem.account_from));
$node->reload;
wait_until($admin, 'SHOW pg_idem.account_from', 'argument');

# --- who may set what
$shop = session($node, user => 'shop');
foreach my $setting ('max_claims_per_transaction = 5', 'force_sync_commit = off', q(account_from = 'role'), q(test_now = '2030-01-01'))
{
	is($shop->try("SET pg_idem.$setting"), '42501', "only superusers set $setting");
	is($admin->try("SET pg_idem.$setting"), '', "superusers do");
	$admin->ok('RESET ALL');
}
is($shop->try(q(SET pg_idem.idle_claim_timeout = '1s')), '', 'everybody sets idle_claim_timeout');
is($admin->ok('SHOW pg_idem.idle_claim_timeout'), '1min', 'idle_claim_timeout: default');
is($admin->ok('SHOW pg_idem.max_claims_per_transaction'), '1000', 'max_claims_per_transaction: default');
is($admin->ok('SHOW pg_idem.force_sync_commit'), 'on', 'force_sync_commit: default');
is($shop->try('SET pg_idem.nosuch = 1'), '42602', 'the prefix is reserved');

# --- test_now moves the clock
$admin->ok($settled->('clock'));
is($admin->ok(q(SET pg_idem.test_now = '2200-01-01'; ) . call('idem_lookup', 'clock', columns => 'state')), '', 'test_now: forgotten long since');
is($admin->ok(q(SET pg_idem.test_now = ''; ) . call('idem_lookup', 'clock', columns => 'state')), 'completed', 'test_now: empty is the real clock');
is($admin->try(q(SET pg_idem.test_now = 'no time')), '22023', 'test_now: not a time');
# Nothing can be parsed where the file is read, for there is no transaction: the first call tells.
$admin->ok(q(ALTER SYSTEM SET pg_idem.test_now = '2200-01-01 00:00:00+00'));
$node->reload;
wait_until($shop, 'SHOW pg_idem.test_now', '2200-01-01 00:00:00+00');
is($shop->ok(call('idem_lookup', 'clock', columns => 'state')), '', 'test_now: of the configuration file');
$admin->ok('ALTER SYSTEM RESET pg_idem.test_now');
$node->append_conf('postgresql.conf', q(pg_idem.test_now = 'no time'));
$node->reload;
wait_until($shop, 'SHOW pg_idem.test_now', 'no time');
like($shop->try(call('idem_lookup', 'clock')), qr/^22/, 'test_now: wrong in the configuration file: the call raises');
$node->append_conf('postgresql.conf', q(pg_idem.test_now = ''));
$node->reload;
wait_until($shop, 'SHOW pg_idem.test_now', '');
$admin->ok('RESET pg_idem.test_now');
is($shop->ok(call('idem_lookup', 'clock', columns => 'state')), 'completed', 'test_now: of one session only');

# --- idle_claim_timeout
sub idle
{
	my ($name, @sql) = @_;
	my $s = session($node, name => $name);
	$s->ok($_) foreach @sql;
	return $s;
}
$admin->ok(claim('guarded', lease => q('1 h'), token => "'$token'"));
my $short = q(SET pg_idem.idle_claim_timeout = '300ms');
my %ends = (
	claim => idle('claim', $short, 'BEGIN; ' . claim('idle-claim')),
	leased => idle('leased', $short, 'BEGIN; ' . claim('idle-lease', lease => q('1 h'))),
	guard => idle('guard', $short, 'BEGIN; ' . call('idem_guard', 'guarded', token => "'$token'")),
	settled => idle('settled', $short, 'BEGIN; ' . claim('idle-settled') . '; ' . call('idem_complete', 'idle-settled')),
	savepoint => idle('savepoint', $short, 'BEGIN', 'SAVEPOINT a; ' . claim('idle-savepoint') . '; RELEASE a'),
	late => idle('late', 'BEGIN', 'SAVEPOINT a', $short, claim('idle-late')));
my %stays = (
	none => idle('none', $short, 'BEGIN'),
	lookup => idle('lookup', $short, 'BEGIN; ' . call('idem_lookup', 'clock')),
	replay => idle('replay', $short, 'BEGIN; ' . claim('clock')),
	after => idle('after', $short, $settled->('idle-after'), 'BEGIN; SELECT 1'),
	rollback => idle('rollback', $short, 'BEGIN; ' . claim('idle-rollback'), 'ROLLBACK; BEGIN; SELECT 1'),
	no_transaction => idle('no_transaction', $short, $settled->('idle-none')),
	own_timeout => idle('own_timeout', $short, q(SET idle_in_transaction_session_timeout = '1h'), 'BEGIN; ' . claim('idle-own')),
	off => idle('off', 'SET pg_idem.idle_claim_timeout = 0', 'BEGIN; ' . claim('idle-off')));
my $sleeper = idle('sleeper', $short, 'BEGIN; ' . claim('idle-sleeper'));
$sleeper->send(q(SELECT pg_sleep(1), 'awake'));
foreach my $name (sort keys %ends)
{
	wait_until($admin, "SELECT count(*) FROM pg_stat_activity WHERE application_name = '$name'", '0', $name);
	is($ends{$name}->try('SELECT 1'), '25P03', "G5: idle_claim_timeout ends an idle transaction ($name)");
}
is($sleeper->get, '', 'G5: idle_claim_timeout leaves a transaction that is not idle alone');
is($admin->ok(claim('idle-claim', columns => q(outcome, idem_release('acme', 'pay', 'idle-claim')))), 'claimed|t', 'G5: the key is free');
foreach my $name (sort keys %stays)
{
	is($stays{$name}->try('SELECT 1'), '', "idle_claim_timeout does not end $name");
}
is($stays{own_timeout}->ok('SHOW idle_in_transaction_session_timeout'), '1h', 'idle_claim_timeout leaves the setting alone');
$_->quit foreach values %ends, values %stays, $sleeper;

# --- synchronous standbys are named, but there is none: what waits, waits for ever
$admin->ok(q(ALTER SYSTEM SET synchronous_standby_names = 'nobody'));
$admin->ok(q(ALTER SYSTEM SET synchronous_commit = 'off'));
$node->reload;
wait_until($admin, 'SHOW synchronous_standby_names', 'nobody');
my $waits = sub {
	my ($name, $setup, $sql) = @_;
	my $s = session($node);
	$s->ok($setup) if $setup;
	$s->ok('SET client_min_messages = error');
	$s->send($sql . q(; SHOW synchronous_commit));
	# Done, or waiting for the standby
	my $waited;
	for (1 .. 2000)
	{
		last unless $s->busy;
		last if $waited = $admin->ok(q(SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND pid = ) . $s->pid);
	}
	if ($waited)
	{
		$admin->ok('SELECT pg_cancel_backend(' . $s->pid . ')');
		# Each later commit of the same send has to be cancelled too.
		while ($s->busy)
		{
			$admin->ok('SELECT pg_cancel_backend(' . $s->pid . ") FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND pid = " . $s->pid);
		}
	}
	is($s->get, '', "$name: no error");
	my ($setting) = $s->out =~ /(\w+)\z/;
	$s->quit;
	return ($waited ? 1 : 0) . " $setting";
};
is($waits->('control', '', q(INSERT INTO effects VALUES ('control'))), '0 off', 'control: a commit without us does not wait for the standby');
foreach my $level ('off', 'local', 'remote_write')
{
	is($waits->("settlement at $level", "SET synchronous_commit = $level", $settled->("sync-$level")), "1 $level",
		"G1: a settlement waits for a synchronous standby at $level, and the setting is as before afterwards");
}
is($waits->('remote_apply', 'SET synchronous_commit = remote_apply', $settled->('sync-apply')), '1 remote_apply', 'G1: a higher setting stays');
is($waits->('lease', '', claim('sync-lease', lease => q('1 h'))), '1 off', 'G1: a leased claim waits for it');
is($waits->('message', '', call('idem_once', 'sync-once')), '1 off', 'G1: a message waits for it');
is($waits->('savepoint', '', 'BEGIN; SAVEPOINT a; ' . claim('sync-sp') . '; ' . call('idem_complete', 'sync-sp') . '; RELEASE a; COMMIT'), '1 off', 'G1: a settlement in a savepoint');
is($waits->('replay', '', claim('sync-off')), '0 off', 'a replay does not wait');
is($waits->('off', 'SET pg_idem.force_sync_commit = off', $settled->('sync-unforced')), '0 off', 'force_sync_commit = off: nothing waits');
$admin->ok(q(SET synchronous_commit = local; ALTER SYSTEM RESET ALL));
$node->reload;
$_->quit foreach $admin, $shop, $clerk;
$node->stop;

# --- not preloaded: a client could have the setting switched off before the library is there
$node = new_node('not_preloaded', worker => 0, preload => 0, conf => q(pg_idem.account_from = 'role'));
$node->safe_psql('postgres', $roles);
$shop = session($node, user => 'shop');
is($shop->try(claim('k')), '42501', 'account_from: not preloaded: the value of the configuration file counts');
is($shop->ok($settled->([ 'shop', 'pay', 'own' ])), "claimed\nsettled", 'account_from: not preloaded: its own account');
foreach my $value (qw(argument role))
{
	my $client = session($node, user => 'shop', options => "-c pg_idem.account_from=$value");
	foreach my $name (sort keys %with_account)
	{
		is($client->try($with_account{$name}), '42501', "account_from: not preloaded, '$value' from a client's start-up option: $name is refused");
	}
	is($client->try(claim([ 'shop', 'pay', 'own' ])), '42501', 'account_from: even for its own account');
	$client->quit;
}
my $client = session($node, user => 'shop');
$client->ok(q(SET pg_idem.account_from = 'argument'));
is($client->try(claim([ 'shop', 'pay', 'own' ])), '42501', 'account_from: not preloaded, SET before the library is loaded: refused');
is($client->try(claim('k')), '42501', 'account_from: for every account');
$client->quit;
$node->safe_psql('postgres', q(ALTER ROLE shop SET pg_idem.account_from = 'setting:app.tenant'));
$client = session($node, user => 'shop', options => '-c app.tenant=acme');
is($client->try(claim('k', lease => q('1 h'))), '', 'account_from: not preloaded: of the role, set by a superuser');
is($client->try(claim([ 'shop', 'pay', 'own' ])), '42501', 'account_from: not preloaded: the other account');
$client->quit;
# A value that is no rule, given to a role or a database while the library was not there to refuse it: the server would drop it for the
# default, which permits every account.
foreach my $where ('ROLE shop', 'DATABASE postgres', 'ROLE shop IN DATABASE postgres')
{
	foreach my $bad ('rol', 'settings:app.tenant', 'setting:', '')
	{
		$node->safe_psql('postgres', "ALTER ROLE shop RESET pg_idem.account_from; ALTER $where SET pg_idem.account_from = '$bad'");
		$client = session($node, user => 'shop', options => '-c app.tenant=acme');
		foreach my $name ($bad eq 'rol' ? sort keys %with_account : 'idem_claim')
		{
			is($client->try($with_account{$name}), '42501', "account_from: not preloaded, '$bad' by ALTER $where: $name is refused");
		}
		is($client->try(claim([ 'shop', 'pay', 'own' ])), '42501', "account_from: '$bad' by ALTER $where: even for its own account");
		is($client->ok(q(SELECT idem_fingerprint('{}') IS NOT NULL)), 't', "account_from: '$bad' by ALTER $where: what takes no account works");
		$client->quit;
	}
	# A valid one works, and so does none
	$node->safe_psql('postgres', "ALTER $where SET pg_idem.account_from = 'role'");
	$client = session($node, user => 'shop');
	is($client->try(claim('k')), '42501', "account_from: not preloaded, 'role' by ALTER $where: not for the account of another");
	is($client->ok(claim([ 'shop', 'pay', 'own' ])), 'completed', "account_from: not preloaded, 'role' by ALTER $where: its own account");
	$client->quit;
	$node->safe_psql('postgres', "ALTER $where SET pg_idem.account_from = 'argument'");
	$client = session($node, user => 'shop');
	is($client->try(claim("by $where", lease => q('1 h'))), '', "account_from: not preloaded, 'argument' by ALTER $where: every account");
	$client->quit;
	$node->safe_psql('postgres', "ALTER $where RESET pg_idem.account_from");
}
$shop->quit;
my $su = session($node);
is($su->ok('SET pg_idem.nosuch = 1; SELECT 1'), '1', 'the prefix is not reserved before the library is loaded');
$su->ok(q(SELECT idem_fingerprint('{}')));
is($su->try('SET pg_idem.nosuch = 1'), '42602', 'and is from then on');
$su->quit;

# --- preloaded with a value that is no rule: the server would drop it for the default, which permits every account
my $doctor = sub { my ($s, $check) = @_; return $s->ok("SELECT status || ': ' || detail FROM idem_doctor() WHERE check_name = '$check'") };
$node->safe_psql('postgres', q(ALTER ROLE acme SET pg_idem.account_from = 'settings:app.tenant'));
$node->append_conf('postgresql.conf', "shared_preload_libraries = 'pg_idem'\npg_idem.account_from = 'rol'");
$node->restart;
$shop = session($node, user => 'shop');
$admin = session($node);
foreach my $name (sort keys %with_account)
{
	is($shop->try($with_account{$name}), '42501', "account_from: 'rol' when the server started: $name is refused");
}
is($shop->try(claim([ 'shop', 'pay', 'own' ])), '42501', 'account_from: even for its own account');
like($shop->err, qr/^HINT:.*"pg_idem\.account_from"/m, 'account_from: the hint names the setting');
is($admin->try(claim('k')), '42501', 'account_from: for a superuser too');
is($shop->ok(q(SELECT idem_fingerprint('{}') IS NOT NULL)), 't', 'account_from: what takes no account works');
is($doctor->($admin, 'account_from'), 'critical: pg_idem.account_from is not valid: every call fails with 42501', 'account_from: idem_doctor says so');
like($doctor->($admin, 'configuration'), qr/^warning: "\S*postgresql\.conf" line \d+: pg_idem\.account_from could not be applied$/, 'and names the line');
my $parallel = $admin->ok('SHOW server_version_num') < 160000 ? 'force_parallel_mode' : 'debug_parallel_query';
is($admin->ok("SET $parallel = on; SELECT current_setting('pg_idem.account_from') FROM pg_class LIMIT 1"), 'rol', 'account_from: a parallel worker starts with the same value');
$admin->quit;

# Of a role, from the time before the preload
$node->append_conf('postgresql.conf', q(pg_idem.account_from = 'role'));
$node->reload;
wait_until($shop, 'SHOW pg_idem.account_from', 'role');
is($shop->ok(claim([ 'shop', 'pay', 'own' ])), 'completed', 'account_from: put right by a reload');
$clerk = session($node, user => 'acme');
is($clerk->try(claim('k')), '42501', 'account_from: a value of the role that is no rule');
$clerk->quit;

# A reload with a wrong value: the old one stays; a line that cannot be applied, and a name that does not exist
$node->append_conf('postgresql.conf', q(pg_idem.account_from = 'arguments'));
$node->append_conf('postgresql.conf', "pg_idem.naptime = 'soon'\npg_idem.acount_from = 'role'\npg_idem.max_workers = 2");
$node->reload;
wait_until($shop, 'SHOW pg_idem.max_workers', '2');
is($shop->ok('SHOW pg_idem.account_from'), 'role', 'account_from: after a reload with a wrong value the old one stays');
is($shop->try(claim('k')), '42501', 'account_from: and is in force');
$admin = session($node);
is($doctor->($admin, 'configuration') =~ s/"\S+" line \d+/LINE/gr,
	join("\n", map { "warning: LINE: pg_idem.$_ could not be applied" } qw(account_from naptime acount_from)), 'idem_doctor: lines that could not be applied');
$admin->ok('CREATE ROLE guest; GRANT EXECUTE ON FUNCTION idem_doctor TO guest; SET ROLE guest');
is($doctor->($admin, 'configuration'), 'ok: only a superuser may look into the configuration files', 'idem_doctor: not for everybody');
$_->quit foreach $shop, $admin;
$node->stop;
done_testing();
