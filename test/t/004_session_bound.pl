# Session-bound claims are free the moment their session ends.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";

use PgIdemTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

foreach my $preload (1, 0)
{
	my $with = $preload ? 'preloaded' : 'not preloaded';
	my $node = new_node("session_bound$preload", worker => 0, preload => $preload);
	my $admin = session($node);
	$admin->ok(
		q{
		CREATE ROLE shop LOGIN;
		GRANT USAGE ON SCHEMA public TO shop;
		GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA public TO shop;
	});
	my %bound = (lease => q('1 h'), session_bound => 'true');
	my $owner = session($node);
	my $rival = session($node, user => 'shop');
	is($owner->ok(claim('k', %bound, owner => q('worker 1'))), 'claimed', "$with: claimed");
	is($owner->ok(claim('released', %bound, token => q('44444444-4444-4444-4444-444444444444'))), 'claimed', "$with: claimed");
	is($owner->ok(call('idem_release', 'released', token => q('44444444-4444-4444-4444-444444444444'))), 't', 'released');
	is($owner->ok(claim('lookup', %bound)), 'claimed', "$with: claimed");
	is($owner->ok(claim('checkpointed', %bound, token => q('44444444-4444-4444-4444-444444444444'))), 'claimed', "$with: claimed");
	$owner->ok(call('idem_checkpoint', 'checkpointed', token => q('44444444-4444-4444-4444-444444444444'), checkpoint => q('half')));
	is($owner->ok('BEGIN; ' . claim('uncommitted', %bound)), 'claimed', "$with: claimed");

	is($rival->ok(claim('k', columns => 'outcome, holder')), 'in_progress|worker 1', "G1: $with: its session lives: in progress, also for another role");
	is($rival->ok(call('idem_lookup', 'k', columns => 'state')), 'in_progress', "G8: $with: seen so by lookup");

	# The observer has looked at the owner's session before, in the very transaction in which it looks again.
	my $observer = session($node, user => 'shop');
	$observer->ok('BEGIN; SELECT count(*) FROM pg_stat_activity');
	is($observer->ok(claim('k')), 'in_progress', "G1: $with: in progress");
	is($observer->ok(call('idem_lookup', 'lookup', columns => 'state')), 'in_progress', "G8: $with: in progress");
	my $pid = $owner->pid;
	$admin->ok("SELECT pg_terminate_backend($pid)");
	# Until it is off the list of running processes: that is when its locks and its transaction are gone too.
	wait_until($admin, "SELECT count(*) FROM pg_stat_activity WHERE pid = $pid", '0');
	is($observer->ok(call('idem_lookup', 'lookup', columns => 'state')), 'interrupted', "G5: $with: lookup sees it end within one transaction");
	is($observer->ok(claim('k', lease => q('1 h'), columns => 'outcome, attempt')), 'recovered|2', "G5: $with: the next claim recovers at once");
	is($observer->ok(claim('checkpointed', lease => q('1 h'), columns => 'outcome, attempt, checkpoint')),
		'recovered|2|half', "G5: $with: with its checkpoint");
	is($observer->ok(claim('uncommitted', lease => q('1 h'), columns => 'outcome, attempt')), 'claimed|1', "G1: $with: uncommitted claim is as if never made");
	$observer->ok('COMMIT');
	is($rival->ok(claim('released', lease => q('1 h'), columns => 'outcome, attempt')), 'recovered|2', "$with: released one is free as well");
	is($rival->ok(claim('k')), 'in_progress', "G1: $with: the recovered claim is held");

	# Exit in good order, and a claim that comes to another session with its token.
	$owner = session($node);
	my $token = '55555555-5555-5555-5555-555555555555';
	$owner->ok(claim('bye', %bound) . '; ' . claim('moved', %bound, token => "'$token'"));
	my $heir = session($node);
	is($heir->ok(claim('moved', %bound, token => "'$token'", columns => 'outcome, attempt')), 'claimed|1', "$with: the same answer to the same token");
	$pid = $owner->pid;
	$owner->quit;
	wait_until($admin, "SELECT count(*) FROM pg_stat_activity WHERE pid = $pid", '0');
	is($rival->ok(claim('bye', lease => q('1 h'), columns => 'outcome, attempt')), 'recovered|2', "G5: $with: free after a normal exit");
	is($rival->ok(claim('moved')), 'in_progress', "G1: $with: it belongs to the calling session now");
	is($heir->ok(call('idem_guard', 'moved', token => "'$token'", columns => 'r > now()')), 't', "G6: $with: who may go on");
	$pid = $heir->pid;
	$heir->quit;
	wait_until($admin, "SELECT count(*) FROM pg_stat_activity WHERE pid = $pid", '0');
	is($rival->ok(claim('moved', lease => q('1 h'), columns => 'outcome, attempt')), 'recovered|2', "G5: $with: and ends with it");

	# The session's end frees it under the rule of the policy too, and the dead owner's token is worth nothing.
	$admin->ok(q(INSERT INTO idem_policies (action, on_interrupt) VALUES ('once', 'fail'), ('human', 'review')));
	my $lost = session($node);
	$lost->ok(claim([ 'acme', 'once', 'f' ], %bound, token => "'$token'"));
	$lost->ok(claim([ 'acme', 'human', 'r' ], %bound, token => "'$token'"));
	$pid = $lost->pid;
	$lost->quit;
	wait_until($admin, "SELECT count(*) FROM pg_stat_activity WHERE pid = $pid", '0');
	is($rival->try(call('idem_guard', [ 'acme', 'once', 'f' ], token => "'$token'")), 'IDM02', "G6: $with: rule fail: the end of the session is final");
	is($rival->try(call('idem_guard', [ 'acme', 'human', 'r' ], token => "'$token'")), 'IDM10', "G6: $with: rule review: as well");
	is($rival->ok(claim([ 'acme', 'once', 'f' ], columns => 'outcome, status, result, replayed')),
		'failed|503|{"error": "interrupted"}|t', "G5: $with: failed by rule");
	is($rival->ok(claim([ 'acme', 'human', 'r' ])), 'review', "G5: $with: in review by rule");

	is($admin->try(claim('nolease', session_bound => 'true')), '22023', "G12: $with: session_bound needs a lease");
	$_->quit foreach $admin, $rival, $observer;
	$node->stop;
}
done_testing();
