# A payment provider outside the database, whose answers get lost, and clients that die at every step: it never charges twice for one
# operation, and past its window nobody calls it again.
use strict;
use warnings;

use FindBin;
use HTTP::Tiny;
use JSON::PP;
use lib "$FindBin::RealBin/../perl";

use PgIdemTest;
use PgIdemTest::Crew;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time usleep);

my $crew = PgIdemTest::Crew->new('effects', 'psycopg2') or plan skip_all => 'python3 with psycopg2 is not installed';
my $operations = $ENV{PG_IDEM_LARGE} ? 3000 : 300;

my $node = new_node('effects', worker => 0);
my $s = session($node);
$s->ok(slurp_file("$crew->{programs}/schema.sql"));
$s->ok($crew->grants);

# Each program as the role that the README gives it.
sub database { return ('--database', $node->connstr('postgres') . " user=$_[0]"); }

my $http = HTTP::Tiny->new(proxy => undef, http_proxy => undef, timeout => 30);
my ($port, $hook) = map { PostgreSQL::Test::Cluster::get_free_port() } 1 .. 2;
my $url = "http://127.0.0.1:$port";
my $dir = PostgreSQL::Test::Utils::tempdir();

# A provider that remembers keys for so many seconds.
sub provider
{
	my ($window, @more) = @_;
	$crew->hire(provider => [ 'provider.py', '--port', $port, '--books', "$dir/books-$window", '--window', $window, @more ]);
	usleep(20_000) until $http->get("$url/books")->{success};
	return;
}

sub faults { $http->post("$url/faults", { content => encode_json({@_}) }); return; }
sub books { return decode_json($http->get("$url/books")->{content}); }

my ($window, @client) = (600, '--pause', '0.02', '--provider', $url);
sub pay
{
	my ($key, $options, %env) = @_;
	return join ' ', $crew->run([ 'pay.py', database('shop'), @client, '--window', $window, @{ $options // [] }, 'shop', 25, ref $key ? @$key : $key ], %env);
}

sub reconcile { my ($status, $out) = $crew->run([ 'reconcile.py', database('reconcile'), '--provider', $url ]); return $out; }
sub effect { return $s->ok("SELECT state || ' ' || generation FROM idem_effects WHERE key = '$_[0]' ORDER BY generation DESC LIMIT 1"); }

# Nobody waits for a dead client's lease here.
sub lease_ends { $s->ok("UPDATE idem_inflight SET lease_expires_at = now() - interval '1 s' WHERE key = '$_[0]'"); return; }

# ---- inside the window

provider(600);
is(pay('plain'), '0 plain: completed', 'G11: a payment');
is(pay('plain'), '0 plain: completed', 'again: replayed');
is(books()->{charges}{'shop/plain'}, 1, 'charged once');
is(books()->{requests}, 1, 'called once');

my %dies = (
	'claim after' => 'before anything is written of the effect',
	'ask before' => 'before the call',
	'ask after' => 'after the call and before the report',
	'settle after' => 'after the report');
foreach my $point (sort keys %dies)
{
	my $key = $point =~ s/ /-/r;
	is(pay($key, [], CHAOS => $point), 'signal 9 ', "a client dies $dies{$point}");
	is(pay($key), $point eq 'settle after' ? "0 $key: completed" : "0 $key: in progress", 'until its lease is over nobody else carries it out') ;
	lease_ends($key);
	is(pay($key), "0 $key: completed", 'then the next one goes on');
	is(books()->{charges}{"shop/$key"}, 1, 'G11: charged once');
}
is(books()->{requests}, 6, 'G11: called a second time only where the answer was lost, under the same key');

faults(drop => 1);
is(pay('dropped'), '0 dropped: not known yet', 'the answer is lost, each time');
is(books()->{charges}{'shop/dropped'}, 1, 'G11: three calls, one charge');
is(effect('dropped'), 'call 1', 'it may be called again');
my $token = $s->ok(q{SELECT token FROM idem_claim('shop', 'pay', 'dropped', request => '{"operation": "shop/dropped", "amount": 25}', lease => '1 min')});
is($s->try("SELECT idem_fail('shop', 'pay', 'dropped', token => '$token')"), 'IDM11', 'G11: a time-out is no failure: it cannot be recorded as one');
is($s->try("BEGIN; INSERT INTO card_payments VALUES ('shop', 'dropped', 'none'); SELECT idem_complete('shop', 'pay', 'dropped', token => '$token'); COMMIT"), 'IDM11', 'G11: nor as a success');
$s->try('ROLLBACK');
$s->ok("SELECT idem_release('shop', 'pay', 'dropped', token => '$token')");
faults();
is(pay('dropped'), '0 dropped: completed', 'later it answers');
is(books()->{charges}{'shop/dropped'}, 1, 'G11: charged once');

faults(refuse => 1);
is(pay('refused'), '0 refused: not known yet', 'the provider has trouble');
faults(decline => 1);
is(pay('refused'), '0 refused: failed', 'the card is declined: a final answer');
faults();
is(pay('refused'), '0 refused: failed', 'replayed');
is(books()->{charges}{'shop/refused'}, undef, 'not charged');

faults(busy => 1);
is(pay('busy'), '0 busy: not known yet', '429 is no answer');
is(effect('busy'), 'call 1', 'G11: nothing is reported');
faults();
is(pay('busy'), '0 busy: completed', 'later it has time');

# ---- two owners

faults(before => 5);
my $calls = books()->{requests};
$crew->hire(first => [ 'pay.py', database('shop'), @client, '--window', $window, 'shop', 25, 'at-it' ]);
usleep(20_000) until books()->{requests} > $calls;
faults();
lease_ends('at-it');
is(pay('at-it'), '0 at-it: not known yet', '409, the provider is at it: no answer');
is(effect('at-it'), 'call 1', 'G11: nothing is reported');
is($crew->wait_for('first'), 0, 'the first owner gets its answer');
is(pay('at-it'), '0 at-it: completed', 'which the next one finds reported');
is(books()->{charges}{'shop/at-it'}, 1, 'G11: charged once');


faults(after => 3);
$crew->hire(slow => [ 'pay.py', database('shop'), @client, '--window', $window, 'shop', 25, 'taken-over' ]);
wait_until($s, q{SELECT count(*) FROM idem_effects WHERE key = 'taken-over'}, '1', 'the first owner to call');
usleep(20_000) until books()->{charges}{'shop/taken-over'};
lease_ends('taken-over');
faults();
is(pay('taken-over'), '0 taken-over: completed', 'another takes over, and calls under the same key');
is($crew->wait_for('slow'), 0, 'the first owner gets its answer too late');
like(slurp_file("$PostgreSQL::Test::Utils::log_path/slow.log"), qr/^taken-over: in progress$/m, 'G6: and settles nothing');
is(books()->{charges}{'shop/taken-over'}, 1, 'G11: charged once');
is($s->ok(q{SELECT count(*) FROM card_payments WHERE key = 'taken-over'}), '1', 'G2: one payment in our books');
$crew->dismiss;

# ---- the window over

sub wait_unknown { return wait_until($s, "SELECT state FROM idem_effects WHERE key = '$_[0]'", 'unknown', 'the window to be over'); }

$window = 2;
provider(2);
foreach my $point ('ask before', 'ask after')
{
	my $key = 'late-' . $point =~ s/ /-/r;
	my $charges = $point eq 'ask after' ? 1 : undef;
	is(pay($key, [], CHAOS => $point), 'signal 9 ', "a client dies $dies{$point}");
	lease_ends($key);
	wait_unknown($key);
	my $requests = books()->{requests};
	is(pay($key), "0 $key: not known yet", 'G11: past the window the answer is unknown');
	is(books()->{requests}, $requests, 'G11: and nobody calls');
	is(effect($key), 'unknown 1', 'it stays so');
	is(books()->{charges}{"shop/$key"}, $charges, $charges ? 'charged once' : 'not charged');
	my $what = $charges ? 'confirmed' : 'absent';
	$crew->tend_until(sub { reconcile() eq "shop pay $key: $what" }, 'the provider to be believed');
	is(reconcile(), '', 'nothing is open');
	is(pay($key), "0 $key: completed", "then it goes on: $what");
	is(effect($key), $charges ? 'confirmed 1' : 'confirmed 2', $charges ? 'with the answer that was reported' : 'with a call under a new key');
	is(books()->{charges}{"shop/$key"}, 1, 'G11: charged once');
}

# ---- the webhook

$crew->dismiss;
$window = 4;
provider(4, '--webhook', "http://127.0.0.1:$hook/");
is(pay('hooked', [], CHAOS => 'ask after'), 'signal 9 ', 'a client dies after the call');
is(effect('hooked'), 'call 1', 'nobody knows');
$crew->hire(webhook => [ 'webhook.py', '--port', $hook, database('webhook') ]);
wait_until($s, q{SELECT state FROM idem_effects WHERE key = 'hooked'}, 'confirmed', 'the webhook');
lease_ends('hooked');
my $requests = books()->{requests};
is(pay('hooked'), '0 hooked: completed', 'G11: the webhook reported what the dead owner could not');
is(books()->{requests}, $requests, 'without another call');
my $key = $s->ok(q{SELECT downstream_key FROM idem_effects WHERE key = 'hooked'});
is($http->post("http://127.0.0.1:$hook/", { content => qq({"key": "$key", "charge": "ch_1", "status": "declined"}) })->{status}, 409, 'IDM04: what contradicts is refused');
is($http->post("http://127.0.0.1:$hook/", { content => qq({"key": "$key", "charge": "ch_1", "status": "succeeded"}) })->{status}, 200, 'what repeats is not');
my $unknown = '00000000-0000-4000-8000-000000000000';
my %event = (
	qq({"key": "$unknown", "status": "declined"}) => 404,
	q({"key": "17", "status": "declined"}) => 400,
	q({"key": 17, "status": "declined"}) => 400,
	q({"status": "declined"}) => 400,
	qq({"key": "$unknown", "status": "lost"}) => 400,
	q(["declined"]) => 400,
	q(declined) => 400);
is($http->post("http://127.0.0.1:$hook/", { content => $_ })->{status}, $event{$_}, "webhook: $_") foreach sort keys %event;

# ---- at random: clients and provider are killed, answers lost; webhook and reconciliation go on

# The clients count on a second less than the provider grants: this machine may be busy.
my %died_before = %{ $crew->deaths };
my @everywhere = ('claim after', 'intend after', 'ask before', 'ask after', 'settle before', 'settle after', 'release after');
my $missing = sub { my $deaths = $crew->deaths; return grep { ($deaths->{$_} // 0) <= ($died_before{$_} // 0) } @everywhere; };
my $unsettled = q{SELECT key FROM unnest('{%s}'::text[]) key WHERE NOT EXISTS (SELECT FROM idempotent_operations o
	WHERE o.account = 'shop' AND o.action = 'pay' AND o.key = key.key AND settled_as IS NOT NULL) ORDER BY random()};
my ($made, @open, %share) = (0);
my ($end, $reconcile_at, $kill_at) = (time + 2 * $PostgreSQL::Test::Utils::timeout_default, 0, 0);
while (1)
{
	@open = split /\n/, $s->ok(sprintf $unsettled, join ',', @open);
	if (@open < 50 && ($made < $operations || $made < 10 * $operations && $missing->()))
	{
		push @open, map { 'r' . $made++ } 1 .. 50;
	}
	last if !@open;
	die "not settled in time: @open" if time > $end;
	if (time >= $kill_at)
	{
		$kill_at = time + 6;
		$crew->murder('provider');
		provider(4, '--webhook', "http://127.0.0.1:$hook/");
		faults(drop => 0.1, refuse => 0.1, decline => 0.1);
	}
	# Each takes what is open, in an order of its own: so they meet.
	foreach my $name (grep { $crew->gone($_) } map { "client $_" } 1 .. 3)
	{
		my @share = @open[ 0 .. ($#open < 30 ? $#open : 30) ];
		$crew->hire($name => [ 'pay.py', database('shop'), @client, '--window', 3, '--lease', 2, '--timeout', 1, 'shop', 25, @share ], CHAOS => 0.4, CHAOS_POINTS => join ',', @everywhere);
		@open = (@open[ @share .. $#open ], @share);
	}
	if (time >= $reconcile_at)
	{
		$reconcile_at = time + 2;
		reconcile();
	}
	usleep(50_000);
}
$crew->wait_for("client $_") foreach 1 .. 3;
my @keys = map { "r$_" } 0 .. $made - 1;
my $charges = books()->{charges};
my %settled = map { split /\|/ } split /\n/, $s->ok(q{SELECT key, settled_as FROM idempotent_operations WHERE account = 'shop' AND key LIKE 'r%'});
is_deeply([ grep { ($charges->{"shop/$_"} // 0) != ($settled{$_} eq 'completed' ? 1 : 0) } @keys ], [], 'G11: charged once where completed, not at all where failed');
is($s->ok(q{SELECT count(*) FROM (SELECT FROM card_payments GROUP BY key HAVING count(*) > 1) x}), '0', 'G2: our books agree');
my $deaths = $crew->deaths;
note "$made operations; " . join ', ', map { "$_ x $deaths->{$_}" } sort keys %$deaths;
is(join(', ', $missing->()), '', 'somebody died everywhere');
my %how;
$how{$_}++ foreach values %settled;
cmp_ok($how{$_} // 0, '>', 0, $_) foreach qw(completed failed);

$crew->dismiss;
$s->quit;
$node->stop;
done_testing();
