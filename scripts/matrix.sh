#!/bin/bash
# The checks that need a server, on the other supported PostgreSQL versions: each in a chroot of a Debian release that
# has it. The chroots are made once (debootstrap, apt) and kept in $PG_IDEM_CACHE. Needs root, or sudo.
#   PG_IDEM_MATRIX="trixie:17 forky:18"    which releases, with which PostgreSQL
#   PG_IDEM_STAGES="regress isolation tap" which stages of check.sh
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null || die "make matrix needs root: chroots are made and entered"
    exec sudo env PG_IDEM_CACHE="${PG_IDEM_CACHE:-}" PG_IDEM_MATRIX="${PG_IDEM_MATRIX:-}" PG_IDEM_STAGES="${PG_IDEM_STAGES:-}" \
        TESTS="${TESTS:-}" JOBS="${JOBS:-}" scripts/matrix.sh
fi
scripts/setup.sh matrix
cache=${PG_IDEM_CACHE:-/var/cache/pg_idem-matrix}
matrix=${PG_IDEM_MATRIX:-trixie:17 forky:18}
stages=${PG_IDEM_STAGES:-regress isolation tap}
log=$top/build/log
mkdir -p "$cache" "$log"
exec 8>"$cache/lock"; flock 8      # one matrix at a time in a cache

# The mirror this machine's own apt uses for Debian; none on other distributions: debootstrap knows one.
debian_mirror() { apt-get indextargets --format '$(ORIGIN)|$(RELEASE)|$(REPO_URI)' 'Created-By: Packages' 2>/dev/null |
    awk -F'|' '$1 == "Debian" && $2 !~ /-/ && !n++ { print $3 }'; }
proxy() { apt-config shell p Acquire::http::Proxy | sed -n "s/^p='\(.*\)'$/\1/p"; }

# Runs a command in a chroot, in name spaces of its own: nothing stays mounted, and no process stays behind.
enter() { # root command...
    local root=$1; shift
    cp /etc/resolv.conf "$root/etc/resolv.conf" 2>/dev/null || true
    # shellcheck disable=SC2016
    unshare --mount --pid --ipc --fork --kill-child bash -c '
        root=$1; shift
        mount -t proc proc "$root/proc" && mount --rbind /dev "$root/dev" &&
            mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm" || exit 2
        exec chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive \
            "${@}"' _ "$root" ${http_proxy:+http_proxy="$http_proxy"} JOBS="$jobs" TESTS="${TESTS:-}" "$@" 8>&- </dev/null
}

# Makes or completes a chroot. It is built under another name, so that a half-made one is never taken for a whole one.
prepare() { # suite major
    local root=$cache/$1 mirror script=$1 t=$SECONDS
    if [ ! -e "$root/ready" ]; then
        rm -rf --one-file-system "$root" "$root.part"
        [ -e "/usr/share/debootstrap/scripts/$1" ] || script=sid
        mirror=$(debian_mirror)
        mirror=${mirror:-$(sed -n 's/^DEF_MIRROR="\(.*\)"/\1/p' "$(command -v debootstrap)")}
        debootstrap --variant=minbase --include=ca-certificates "$1" "$root.part" "$mirror" "$script" || return 1
        printf '#!/bin/sh\nexit 101\n' >"$root.part/usr/sbin/policy-rc.d"
        chmod 755 "$root.part/usr/sbin/policy-rc.d"
        mkdir -p "$root.part/etc/postgresql-common/createcluster.d"
        echo 'create_main_cluster = false' >"$root.part/etc/postgresql-common/createcluster.d/none.conf"
        # Mirrors may lag, or be frozen on purpose; nothing but tests runs in there.
        echo 'Acquire::Check-Valid-Until "false";' >"$root.part/etc/apt/apt.conf.d/90valid"
        touch "$root.part/ready" && mv "$root.part" "$root"
    fi
    rm -rf "$root/src" && mkdir "$root/src"
    git_files | tar -c --null -T - | tar -x -C "$root/src" || return 1
    enter "$root" PG_SUPPORTED="$2" /src/scripts/setup.sh build server tap || return 1
    say "$1 is ready ($((SECONDS - t)) s)"
}

# What is committed, or new and not ignored.
git_files() {
    local f
    git -c safe.directory='*' ls-files -coz --exclude-standard |
        while IFS= read -r -d '' f; do if [ -e "$f" ]; then printf '%s\0' "$f"; fi; done
}

http_proxy=${http_proxy:-$(proxy)}
[ -z "$http_proxy" ] || export http_proxy

say "preparing the chroots: ${matrix// /, } (minutes, the first time; $log/matrix-*.log)"
for m in $matrix; do prepare "${m%:*}" "${m#*:}" >"$log/matrix-${m%:*}.log" 2>&1 8>&- & done
wait

passed=0 failed=0
for m in $matrix; do
    suite=${m%:*} major=${m#*:} out=$log/matrix-${m%:*}.log
    say "##### PostgreSQL $major on $suite"
    last=$(tail -n 1 "$out")
    if [ "$last" = "${last#"$suite is ready"}" ]; then
        say "FAIL the chroot could not be made"; tail -n 20 "$out"; failed=$((failed + 1)); continue
    fi
    # shellcheck disable=SC2086
    enter "$cache/$suite" PG_SUPPORTED="$major" /src/scripts/check.sh $stages 2>&1 | tee "$out" || true
    rm -rf "$log/matrix-$suite" && cp -r "$cache/$suite/src/build/log" "$log/matrix-$suite" 2>/dev/null || true
    rm -rf "$cache/$suite/src"
    if [[ $(tail -n 1 "$out") =~ ^([0-9]+)\ passed,\ ([0-9]+)\ failed$ ]]; then
        passed=$((passed + BASH_REMATCH[1])); failed=$((failed + BASH_REMATCH[2]))
        summary+="PostgreSQL $major: ${BASH_REMATCH[0]}"$'\n'
    else
        failed=$((failed + 1)); summary+="PostgreSQL $major: broke off"$'\n'
    fi
done
printf '#####\n%s' "${summary:-}"
say "$passed passed, $failed failed"
[ "$failed" = 0 ] && [ "$passed" -gt 0 ]
