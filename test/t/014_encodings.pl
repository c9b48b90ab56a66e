# Databases in other encodings: errors that a UTF8 client can read, blank parts, and the same fingerprints everywhere.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";

use PgIdemTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('encodings', worker => 0);
my %session;
foreach my $encoding (qw(UTF8 LATIN1 EUC_JP))
{
	my $db = lc $encoding;
	$node->safe_psql('postgres', "CREATE DATABASE $db TEMPLATE template0 ENCODING $encoding LC_COLLATE 'C' LC_CTYPE 'C'");
	PgIdemTest::install($node, $db);
	$session{$encoding} = session($node, dbname => $db);
	$session{$encoding}->ok(q(SET client_encoding = 'UTF8'));
}

# Characters of more than one byte, in the database or at the client. \xE9 in LATIN1 is one byte, and two at the client.
my %letter = (UTF8 => "\xE3\x81\x82", LATIN1 => "\xC3\xA9", EUC_JP => "\xE3\x81\x82");
my %three_bytes = (EUC_JP => "\xE4\xB8\x82");    # in JIS X 0212: three bytes in EUC_JP
foreach my $encoding (sort keys %session)
{
	my $s = $session{$encoding};
	foreach my $letter ($letter{$encoding}, $three_bytes{$encoding} // ())
	{
		# A key of at most 255 bytes, however many characters that are
		my $size = $s->ok("SELECT octet_length(convert_to('$letter', '$encoding'))");
		my $room = int(255 / $size);
		foreach my $n (63, 64, 65, $room < 100 ? $room : 100)
		{
			foreach my $before ('', 'a', 'ab')
			{
				my $key = substr($before . $letter x $n, 0);
				my $characters = length($before) + $n;
				next if length($before) + $n * $size > 255;
				my $shown = $before . $letter x (($characters > 64 ? 64 : $characters) - length $before);
				$shown .= '...' if $characters > 64;
				is($s->try(call('idem_complete', $key)), 'IDM03', "G12: $encoding: a key of $characters characters, $size bytes each");
				like($s->err, qr/^DETAIL:  Account "acme", action "pay", key "\Q$shown\E"\.$/m, 'DETAIL shows 64 of them, in the encoding of the client');
			}
		}
		is($s->try(claim($letter x ($room + 1))), '22001', "G12: $encoding: more than 255 bytes");
		is($s->ok(claim($letter x $room, lease => q('1 min'))), 'claimed', "$encoding: just 255 bytes");
	}
	is($s->try(call('idem_complete', "a\nb\x1b\x7f")), 'IDM03', "G12: $encoding: control characters");
	like($s->err, qr/key "a\\x0ab\\x1b\\x7f"\.$/m, 'are escaped');
}

# White space of each encoding
my %blank = (
	UTF8 => [ ' ', "\xC2\xA0", "\xE3\x80\x80", "\xC2\x85", "\xE2\x80\x8B" ],
	LATIN1 => [ ' ', "\xC2\xA0", "\xC2\x85" ],
	EUC_JP => [ ' ', "\xE3\x80\x80" ]);
foreach my $encoding (sort keys %session)
{
	my $s = $session{$encoding};
	foreach my $blank (@{ $blank{$encoding} })
	{
		my $name = join(' ', map { sprintf '%02x', ord } split //, $blank);
		foreach my $identity ([ $blank, 'b', 'c' ], [ 'a', $blank, 'c' ], [ 'a', 'b', " $blank$blank" ])
		{
			is($s->try(claim($identity)), '22023', "G12: $encoding: a part of nothing but $name");
		}
		is($s->try(call('idem_once', [ 'a', 'b', $blank ])), '22023', "G12: $encoding: idem_once as well");
		is($s->ok(call('idem_once', [ 'a', 'b', "$blank." ])), 't', "$encoding: with something else it is a key");
	}
}

# The fingerprint is of the characters, not of the bytes of an encoding
my $accents = "\xC3\xA9\xC3\xB1";
my $kana = "\xE3\x81\x82\xE4\xB8\x82";
my $fingerprint = sub { my ($encoding, $json) = @_; $session{$encoding}->ok("SELECT idem_fingerprint('$json')") };
my $request = qq({"$accents": "$accents", "b": [1.0, "x"]});
is($fingerprint->('LATIN1', $request), $fingerprint->('UTF8', $request), 'G4: the same fingerprint in LATIN1 and UTF8');
isnt($fingerprint->('LATIN1', $request), $fingerprint->('UTF8', '{}'), 'which is that of the request');
$request = qq({"$kana": "$kana", "b": [1.0, "x"], "a": {"$kana": null}});
is($fingerprint->('EUC_JP', $request), $fingerprint->('UTF8', $request), 'G4: the same in EUC_JP and UTF8');
# The order of members is that of UTF-16, whatever the bytes are
$request = qq({"\xEF\xBD\xB1": 1, "\xE4\xB8\x82": 2, "\xE3\x81\x82": 3, "z": 4});
is($fingerprint->('EUC_JP', $request), $fingerprint->('UTF8', $request), 'G4: the order of members too');

# An operation whose texts need the encoding
foreach my $encoding (sort keys %session)
{
	my $s = $session{$encoding};
	my $text = $letter{$encoding} x 3;
	my $json = qq('{"amount": 1, "for": "$text"}');
	is($s->ok('BEGIN; ' . claim([ $text, $text, $text ], request => $json)), 'claimed', "$encoding: claimed");
	$s->ok(call('idem_complete', [ $text, $text, $text ], result => $json, body => "'$text'") . '; COMMIT');
	is($s->ok(claim([ $text, $text, $text ], request => $json, columns => q(outcome, result ->> 'for', body))), "completed|$text|$text", "G3: $encoding: replayed");
	is($s->ok(claim([ $text, $text, $text ], request => q('{}'))), 'mismatch', "G4: $encoding: mismatch");
	is($s->try('BEGIN; ' . claim([ $text, $text, 'owner' ], lease => q('1 min'), owner => "'$text'", columns => 'holder')), '', "$encoding: an owner");
	is($s->ok('COMMIT; ' . claim([ $text, $text, 'owner' ], columns => 'holder')), $text, 'is told as the holder');
	$s->quit;
}
$node->stop;
done_testing();
