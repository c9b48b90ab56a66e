#!/bin/bash
# The library exports what PostgreSQL looks up by name, and nothing else; it misses nothing of its own; and the install
# script names only what is there.
set -euo pipefail
cd "$(dirname "$0")/.."
lib=${1:-pg_idem.so}
bad=0

exported=$(nm -D --defined-only "$lib" | awk '{ print $3 }' | sed 's/@.*//' | sort -u)
extra=$(grep -vxE '_PG_init|Pg_magic_func|(pg_finfo_)?pg_idem_[a-z0-9_]+' <<<"$exported" || true)
if [ -n "$extra" ]; then echo "exported, but should not be:"; c++filt <<<"$extra"; bad=1; fi
grep -qx Pg_magic_func <<<"$exported" || { echo "Pg_magic_func is not exported"; bad=1; }

undefined=$(nm -D --undefined-only "$lib" | c++filt | grep -o 'idem::.*' || true)
if [ -n "$undefined" ]; then echo "used, but nowhere defined:"; echo "$undefined"; bad=1; fi

# AS 'MODULE_PATHNAME', 'symbol'
wanted=$(cat pg_idem--*.sql 2>/dev/null | tr '\n' ' ' | grep -oE "'MODULE_PATHNAME' *, *'[A-Za-z0-9_]+'" | sed "s/.*'\([A-Za-z0-9_]*\)'$/\1/" | sort -u || true)
for s in $wanted; do
    for e in "$s" "pg_finfo_$s"; do
        grep -qx "$e" <<<"$exported" || { echo "named by the install script, not exported: $e"; bad=1; }
    done
done
exit "$bad"
