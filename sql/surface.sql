-- What the extension creates: this is a contract, so every change of it shows here.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pg_idem;
\pset format unaligned
\pset tuples_only on

-- Not relocatable, not trusted, for superusers
SELECT format('%s superuser=%s trusted=%s relocatable=%s schema=%s', v.name, v.superuser, v.trusted, v.relocatable, v.schema)
  FROM pg_available_extension_versions v WHERE v.name = 'pg_idem' AND v.version = '1.0';
\set VERBOSITY sqlstate
CREATE SCHEMA surface_other;
ALTER EXTENSION pg_idem SET SCHEMA surface_other;
DROP SCHEMA surface_other;
\set VERBOSITY default

CREATE TEMP VIEW member AS
    SELECT d.classid, d.objid
      FROM pg_depend d JOIN pg_extension e ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid
     WHERE e.extname = 'pg_idem' AND d.deptype = 'e';
CREATE TEMP VIEW func AS
    SELECT p.* FROM pg_proc p JOIN member m ON m.classid = 'pg_proc'::regclass AND m.objid = p.oid;
CREATE TEMP VIEW rel AS
    SELECT c.* FROM pg_class c JOIN member m ON m.classid = 'pg_class'::regclass AND m.objid = c.oid;
CREATE TEMP VIEW typ AS
    SELECT t.* FROM pg_type t JOIN member m ON m.classid = 'pg_type'::regclass AND m.objid = t.oid
     WHERE t.typcategory <> 'A' AND (t.typrelid = 0 OR t.typrelid IN (SELECT oid FROM pg_class WHERE relkind = 'c'));

-- Functions
SELECT format(E'%s(%s)\n    -> %s', proname, pg_get_function_arguments(oid), pg_get_function_result(oid))
  FROM func ORDER BY proname COLLATE "C";
-- Their volatility, parallel safety, strictness
SELECT format('%s %s %s%s', proname,
              CASE provolatile WHEN 'i' THEN 'immutable' WHEN 's' THEN 'stable' ELSE 'volatile' END,
              CASE proparallel WHEN 's' THEN 'safe' WHEN 'r' THEN 'restricted' ELSE 'unsafe' END,
              CASE WHEN proisstrict THEN ' strict' END)
  FROM func ORDER BY proname COLLATE "C";
-- None is overloaded, SECURITY DEFINER, leakproof or carries a SET clause; none returns void or interval
SELECT proname FROM func GROUP BY proname HAVING count(*) > 1;
SELECT proname FROM func WHERE prosecdef OR proleakproof OR proconfig IS NOT NULL;
SELECT proname FROM func WHERE prorettype IN ('void'::regtype, 'interval'::regtype);
SELECT f.proname, t.typname FROM func f, unnest(f.proallargtypes, f.proargmodes) AS a (typ, mode), pg_type t
 WHERE t.oid = a.typ AND a.mode IN ('o', 't', 'b') AND t.typname IN ('void', 'interval');

-- Enums
SELECT format('%s: %s', t.typname, string_agg(e.enumlabel, ', ' ORDER BY e.enumsortorder))
  FROM typ t JOIN pg_enum e ON e.enumtypid = t.oid GROUP BY t.typname ORDER BY t.typname COLLATE "C";
-- Composite types, view and tables
SELECT format(E'%s %s\n    %s', CASE c.relkind WHEN 'c' THEN 'type' WHEN 'v' THEN 'view' ELSE 'table' END, c.relname,
              string_agg(a.attname || ' ' || format_type(a.atttypid, a.atttypmod)
                         || CASE WHEN a.attnotnull THEN ' not null' ELSE '' END, E'\n    ' ORDER BY a.attnum))
  FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
 WHERE c.oid IN (SELECT oid FROM rel WHERE relkind IN ('r', 'v') UNION SELECT typrelid FROM typ WHERE typrelid <> 0)
 GROUP BY c.relkind, c.relname ORDER BY c.relkind, c.relname COLLATE "C";
-- Identity columns that are not COLLATE "C": none
SELECT r.relname, a.attname FROM rel r JOIN pg_attribute a ON a.attrelid = r.oid AND r.relkind = 'r'
 WHERE a.attname IN ('account', 'action', 'key') AND a.attcollation <> 'pg_catalog."C"'::regcollation;
-- Tables whose rows are dumped
SELECT c.relname FROM pg_extension e, unnest(e.extconfig) AS u (oid), pg_class c
 WHERE e.extname = 'pg_idem' AND c.oid = u.oid ORDER BY c.relname COLLATE "C";
-- Unlogged tables: none
SELECT relname FROM rel WHERE relkind = 'r' AND relpersistence <> 'p';

-- Granted to PUBLIC: nothing
SELECT proname FROM func WHERE has_function_privilege('public', oid, 'EXECUTE');
SELECT relname FROM rel
 WHERE has_table_privilege('public', oid, 'SELECT, INSERT, UPDATE, DELETE, TRUNCATE, REFERENCES, TRIGGER')
    OR has_any_column_privilege('public', oid, 'SELECT, INSERT, UPDATE, REFERENCES');

-- Without a comment: nothing
SELECT 'function ' || proname FROM func WHERE obj_description(oid, 'pg_proc') IS NULL
UNION ALL SELECT 'relation ' || relname FROM rel WHERE relkind IN ('r', 'v') AND obj_description(oid, 'pg_class') IS NULL
UNION ALL SELECT 'type ' || typname FROM typ WHERE obj_description(oid, 'pg_type') IS NULL;

LOAD 'pg_idem';
-- Settings, and who may change them
SELECT format('%s = %s (%s)', name, boot_val, context)
  FROM pg_settings WHERE name LIKE 'pg\_idem.%' ORDER BY name COLLATE "C";
-- Settings without a description: none
SELECT name FROM pg_settings WHERE name LIKE 'pg\_idem.%' AND (short_desc IS NULL OR short_desc = '');
\set VERBOSITY sqlstate
-- The prefix is reserved
SET pg_idem.no_such_setting = 1;
