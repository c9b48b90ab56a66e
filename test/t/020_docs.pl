# The documentation is true: its SQL examples give what they show, its client programs run, its links lead somewhere, and
# it names every function, setting and error that there is. docs/internals/testing.md describes the notation.
use strict;
use warnings;

use Cwd 'realpath';
use File::Basename;
use FindBin;
use lib "$FindBin::RealBin/../perl";

use PgIdemTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes 'usleep';

my $top = realpath("$FindBin::RealBin/../..");
my @documents = map { substr $_, length "$top/" }
  grep { -e } "$top/README.md", "$top/CHANGELOG.md", "$top/CONTRIBUTING.md", glob("$top/docs/*.md"), glob("$top/docs/*/*.md"),
  glob("$top/src/*/README.md"), glob("$top/examples/*/README.md");
my %text = map { $_ => slurp_file("$top/$_") } @documents;

# Without workers: what a document shows must not depend on when they come.
my $conf = "max_prepared_transactions = 10\npg_idem.worker = off\n";
my $node = new_node('docs', extension => 0, conf => $conf);
my $admin = session($node);

# ---- SQL examples

# The blocks of a document in order: ```sql, and set-up in comments that a reader does not see.
sub sql_blocks
{
	my ($text) = @_;
	my @blocks;
	while ($text =~ /^(?:```sql\n(.*?)^```$|<!-- sql-setup\n(.*?)^-->$)/msg)
	{
		my $block = $1 // $2;
		my $line = 1 + (substr($text, 0, $-[0]) =~ tr/\n//);
		push @blocks, { line => $line, steps => [ steps($block) ], hidden => !defined $1, superuser => $block =~ /^-- as a superuser$/m };
	}
	return @blocks;
}

# Statements, each with what is expected of it.
sub steps
{
	my ($block) = @_;
	my (@steps, $sql);
	my $session = 'main';
	my $add = sub {
		my ($end) = @_;
		push @steps, { session => $session, sql => ($sql // '') . $end, expect => [] };
		undef $sql;
	};
	pos($block) = 0;
	while (pos($block) < length $block)
	{
		if ($block =~ /\G--> ?(.*)\n/gc) { push @{ $steps[-1]{expect} }, $1; }
		elsif ($block =~ /\G-- session (\w+)\b.*\n/gc)
		{
			$session = $1;
			push @steps, { session => $session, expect => [] };    # takes what that session has been waiting for
		}
		elsif ($block =~ /\G--.*\n/gc) { $sql .= "\n" if defined $sql; }
		elsif (!defined $sql && $block =~ /\G\s+/gc) { next; }
		elsif (!defined $sql && $block =~ /\G(\\.*)\n/gc) { $add->($1); }
		elsif ($block =~ /\G(\\gset.*)\n/gc || $block =~ /\G(;)/gc) { $add->($1); }
		elsif ($block =~ /\G(\$(\w*)\$.*?\$\2\$)/gcs || $block =~ /\G('(?:[^']|'')*'|"[^"]*")/gcs || $block =~ /\G([^\\;\$'"-]+|.)/gcs)
		{
			$sql = ($sql // '') . $1;
		}
	}
	die "statement without an end: $sql" if defined $sql && $sql =~ /\S/;
	return @steps;
}

# What a statement gave against lines in which ... stands for anything.
sub same
{
	my ($got, @lines) = @_;
	@lines = () if @lines == 1 && $lines[0] eq '(no rows)';
	my $tidy = sub { return $_[0] =~ s/ *\| */ | /gr =~ s/ +$//mgr; };
	my $pattern = join "\n", map { join '.*', map { quotemeta } split /\.\.\./, $tidy->($_), -1 } @lines;
	return $tidy->($got) =~ /\A$pattern\z/;
}

# Without the preload answers differ (there are no statistics, for one): only errors count.
sub run_step
{
	my ($step, $s, $preloaded) = @_;
	my @expect = $preloaded ? @{ $step->{expect} } : grep { /^ERROR / } @{ $step->{expect} };
	if (defined $step->{sql}) { $s->send($step->{sql}); }
	elsif (!@expect) { return; }
	if (@expect && $expect[0] eq 'waits')
	{
		usleep(200_000);
		return $s->busy ? undef : 'it does not wait';
	}
	my $state = $s->get;
	my $wanted = @expect && $expect[0] =~ /^ERROR (\w{5})$/ ? $1 : '';
	return "SQLSTATE '$state', not '$wanted': " . $s->err if $state ne $wanted;
	return if $wanted || !@expect || same($s->out, @expect);
	return "answer:\n" . $s->out . "\nnot:\n" . join("\n", @expect);
}

# Whoever has to act pastes one block of these into a new session, with the preload or without.
my %stands_alone = map { $_ => 1 } 'docs/operations.md', 'docs/runbook.md';
# The runbook is for a role with these grants; what needs a superuser says so.
my %role = ('docs/runbook.md' => 'shop_operator');
my ($grants) = $text{'docs/operations.md'} =~ /^## Roles and grants\n(.*?)^## /ms;

my $databases = 0;

sub run_document
{
	my ($server, $creator, $document, $preloaded) = @_;
	my @blocks = sql_blocks($text{$document}) or return;
	# after the first set-up, which creates the extension
	splice @blocks, 1, 0, map { +{ %$_, hidden => 1 } } grep { !$_->{hidden} } sql_blocks($grants) if $role{$document};
	my $db = 'docs' . ++$databases;
	$creator->ok("CREATE DATABASE $db");
	my %sessions;
	foreach my $block (@blocks)
	{
		my @wrong;
		foreach my $step (@{ $block->{steps} })
		{
			my $s = $sessions{ $step->{session} } //= do {
				my $new = session($server, dbname => $db);
				$new->ok("\\pset fieldsep ' | '\nSET client_min_messages = warning");
				$new->ok("SET SESSION AUTHORIZATION $role{$document}") if $role{$document} && !$block->{hidden} && !$block->{superuser};
				$new;
			};
			my $wrong = run_step($step, $s, $preloaded);
			push @wrong, ($step->{sql} // "session $step->{session}") . "\n$wrong" if defined $wrong;
		}
		is(join("\n\n", @wrong), '', "$document line $block->{line}: examples" . ($preloaded ? '' : ', not preloaded'));
		if ($stands_alone{$document}) { $_->quit foreach values %sessions; %sessions = (); }
	}
	$_->quit foreach values %sessions;
	return;
}

run_document($node, $admin, $_, 1) foreach @documents;

my $plain = new_node('docs_plain', extension => 0, preload => 0, conf => $conf);
my $plain_admin = session($plain);
run_document($plain, $plain_admin, $_, 0) foreach sort keys %stands_alone;
$plain_admin->quit;
$plain->stop;

# ---- client programs: shown in a document as they stand in docs/examples, and run where their library is installed

my $python = -x '/usr/bin/python3' ? '/usr/bin/python3' : 'python3';
my $work = PostgreSQL::Test::Utils::tempdir();

sub found { return system("{ @_; } >/dev/null 2>&1") == 0; }

# Command that runs a program, '' where its library is missing.
sub runner
{
	my ($file) = @_;
	my $name = basename $file;
	my $path = "$top/$file";
	return found("$python -c 'import psycopg' || $python -c 'import psycopg2'") ? "$python -B $path" : '' if $name =~ /\.py$/;
	return found("node -e 'require(\"pg\")'") ? "node $path" : '' if $name =~ /\.js$/;
	return "psql -XAtq -v ON_ERROR_STOP=1 -f $path" if $name =~ /\.sql$/;
	return "sh $path && echo ended" if $name =~ /\.sh$/;
	if ($name =~ /\.cpp$/)
	{
		return '' unless found('pkg-config --exists libpqxx') && found('g++ --version');
		return "sh -c 'g++ -std=c++17 -o $work/$name.out $path \$(pkg-config --cflags --libs libpqxx) && $work/$name.out'";
	}
	# JDBC reaches no Unix socket: only compiled.
	return found('javac -version') ? "javac -d $work $path && echo ended" : '' if $name =~ /\.java$/;
	die "no way to run $file";
}

# They run as an application with the grants of the README, whose role was created with its examples; the script as a scheduler.
my $app_grants = join "\n", $text{'README.md'} =~ /^(GRANT EXECUTE ON FUNCTION .* TO app;)/mg;
$admin->ok('CREATE ROLE docs_app LOGIN IN ROLE app; CREATE ROLE docs_scheduler LOGIN');

my %shown;
foreach my $document (@documents)
{
	while ($text{$document} =~ /^<!-- file: (\S+) -->\n```\w*\n(.*?)^```$/msg)
	{
		my ($file, $program) = ($1, $2);
		$shown{$file} = 1;
		is($program, -e "$top/$file" ? slurp_file("$top/$file") : 'nothing', "$document shows $file as it is");
	}
}
my @programs = map { substr $_, length "$top/" } grep { -f } glob "$top/docs/examples/*";
is(join(' ', sort keys %shown), join(' ', sort @programs), 'every program in docs/examples is shown');
foreach my $file (@programs)
{
	my $expected = slurp_file("$top/$file") =~ /^\W+ prints: (.*)$/m ? $1 : 'ended';
	my $command = runner($file);
  SKIP:
	{
		skip("$file: library not installed", 1) unless $command;
		my $db = 'program' . ++$databases;
		$admin->ok("CREATE DATABASE $db");
		my $s = session($node, dbname => $db);
		$s->ok('CREATE EXTENSION pg_idem; CREATE TABLE payments (id bigint GENERATED ALWAYS AS IDENTITY, account text, amount numeric)');
		$s->ok("GRANT SELECT, INSERT ON payments TO app; $app_grants; GRANT EXECUTE ON FUNCTION idem_maintain TO docs_scheduler");
		$s->quit;
		local @ENV{qw(PGHOST PGPORT PGDATABASE PGUSER)} = ($node->host, $node->port, $db, $file =~ /\.sh$/ ? 'docs_scheduler' : 'docs_app');
		my $output = qx($command 2>&1);
		is($output =~ s/\s*\n\s*/; /gr =~ s/; \z//r, $expected, "$file runs");
	}
}

# The script for a scheduler: calls until nothing is left to do, and fails where a call does.
{
	$admin->ok('CREATE DATABASE maintained; CREATE ROLE docs_nobody LOGIN');
	my $s = session($node, dbname => 'maintained');
	$s->ok(q{CREATE EXTENSION pg_idem; GRANT EXECUTE ON FUNCTION idem_maintain TO docs_scheduler; SET pg_idem.test_now = '2020-01-01';
		SELECT count(*) FROM generate_series(1, 2500) i, idem_once('acme', 'pay', i::text)});
	local @ENV{qw(PGHOST PGPORT PGDATABASE PGUSER)} = ($node->host, $node->port, 'maintained', 'docs_scheduler');
	my $script = "sh $top/docs/examples/idem-maintain.sh";
	is(system("$script >/dev/null 2>&1"), 0, 'idem-maintain.sh: exit status');
	is($s->ok('SELECT count(*) FROM idem_seen'), '0', 'idem-maintain.sh: all batches');
	local $ENV{PGUSER} = 'docs_nobody';
	isnt(system("$script >/dev/null 2>&1"), 0, 'idem-maintain.sh: no privilege');
	delete local $ENV{PGUSER};
	local $ENV{PGDATABASE} = 'nosuch';
	isnt(system("$script >/dev/null 2>&1"), 0, 'idem-maintain.sh: no connection');
	$s->quit;
}

# ---- links

sub slug
{
	my ($heading) = @_;
	return lc($heading =~ s/[`*]|\[([^\]]*)\]\([^)]*\)/$1 \/\/ ''/ger =~ s/[^\w\- ]//gr) =~ s/ /-/gr;
}

my %anchors;
foreach my $document (@documents)
{
	my $prose = $text{$document} =~ s/^```.*?^```$//msgr;
	my %seen;
	foreach my $slug (map { slug($_) } $prose =~ /^#+ +(.*)$/mg)
	{
		my $n = $seen{$slug}++;
		$anchors{$document}{ $n ? "$slug-$n" : $slug } = 1;
	}
}
foreach my $document (@documents)
{
	my $prose = $text{$document} =~ s/^```.*?^```$//msgr;
	my @wrong;
	while ($prose =~ /\]\(([^)\s]+)\)/g)
	{
		my ($path, $anchor) = split /#/, $1, 2;
		next if $path =~ /^https?:/;
		my $target = $path eq '' ? $document : realpath("$top/" . dirname($document) . "/$path");
		$target =~ s/^\Q$top\E\/// if defined $target;
		if (!defined $target || !-e "$top/$target") { push @wrong, $path; }
		elsif (defined $anchor && !$anchors{$target}{$anchor}) { push @wrong, "$path#$anchor"; }
	}
	# files named in the text; NAME and NNN are not names of files
	while ($prose =~ /`((?:sql|expected|src|test|scripts|docs|examples)\/[\w.\/-]+)`/g)
	{
		push @wrong, $1 unless $1 =~ /NAME|NNN/ || -e "$top/$1";
	}
	is(join(' ', @wrong), '', "$document: links and file names");
}

# ---- nothing is left out

my $reference = $text{'docs/sql-reference.md'};
my $readme = $text{'README.md'};
$admin->ok('CREATE EXTENSION pg_idem');

# The server's spelling of a signature, as the reference writes it.
my $signatures = $admin->ok(q{
	SELECT p.proname || '(' || pg_get_function_arguments(p.oid) || ') RETURNS ' || pg_get_function_result(p.oid)
	  FROM pg_proc p JOIN pg_depend d ON d.objid = p.oid AND d.classid = 'pg_proc'::regclass AND d.deptype = 'e'
	  JOIN pg_extension e ON e.oid = d.refobjid AND e.extname = 'pg_idem' ORDER BY 1});
my $flat = $reference =~ s/\s+/ /gr;
foreach my $signature (split /\n/, $signatures)
{
	$signature =~ s/timestamp with time zone/timestamptz/g;
	$signature =~ s/::\w+(\[\])?//g;
	$signature =~ s/'00:00:00'/'0'/;
	$signature =~ s/'00:00:01'/'1 second'/;
	my ($name) = $signature =~ /^(\w+)/;
	ok(index($flat, $signature) >= 0, "the SQL reference has the signature of $name") or diag($signature);
}
my $relations = $admin->ok(q{
	SELECT DISTINCT c.relname || '.' || a.attname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0
	  JOIN pg_depend d ON d.objid IN (c.oid, (SELECT oid FROM pg_type WHERE typrelid = c.oid)) AND d.deptype = 'e'
	  JOIN pg_extension e ON e.oid = d.refobjid AND e.extname = 'pg_idem'
	 WHERE c.relkind IN ('v', 'c') OR c.relname = 'idem_policies' ORDER BY 1});
my %section = map { /^`?(\w+)/ ? ($1 => $_) : () } split /^##+ /m, $reference;
foreach my $column (split /\n/, $relations)
{
	my ($relation, $name) = split /\./, $column;
	ok(($section{$relation} // '') =~ /^\| `$name` \|/m, "the SQL reference has the column $column");
}
foreach my $label (split /\n/, $admin->ok(q(SELECT unnest(enum_range(NULL::idem_outcome))::text UNION SELECT unnest(enum_range(NULL::idem_state))::text)))
{
	ok($reference =~ /^\| `$label` \|/m, "the SQL reference has the label $label");
}

my ($reasons) = $text{'docs/internals/storage.md'} =~ /^\| `reason` \|(.*)$/m;
my ($documented) = $section{idempotent_operations} =~ /^\| `reason` \|(.*)$/m;
is(join(' ', grep { index($documented, "`$_`") < 0 } $reasons =~ /`([a-z]+(?:_[a-z]+)*)`/g), '', 'the SQL reference has every reason');

my %in_readme = map { $_ => 1 } $readme =~ /^\| `(IDM\d\d)` \|/mg;
my %raised = map { s/[', ]//gr => 1 } slurp_file("$top/src/pg/errors.hpp") =~ /MAKE_SQLSTATE\(([^)]*)\)/g;
is(join(' ', sort keys %in_readme), join(' ', sort keys %raised), 'the README has the error codes that are raised');

# Whatever SQLSTATE an error of ours has, but for what should never happen.
my $pg_config = $ENV{PG_CONFIG} || 'pg_config';
chomp(my $share = qx($pg_config --sharedir));
my %sqlstate = reverse slurp_file("$share/errcodes.txt") =~ /^(\w{5}) +[EWS] +(ERRCODE_\w+)/mg;
my %never = map { $_ => 1 } qw(ERRCODE_INTERNAL_ERROR ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED);
my @sources = map { slurp_file($_) } glob "$top/src/*/*.{cpp,hpp}";
my %ereports = map { $_ => 1 } map { /ereport\(ERROR,\s*\(errcode\((ERRCODE_\w+)\)/g } @sources;
my @missing = grep { $readme !~ /^\| `$_` \|/m } map { $sqlstate{$_} } grep { !$never{$_} } sort keys %ereports;
is(join(' ', @missing), '', 'the README has every SQLSTATE of our errors');

my @settings = split /\n/, $admin->ok(q(SELECT name FROM pg_settings WHERE name LIKE 'pg\_idem.%' ORDER BY name));
is(join(' ', sort $readme =~ /^\| `(pg_idem\.\w+)` \|/mg), join(' ', @settings), 'the README has the settings that there are');

my @mentioned = map { my $d = $_; map { [ $d, $_ ] } $text{$d} =~ /\bidem_\w+(?=\()/g } grep { !/CHANGELOG/ } @documents;
my %known = map { $_ => 1 } $signatures =~ /^(idem_\w+)/mg;
my %unknown = map { ("$_->[1] in $_->[0]" => 1) } grep { !$known{ $_->[1] } } @mentioned;
is(join(', ', sort keys %unknown), '', 'no document calls a function that is not there');

# ---- who may do what

my $roles = $text{'docs/patterns.md'} =~ /^## Roles and privileges\n(.*?)^## /ms ? $1 : '';
# but those of the trigger, and of the views of pg_monitor
my @nobody = grep { $roles !~ /`$_`/ && !/^idem_policies_/ && !/^idem_(?:stats|gauges|worker_status)_rows?$/ } sort keys %known;
is(join(' ', @nobody), '', 'the patterns say who needs each function');

# What a HINT of an error tells to call, whoever gets it must be able to: the application, or who is called to help.
my %hinted = map { $_ => 1 } grep { $known{$_} } map { /\bidem_\w+/g } map { /errhint\(((?:\s*"(?:[^"\\]|\\.)*")+)/g } @sources;
my $operators = join "\n", $text{'docs/operations.md'} =~ /^(GRANT EXECUTE ON FUNCTION .*TO shop_operator;)/mg;
my @out_of_reach = grep { "$app_grants\n$operators" !~ /\b$_\b/ } sort keys %hinted;
is(join(' ', @out_of_reach), '', 'the grants have what HINTs tell to call');
like($_, qr/\bidem_open_effects\b/, 'IDM11: idem_open_effects is granted') foreach $app_grants, $operators;

# ---- contents and lists are complete

foreach my $document (@documents)
{
	my ($contents) = $text{$document} =~ /\A#[^\n]*\n(?:(?!^##).*\n)*?((?:\* \[[^\]]+\]\(#[^)]+\)\n){3,})/m or next;
	my @listed = $contents =~ /\(#([^)]+)\)/g;
	my $prose = $text{$document} =~ s/^```.*?^```$//msgr;
	is("@listed", join(' ', map { slug($_) } $prose =~ /^## +(.*)$/mg), "$document: its table of contents");
}
my @tables = split /\n/, $admin->ok(q{
	SELECT c.relname FROM pg_class c JOIN pg_depend d ON d.objid = c.oid AND d.classid = 'pg_class'::regclass AND d.deptype = 'e'
	  JOIN pg_extension e ON e.oid = d.refobjid AND e.extname = 'pg_idem' WHERE c.relkind = 'r' AND c.relname <> 'idem_policies' ORDER BY 1});
my ($grows) = $text{'docs/runbook.md'} =~ /^## Table grows\n(.*?)^## /ms;
is(join(' ', grep { $grows !~ /'$_'::regclass/ } @tables), '', 'the runbook looks at every table that grows');

$admin->quit;
$node->stop;
done_testing();
