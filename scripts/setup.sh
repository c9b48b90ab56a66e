#!/bin/bash
# Installs what is missing for: build lint unit server tap examples model demo matrix (default: all but matrix).
# Asks nothing, and does nothing where all is present. Needs Debian or Ubuntu, and root or sudo if something is missing.
set -euo pipefail
shopt -s inherit_errexit
cd "$(dirname "$0")/.."
. scripts/lib.sh

groups=${*:-build lint unit server tap examples model demo}

have_apt() { command -v apt-get >/dev/null; }
installed() { [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }
available() { installed "$1" || [[ $(apt-cache policy "$1" 2>/dev/null) = *"Candidate: "[0-9]* ]]; }
any_of() { local p; for p; do if available "$p"; then echo "$p"; return; fi; done; echo "$1"; }

# The major version to build for: one that is installed, else the newest that apt has; 0 if it has none.
postgres_major() {
    local config v
    if config=$(find_pg_config); then pg_major "$config"; return; fi
    for v in $PG_SUPPORTED; do
        if [ -x "/usr/lib/postgresql/$v/bin/postgres" ]; then echo "$v"; return; fi
    done
    for v in $PG_SUPPORTED; do
        if available "postgresql-server-dev-$v"; then echo "$v"; return; fi
    done
    echo 0
}

packages_of() {
    local v
    case $1 in
    build)
        echo make g++ libfmt-dev
        # Another pg_config than Debian's was asked for: that installation is complete or it is not ours to complete.
        if [ -z "${PG_CONFIG:-}" ]; then v=$(postgres_major); echo "postgresql-server-dev-$v"; fi ;;
    server)
        echo util-linux
        if [ -z "${PG_CONFIG:-}" ]; then v=$(postgres_major); echo "postgresql-$v postgresql-client-$v"; fi ;;
    tap)
        v=$(postgres_major)
        echo perl libipc-run-perl pgbouncer python3-psycopg2 python3-pika rabbitmq-server
        if available "postgresql-$v-wal2json"; then echo "postgresql-$v-wal2json"; fi ;;
    examples)                                           # those of the documents; the tests skip them without
        echo g++ pkg-config libpqxx-dev
        if available prometheus-postgres-exporter; then echo prometheus-postgres-exporter; fi ;;
    lint)
        v=$(llvm_major)
        echo cppcheck git python3
        if [ -n "$v" ]; then echo "clang-format-$v clang-tidy-$v"; else echo clang-format clang-tidy; fi ;;
    unit)
        v=$(llvm_major)
        echo g++ cmake make libgtest-dev libfmt-dev
        if [ -n "$v" ]; then echo "clang-$v" "$(any_of "libclang-rt-$v-dev" "libclang-common-$v-dev")"; else echo clang; fi ;;
    model)  echo spin gcc libc6-dev ;;
    demo)   echo python3 python3-psycopg2 ;;
    matrix) echo debootstrap debian-archive-keyring util-linux git make ;;
    *)      die "setup.sh: no such group: $1" ;;
    esac
}

# The pinned LLVM where apt has it, so that format and lint say the same everywhere; else nothing: the default one.
llvm_major() { if available "clang-tidy-$LLVM"; then echo "$LLVM"; fi; }

missing() {
    local g p all=""
    for g in $groups; do all+=" $(packages_of "$g")"; done
    for p in $(tr ' ' '\n' <<<"$all" | sort -u); do installed "$p" || echo "$p"; done
}

# Nothing to look up, nothing to install: say so at once.
have_apt || { say "no apt-get here: install a C++20 compiler, PostgreSQL with its headers, fmt, GoogleTest, clang, cppcheck and spin by hand"; exit 0; }
want=$(missing)
[ -n "$want" ] || exit 0

root=()
if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null || die "missing: $(xargs <<<"$want"); install them, or run this as root"
    root=(sudo)
fi
log=build/log/setup.log
mkdir -p "${log%/*}"; : >"$log"
apt() { "${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0 -o DPkg::Lock::Timeout=300 "$@" </dev/null >>"$log" 2>&1; }

say "installing: $(xargs <<<"$want")"
apt update || say "apt-get update had errors ($log); going on with the lists at hand"
want=$(missing)     # fresh lists may know more
[[ ! $want =~ postgresql-(server-dev-)?0 ]] || die "apt has no PostgreSQL of $PG_SUPPORTED: add apt.postgresql.org, or set PG_CONFIG"

# What is installed for tests starts no service, makes no cluster (Debian would: "main", started at every boot), and leaves
# no setting behind. Servers and services that were there before stay as they are.
# Here: the units of packages that are not there yet.
units=""
for u in pgbouncer:pgbouncer.service prometheus-postgres-exporter:prometheus-postgres-exporter.service \
    rabbitmq-server:rabbitmq-server.service erlang-base:epmd.service erlang-base:epmd.socket logrotate:logrotate.timer; do
    installed "${u%:*}" || units+=" $u"
done
made=()
trap 'if [ ${#made[@]} != 0 ]; then "${root[@]}" rm -f "${made[@]}"; fi' EXIT
put() { # mode file: for as long as this runs
    [ ! -e "$2" ] || return 0
    made+=("$2")
    "${root[@]}" install -D -m "$1" /dev/stdin "$2"
}
put 755 /usr/sbin/policy-rc.d <<<$'#!/bin/sh\nexit 101'
put 644 /etc/postgresql-common/createcluster.d/pg_idem.conf <<<'create_main_cluster = false'
# shellcheck disable=SC2086
apt install -y --no-install-recommends $want || { tail -n 40 "$log"; die "could not install: $(xargs <<<"$want")"; }
for u in $units; do
    p=${u%:*} name=${u#*:}
    if ! installed "$p"; then continue; fi
    for c in "env DPKG_MAINTSCRIPT_PACKAGE=$p deb-systemd-helper disable $name" "update-rc.d ${name%.*} disable"; do
        # shellcheck disable=SC2086
        "${root[@]}" $c >>"$log" 2>&1 || true
    done
done
