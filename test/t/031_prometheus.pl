# The stock exporter of Prometheus tells with examples/prometheus/queries.yaml what the views show, as a role that is a
# member of pg_monitor and nothing else.
use strict;
use warnings;

use Cwd 'realpath';
use FindBin;
use HTTP::Tiny;
use lib "$FindBin::RealBin/../perl";

use PgIdemTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes 'usleep';

my $example = realpath("$FindBin::RealBin/../../examples/prometheus");
my ($exporter) = grep { -x } map { my $dir = $_; map { "$dir/$_" } qw(prometheus-postgres-exporter postgres_exporter) } split /:/, $ENV{PATH};
plan skip_all => 'postgres_exporter is not installed' unless $exporter;

# The workers change what the gauges show, at times of their own: none here, until the metrics are compared with the views.
my $node = new_node('prometheus', conf => "pg_idem.worker = off\n");
my $s = session($node);
my $token = 'aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa';
$s->ok('CREATE ROLE exporter LOGIN IN ROLE pg_monitor');
foreach my $k (qw(k1 k2))
{
	$s->ok('BEGIN; ' . claim($k) . '; ' . call('idem_complete', $k) . '; COMMIT; ' . claim($k));
}
$s->ok(claim([ 'acme', 'a "quoted" \\ action', "l$_" ], lease => q('1 h'), token => "'$token'")) foreach 1 .. 3;
$s->ok(call('idem_release', [ 'acme', 'a "quoted" \\ action', 'l1' ], token => "'$token'"));
$s->ok(q(SELECT idem_once('acme', 'mail', 'm' || i) FROM generate_series(1, 5) i));
is($s->try('BEGIN; ' . claim('open') . '; COMMIT'), 'IDM01', 'a claim is not settled');

# ---- the exporter, on a port of the loopback interface

my $port = PostgreSQL::Test::Cluster::get_free_port();
my $log = "$PostgreSQL::Test::Utils::log_path/exporter.log";
local $ENV{DATA_SOURCE_NAME} = 'user=exporter dbname=postgres sslmode=disable host=' . $node->host . ' port=' . $node->port;
my $run = IPC::Run::start [ $exporter, "--extend.query-path=$example/queries.yaml", "--web.listen-address=127.0.0.1:$port",
	'--disable-default-metrics', '--disable-settings-metrics' ], '<', \undef, '>', $log, '2>&1';

END { $run->kill_kill if $run; }    # where the test dies

sub scrape
{
	my $answer;
	for (1 .. 10 * $PostgreSQL::Test::Utils::timeout_default)
	{
		$answer = HTTP::Tiny->new(proxy => undef, http_proxy => undef, timeout => 30)->get("http://127.0.0.1:$port/metrics");
		last if $answer->{success} || !$run->pumpable;
		usleep(100_000);    # it is starting
	}
	return $answer->{success} ? $answer->{content} : die "no metrics: $answer->{content}\n" . slurp_file($log);
}

# {metric}{action} => value
sub metrics
{
	my ($text) = @_;
	my %found;
	while ($text =~ /^(pg_idem\w*)\{(.*)\} (\S+)$/mg)
	{
		my ($name, $labels, $value) = ($1, $2, $3);
		my %label;
		while ($labels =~ /(\w+)="((?:[^"\\]|\\.)*)"/g)
		{
			my ($label, $escaped) = ($1, $2);
			$label{$label} = $escaped =~ s/\\(.)/$1/gr;
		}
		is($label{datname}, 'postgres', "$name: datname") unless $found{$name};
		$found{$name}{ $label{action} // '' } = $value + 0;
	}
	return \%found;
}

my $text = scrape();
like($text, qr/^pg_exporter_last_scrape_error(\{.*\})? 0$/m, 'no error') or diag slurp_file($log);
my $metrics = metrics($text);

# ---- as in the views

my %shown;
foreach my $line (split /\n/, $s->ok(q{
	SELECT 'pg_idem_stats_' || e.key || '_total', e.value, s.action FROM idem_stats s, jsonb_each_text(to_jsonb(s) - 'action' - 'stats_reset') e
	UNION ALL
	SELECT 'pg_idem_' || e.key, e.value, '' FROM idem_gauges g, jsonb_each_text(to_jsonb(g)) e WHERE e.key NOT LIKE 'oldest%'}))
{
	my ($name, $value, $action) = split /\|/, $line, 3;
	$shown{$name}{$action} = $value + 0;
}
is(scalar(keys %{ $shown{pg_idem_stats_claims_total} }), 3, 'three actions');
is_deeply($metrics->{$_}, $shown{$_}, $_) foreach sort keys %shown;
is($metrics->{pg_idem_stats_unsettled_total}{pay}, 1, 'a counter');
is($metrics->{pg_idem_in_flight}{''}, 2, 'a gauge');
foreach my $age (qw(in_flight interrupted))
{
	my $value = $metrics->{"pg_idem_oldest_${age}_seconds"}{''};
	ok($value > 0 && $value < 600, "age of the oldest: $age");
}
is($metrics->{pg_idem_oldest_review_seconds}{''}, 0, 'age of the oldest: review: there is none');
my $worker = sub {
	my ($found) = @_;
	return { map { /^pg_idem_worker_(.*)/ ? ($1 => $found->{$_}{''}) : () } keys %$found };
};
my $none = $worker->($metrics);
my $age = delete $none->{last_pass_age_seconds};
ok($age > 0 && $age < 600, 'no pass: since the server started');
is_deeply($none, { last_pass_duration_seconds => 0, last_pass_rows => 0, recent_error => 0 }, 'no pass');
is(join(' ', grep { !$shown{$_} && !/_seconds$/ && !/^pg_idem_worker_/ } sort keys %$metrics), '', 'no other metrics');
like($text, qr/^# TYPE pg_idem_stats_claims_total counter$/m, 'kind of a counter');
like($text, qr/^# TYPE pg_idem_review gauge$/m, 'kind of a gauge');
unlike($text, qr/acme|"k1"/, 'no account and no key');

$s->ok(claim('k1'));
is(metrics(scrape())->{pg_idem_stats_replays_total}{pay}, $metrics->{pg_idem_stats_replays_total}{pay} + 1, 'it moves');

# ---- the workers

my $pass = sub {
	my ($until) = @_;
	switch_workers($node, $s, 'on');
	wait_until($s, "SELECT $until AND worker_pid IS NULL FROM idem_worker_status WHERE database = 'postgres'");
	switch_workers($node, $s, 'off');
	return;
};
$s->ok(q(
	INSERT INTO idem_seen (seen_at, forget_at, account, action, key) SELECT now(), now(), 'acme', 'mail', 'old' || i FROM generate_series(1, 7) i
));
$pass->('last_rows >= 7');    # and what was released, which it looks after too
my $made = $worker->(metrics(scrape()));
my ($least, $took, $rows) = split /\|/, $s->ok(q(SELECT EXTRACT(epoch FROM clock_timestamp() - last_pass), last_ms / 1000, last_rows FROM idem_worker_status WHERE database = 'postgres'));
$age = delete $made->{last_pass_age_seconds};
ok($age > 0 && $age <= $least, 'a pass: its age');
cmp_ok(abs(delete($made->{last_pass_duration_seconds}) - $took), '<', 1e-6, 'a pass: its duration');
is_deeply($made, { last_pass_rows => $rows, recent_error => 0 }, 'a pass');
$s->ok('ALTER TABLE idem_seen SET UNLOGGED');
$pass->('last_error IS NOT NULL');
$s->ok('ALTER TABLE idem_seen SET LOGGED');
is($worker->(metrics(scrape()))->{recent_error}, 1, 'a pass that met an error');

my @used = slurp_file("$example/alerts.yaml") =~ /\b(pg_idem_\w+)/g;
is(join(' ', grep { !$metrics->{$_} } @used), '', 'the alerts use metrics that there are');
cmp_ok(scalar(@used), '>', 5, 'there are alerts');

$run->signal('TERM');
$run->finish;
undef $run;
$s->quit;
$node->stop;
done_testing();
