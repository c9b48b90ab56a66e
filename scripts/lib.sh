# Shared by the scripts: messages, which PostgreSQL, dropping root, a private copy of PostgreSQL, throw-away servers.
# Nothing here touches a server that was there before: servers listen only on a socket in a temporary directory.
# shellcheck shell=bash

PG_SUPPORTED=${PG_SUPPORTED:-18 17 16 15}     # newest first
LLVM=${LLVM:-19}
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
jobs=${JOBS:-$(nproc)}

say() { printf '%s\n' "$*"; }
die() { printf '%s\n' "$*" >&2; exit 1; }

# ---- which tools

pg_major() { "$1" --version | sed 's/^PostgreSQL \([0-9]*\).*/\1/'; }

# Prints the pg_config to build with: $PG_CONFIG, or that of the newest complete installation we support.
find_pg_config() {
    local v c
    if [ -n "${PG_CONFIG:-}" ]; then echo "$PG_CONFIG"; return; fi
    for v in $PG_SUPPORTED; do
        c=/usr/lib/postgresql/$v/bin/pg_config
        if [ -x "$c" ] && [ -x "${c%/*}/postgres" ] && [ -e "$("$c" --pgxs)" ]; then echo "$c"; return; fi
    done
    for v in $PG_SUPPORTED; do      # headers without a server
        c=/usr/lib/postgresql/$v/bin/pg_config
        if [ -x "$c" ] && [ -e "$("$c" --pgxs)" ]; then echo "$c"; return; fi
    done
    c=$(command -v pg_config) && [[ " $PG_SUPPORTED " = *" $(pg_major "$c") "* ]] && [ -e "$("$c" --pgxs)" ] && echo "$c"
}

# Prints the pinned version of an LLVM tool, or the default one.
llvm_tool() { command -v "$1-$LLVM" || command -v "$1"; }

# Configures a CMake build directory: configure DIR [settings]. One that came along with a copied tree is of no use.
configure() {
    local dir=$1; shift
    grep -qsx "CMAKE_HOME_DIRECTORY:INTERNAL=$top" "$dir/CMakeCache.txt" || rm -rf "$dir"
    cmake -S "$top" -B "$dir" -DPG_CONFIG="$(find_pg_config || true)" "$@"
}

# The C++ files that are ours: committed, or new and not ignored.
cxx_files() {
    local f
    if git -C "$top" rev-parse --git-dir >/dev/null 2>&1; then
        git -C "$top" ls-files -co --exclude-standard -- "$@"
    else
        (cd "$top" && find src test bench examples -type f 2>/dev/null)
    fi | grep -E '\.(cpp|hpp|h)$' | sort -u | while read -r f; do if [ -e "$top/$f" ]; then echo "$f"; fi; done
}

# ---- a work directory, and an unprivileged user (initdb refuses root)

# Makes $work, removed at exit with every server in it. KEEP=1 keeps the files.
make_work() {
    user=$(id -un)
    if [ "$(id -u)" = 0 ]; then
        user=nobody
        if id postgres >/dev/null 2>&1; then user=postgres; fi
    fi
    work=$(mktemp -d "${PG_IDEM_TMP:-/tmp}/pg_idem.XXXXXX")
    chmod 755 "$work"
    mkdir "$work/run" "$work/tmp" "$work/out"
    chown "$user" "$work/run" "$work/tmp" "$work/out"
    trap cleanup EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM HUP
    # Settings of the caller must not lead any client to another server.
    local v
    for v in "${!PG@}"; do
        case $v in PG_*) ;; *) unset "$v" ;; esac
    done
    unset MAKEFLAGS MAKELEVEL MFLAGS MAKEOVERRIDES
}

# Runs a command as the unprivileged user.
as_user() {
    local set=(HOME="$work/tmp" TMPDIR="$work/tmp" USER="$user" LOGNAME="$user" LANG=C.UTF-8 LC_ALL=C.UTF-8 TZ=UTC) v
    # Whoever takes LC_ALL away again, as the TAP modules do, finds no other locale behind it.
    for v in LANGUAGE "${!LC_@}"; do if [ "$v" != LC_ALL ]; then set=(-u "$v" "${set[@]}"); fi; done
    if [ "$(id -u)" = 0 ]; then
        set=(setpriv --reuid="$user" --regid="$(id -g "$user")" --clear-groups env "${set[@]}")
    else
        set=(env "${set[@]}")
    fi
    (cd "$work/tmp" && "${set[@]}" "$@")    # the caller's directory may be closed to that user
}

# Prints the pid of the server that runs on a data directory. A pid file that was left behind names any process, or a
# zombie where nobody waits for orphans, as PID 1 of many containers; a server's current directory is its data.
server_pid() {
    local pid
    pid=$(head -n 1 "$1/postmaster.pid" 2>/dev/null) && [ -n "$pid" ] && [ "/proc/$pid/cwd" -ef "$1" ] &&
        ! grep -qs '^State:.Z' "/proc/$pid/status" && echo "$pid"
}

# Ends the server of a data directory at once, and waits for that.
end_server() {
    local pid n
    pid=$(server_pid "$1") || return 0
    kill -QUIT "$pid" 2>/dev/null || return 0
    for ((n = 0; n < 200; n++)); do
        if [ "$(server_pid "$1")" != "$pid" ]; then return 0; fi
        sleep 0.1
    done
    kill -KILL "$pid"
}

cleanup() {
    local status=$? f
    trap - EXIT INT TERM HUP
    while IFS= read -r f; do end_server "${f%/*}" || true; done < <(find "$work" -name postmaster.pid 2>/dev/null)
    if [ -n "${KEEP:-}" ]; then say "kept: $work"; else rm -rf "$work"; fi
    exit "$status"
}

# ---- a private PostgreSQL

# Builds the extension and installs it into $work/pg, which looks like the installed PostgreSQL: its programs are copied
# (a server finds its files relative to its own path), all else are links. So nothing on the machine is changed, no root
# is needed, and several checks may run at once.
make_private_postgres() {
    local bin share lib sys=$1 f
    bin=$("$sys" --bindir); share=$("$sys" --sharedir); lib=$("$sys" --pkglibdir)
    mkdir -p "$work/pg$bin" "$work/pg$share/extension" "$work/pg$lib"
    cp "$bin"/* "$work/pg$bin/"
    for f in "$share"/* "$share"/extension/* "$lib"/*; do
        case $f in "$share/extension" | */pg_idem*) ;; *) ln -s "$f" "$work/pg$f" ;; esac
    done
    pg_bin=$work/pg$bin
    pg_config=$pg_bin/pg_config
    # shellcheck disable=SC2034
    pgxs_src=$(dirname "$(dirname "$("$sys" --pgxs)")")
    [ "$("$pg_config" --sharedir)" = "$work/pg$share" ] || die "this PostgreSQL cannot be relocated: $sys"
    set -- make -s -j"$jobs" install DESTDIR="$work/pg" PG_CONFIG="$sys" "${@:2}"
    # Warnings are errors for the checks; whoever only wants it to run has the same flags, so that going to and fro compiles
    # nothing again, unless a compiler we do not know warns.
    (cd "$top" && mkdir -p build && { flock build/lock "$@" WERROR=1 || { [[ " $* " != *" WERROR="* ]] && flock build/lock "$@"; }; }) || return 1
    chown "$user" "$work/pg$share/extension"    # a test puts a version of its own next to ours
    # A shared library links with anything missing; the server would find out only when it loads it.
    ! nm -D --undefined-only "$work/pg$lib/pg_idem.so" | c++filt | grep 'idem::' | sed 's/^/error: not defined: /' | grep .
}

# Starts a throw-away server: start_server NAME [file of settings]. Clients find it by PGHOST.
start_server() {
    data=$work/run/$1
    as_user "$pg_bin/initdb" -D "$data" -U postgres --no-locale -E UTF8 -A trust -N >"$work/out/initdb.log" 2>&1 ||
        { cat "$work/out/initdb.log"; return 1; }
    {
        echo "listen_addresses = ''"
        echo "unix_socket_directories = '$work/run'"
        echo "unix_socket_permissions = 0700"      # whoever connects is trusted
        echo "fsync = off"
        if [ -n "${2:-}" ]; then cat "$2"; fi
    } >>"$data/postgresql.conf"
    server_log=$work/out/server-$1.log
    as_user "$pg_bin/pg_ctl" -D "$data" -l "$server_log" -w -t 120 start >/dev/null || { tail -n 40 "$server_log"; return 1; }
    export PGHOST=$work/run PGPORT=5432 PGUSER=postgres
}

stop_server() {
    server_pid "$data" >/dev/null || { unset PGHOST PGPORT PGUSER; return 0; }
    as_user "$pg_bin/pg_ctl" -D "$data" -m fast -w -t 120 stop >/dev/null || as_user "$pg_bin/pg_ctl" -D "$data" -m immediate -w stop >/dev/null || true
    unset PGHOST PGPORT PGUSER
}
