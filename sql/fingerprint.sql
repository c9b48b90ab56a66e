-- idem_fingerprint: version byte and SHA-256 of RFC 8785 canonical JSON, numbers kept exact.
\set VERBOSITY sqlstate
\set SHOW_CONTEXT never
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pg_idem;
LOAD 'pg_idem';
SET timezone = 'UTC';
SET datestyle = 'ISO';
CREATE FUNCTION pg_temp.of(canonical text) RETURNS bytea LANGUAGE sql AS
    $$ SELECT '\x01'::bytea || sha256(convert_to(canonical, 'UTF8')) $$;

-- Against canonical forms written by hand; the first one as bytes, since it is a format
SELECT idem_fingerprint('{"b": 2, "a": 1}');
SELECT * FROM (VALUES
    ('null',                              'null'),
    (' true ',                            'true'),
    ('""',                                '""'),
    ('[]',                                '[]'),
    ('{}',                                '{}'),
    ('{"b":2,"a":1}',                     '{"a":1,"b":2}'),
    ('{"a":1,"b":2,"a":3}',               '{"a":3,"b":2}'),
    ('[3, 1 , 2]',                        '[3,1,2]'),
    ('{"aa":1,"b":2,"a":3}',              '{"a":3,"aa":1,"b":2}'),
    ('{"":1," ":2}',                      '{"":1," ":2}'),
    ('{"z":{"y":[{"b":null,"a":[]}]}}',   '{"z":{"y":[{"a":[],"b":null}]}}'),
    ('"\u20ac$\u000f\u000aA''B\"\\\/"',   E'"€$\\u000f\\nA''B\\"\\\\/"'),
    ('"\b\t\n\f\r\u001f\u007f"',          E'"\\b\\t\\n\\f\\r\\u001f\x7f"'),
    ('"\u00e9\ud83d\ude00"',              '"é😀"'),
    -- by UTF-16 code units, in which the emoji is a surrogate pair, thus before U+FB33
    ('{"\u20ac":1,"\r":2,"\ufb33":3,"1":4,"\ud83d\ude00":5,"\u0080":6,"\u00f6":7}',
     E'{"\\r":2,"1":4,"\u0080":6,"ö":7,"€":1,"😀":5,"\uFB33":3}'),
    ('0',                                 '0'),
    ('-0',                                '0'),
    ('-0.0e5',                            '0'),
    ('1.0',                               '1'),
    ('1e0',                               '1'),
    ('100e-2',                            '1'),
    ('-1.50',                             '-1.5'),
    ('4.50',                              '4.5'),
    ('2e-3',                              '0.002'),
    ('0.000001',                          '0.000001'),
    ('0.0000001',                         '1e-7'),
    ('0.000000000000000000000000001',     '1e-27'),
    ('123e-9',                            '1.23e-7'),
    ('1e20',                              '100000000000000000000'),
    ('1e21',                              '1e+21'),
    ('123456789012345678901234',          '1.23456789012345678901234e+23'),
    ('1E30',                              '1e+30'),
    ('333333333.33333329',                '333333333.33333329'),
    ('9007199254740993',                  '9007199254740993'),
    ('0.10000000000000000001',            '0.10000000000000000001'),
    ('1e400',                             '1e+400'),
    ('-1e-400',                           '-1e-400')
  ) AS v (request, canonical)
 WHERE idem_fingerprint(request::jsonb) IS DISTINCT FROM pg_temp.of(canonical);

-- Neither key order nor spelling matters; everything else does
SELECT a, b, idem_fingerprint(a::jsonb) = idem_fingerprint(b::jsonb) AS same FROM (VALUES
    ('{"a":1,"b":2}',          '{ "b" : 2 , "a" : 1 }'),
    ('{"a":"\u0041"}',         '{"a":"A"}'),
    ('[1.0,1e2]',              '[1,100]'),
    ('1e400',                  '10e399'),
    ('9007199254740993',       '9007199254740992'),
    ('1e400',                  '1e401'),
    ('0.1',                    '0.1000000000000000055511151231257827'),
    ('"1"',                    '1'),
    ('null',                   '{}'),
    ('{"a":null}',             '{}'),
    ('false',                  '0'),
    ('[]',                     '{}'),
    ('[[]]',                   '[]'),
    ('[1,2]',                  '[2,1]'),
    ('[12]',                   '[1,2]'),
    ('["a","b"]',              '["a,b"]'),
    ('["a\",\"b"]',            '["a","b"]'),
    ('{"a":"b"}',              '{"a\":\"b":1}'),
    ('"e\u0301"',              '"\u00e9"'),
    ('"a"',                    '"A"'),
    ('"a"',                    '"a "')
  ) AS v (a, b);

-- Left out by JSON Pointer
SELECT ignore, idem_fingerprint('{"a":{"b":[{"x":1},{"x":2}],"c":3},"d/e":4,"f~g":5,"":6,"0":7}', ignore) = pg_temp.of(canonical) AS ok
  FROM (VALUES
    ('{}'::text[],            '{"":6,"0":7,"a":{"b":[{"x":1},{"x":2}],"c":3},"d/e":4,"f~g":5}'),
    ('{/a}',                  '{"":6,"0":7,"d/e":4,"f~g":5}'),
    ('{/a/b}',                '{"":6,"0":7,"a":{"c":3},"d/e":4,"f~g":5}'),
    ('{/a/b/0}',              '{"":6,"0":7,"a":{"b":[{"x":2}],"c":3},"d/e":4,"f~g":5}'),
    ('{/a/b/0,/a/b/1}',       '{"":6,"0":7,"a":{"b":[],"c":3},"d/e":4,"f~g":5}'),
    ('{/a/b/1/x}',            '{"":6,"0":7,"a":{"b":[{"x":1},{}],"c":3},"d/e":4,"f~g":5}'),
    ('{/d~1e,/f~0g}',         '{"":6,"0":7,"a":{"b":[{"x":1},{"x":2}],"c":3}}'),
    ('{/,/0}',                '{"a":{"b":[{"x":1},{"x":2}],"c":3},"d/e":4,"f~g":5}'),
    ('{/a,/a,/a/b/0}',        '{"":6,"0":7,"d/e":4,"f~g":5}'),
    ('{/nothing,/a/b/2,/a/b/-,/a/b/00,/a/b/x,/a/c/z,/A,/d,"/a/b/+0"}',
                              '{"":6,"0":7,"a":{"b":[{"x":1},{"x":2}],"c":3},"d/e":4,"f~g":5}'),
    (NULL,                    '{"":6,"0":7,"a":{"b":[{"x":1},{"x":2}],"c":3},"d/e":4,"f~g":5}')
  ) AS v (ignore, canonical);
-- The same as leaving it out oneself, so that a time stamp does not make another request
SELECT idem_fingerprint('{"amount": 1, "sent_at": "12:00"}', '{/sent_at}') = idem_fingerprint('{"amount": 1, "sent_at": "12:01"}', '{/sent_at}') AS same,
       idem_fingerprint('{"amount": 1, "sent_at": "12:00"}', '{/sent_at}') = idem_fingerprint('{"amount": 1}') AS as_without;
-- Bad pointers
SELECT idem_fingerprint('{}', '{a}');
SELECT idem_fingerprint('{}', '{/a,b/c}');
SELECT idem_fingerprint('{}', '{/a~}');
SELECT idem_fingerprint('{}', '{/a~2}');
SELECT idem_fingerprint('{}', '{/a,NULL}');
-- the whole request cannot be left out
SELECT idem_fingerprint('{}', '{""}');
SELECT idem_fingerprint('{}', '{{/a,/b},{/c,/d}}') IS NOT NULL AS two_dimensions;

-- A claim takes the same fingerprint
SELECT outcome FROM idem_claim('fp', 'act', 'k', '{"n": 1.0, "m": [1e2]}', lease => '1 min');
SELECT fingerprint = idem_fingerprint('{"m": [100], "n": 1}') AS same FROM idem_lookup('fp', 'act', 'k');
SELECT outcome FROM idem_claim('fp', 'act', 'k', '{"m": [100], "n": 1}');
SELECT outcome FROM idem_claim('fp', 'act', 'k', fingerprint => idem_fingerprint('{"m": [100], "n": 1}'));
SELECT outcome FROM idem_claim('fp', 'act', 'k', '{"m": [100], "n": 1.0000000000000000000001}');

-- Big and deep
SELECT idem_fingerprint(jsonb_object_agg('key' || n, n)) =
       pg_temp.of('{' || string_agg(format('"key%s":%s', n, n), ',' ORDER BY ('key' || n) COLLATE "C") || '}') AS wide
  FROM generate_series(1, 50000) AS n;
SELECT idem_fingerprint((repeat('[', 3000) || repeat(']', 3000))::jsonb) = pg_temp.of(repeat('[', 3000) || repeat(']', 3000)) AS deep;
SELECT idem_fingerprint((repeat('{"a":', 3000) || '1' || repeat('}', 3000))::jsonb) = pg_temp.of(repeat('{"a":', 3000) || '1' || repeat('}', 3000)) AS deep;
SELECT idem_fingerprint(to_jsonb(repeat('é', 1000000))) = pg_temp.of('"' || repeat('é', 1000000) || '"') AS long;
SELECT idem_fingerprint(('1' || repeat('0', 30000) || '1')::jsonb) = pg_temp.of('1.' || repeat('0', 30000) || '1e+30001') AS many_digits;

-- Immutable: usable in an index
CREATE TEMP TABLE request (body jsonb);
CREATE UNIQUE INDEX ON request (idem_fingerprint(body));
INSERT INTO request VALUES ('{"a": 1, "b": 2}');
INSERT INTO request VALUES ('{"b": 2.0, "a": 1}');
