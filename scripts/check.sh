#!/bin/bash
# Runs stages of the checks and counts: check.sh [lint unit fuzz regress isolation tap demo model] (default: all).
# The last line is "N passed, N failed" over all test items; the exit status is 0 only if something ran and nothing failed.
# TESTS="a b" picks tests by name within a stage; JOBS sets the parallelism; KEEP=1 keeps the work directory.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

stages=${*:-lint unit fuzz regress isolation tap demo model}
tests=${TESTS:-}
total_passed=0 total_failed=0
log=$top/build/log
export JOBS=$jobs

# ---- counting

stage_begins() { stage=$1; passed=0; failed=0; started=$SECONDS; say "=== $1${2:+ ($2)}"; }
stage_ends() {
    say "--- $stage: $passed passed, $failed failed ($((SECONDS - started)) s)"
    total_passed=$((total_passed + passed)); total_failed=$((total_failed + failed))
}
# item NAME LOGFILE COMMAND...: one test item; its output is shown only if it fails.
item() {
    local name=$1 file=$2 t=$SECONDS; shift 2
    if "$@" >"$file" 2>&1; then
        passed=$((passed + 1)); say "ok   $name ($((SECONDS - t)) s)"
    else
        failed=$((failed + 1)); say "FAIL $name"; tail -n "${TAIL:-80}" "$file"
    fi
}
# Adds counts taken from a tool's output. A tool that failed without naming a failed test counts as one failure.
add() { # passed failed status
    passed=$((passed + $1)); failed=$((failed + $2))
    if [ "$3" != 0 ] && [ "$2" = 0 ]; then failed=$((failed + 1)); fi
}
count() { grep -cE -e "$1" "$2" || true; }
nothing() { say "no $1 yet"; }
# Whether one of $tests is there, or none was asked for: chosen DIRECTORY SUFFIX. Each one that is not there is a failure.
chosen() {
    local t any=""
    for t in $tests; do
        if [ -e "$1/$t$2" ]; then any=1; else say "FAIL no such test: $t"; add 0 1 1; fi
    done
    [ -z "$tests" ] || [ -n "$any" ]
}

# ---- PostgreSQL-free stages

stage_lint() {
    stage_begins lint
    local file
    item "format" "$log/format.log" scripts/format.sh --check
    item "test lists" "$log/lists.log" scripts/check_lists.sh
    item "Python" "$log/python.log" env PYTHONPYCACHEPREFIX=build/pycache python3 -m py_compile examples/*/*.py docs/examples/*.py test/python/*.py
    if [ -n "$(cxx_files 'src/*')" ]; then
        item "exported symbols" "$log/exports.log" exports
        item "cppcheck" "$log/cppcheck.log" scripts/cppcheck.sh
        TAIL=200 item "clang-tidy" "$log/tidy.log" scripts/tidy.sh 3>&1
    else
        nothing "C++ sources"
    fi
    stage_ends
}
exports() {
    local config
    config=$(find_pg_config) || die "no PostgreSQL headers"
    flock build/lock make -s -j"$jobs" PG_CONFIG="$config" WERROR=1 && scripts/check_exports.sh
}

stage_unit() {
    stage_begins unit "ASan, UBSan"
    if compgen -G 'test/unit/*_test.cpp' >/dev/null; then
        local status=0
        say "compiling with sanitizers; the first time that takes a few minutes on two cores (log: $log/unit-build.log)"
        if { configure build/unit && cmake --build build/unit -j "$jobs" --target idem_unit; } >"$log/unit-build.log" 2>&1; then
            (cd build/unit && ctest -j "$jobs" --output-on-failure --no-tests=error ${tests:+-R "${tests// /|}"}) \
                >"$log/unit.log" 2>&1 || status=$?
            if [ "$status" != 0 ]; then grep -vE '^ *(Start|[0-9]+/[0-9]+ Test .* Passed)' "$log/unit.log" | tail -n 200 || true; fi
            add "$(count '^ *[0-9]+/[0-9]+ Test .* Passed' "$log/unit.log")" \
                "$(count '^ *[0-9]+/[0-9]+ Test .*\*\*\*(Failed|Exception|Timeout|Not Run)' "$log/unit.log")" "$status"
        else
            say "FAIL build of the unit tests"; grep -E -A5 'error|Error' "$log/unit-build.log" | head -n 80 || true; add 0 1 1
        fi
    else
        nothing "unit tests"
    fi
    stage_ends
}

stage_fuzz() {
    stage_begins fuzz "libFuzzer, ASan, UBSan, bounded"
    local f name corpus
    if ! compgen -G 'test/fuzz/*_fuzz.cpp' >/dev/null; then nothing "fuzzers"
    elif chosen test/fuzz .cpp; then
        if { configure build/fuzz -DCMAKE_CXX_COMPILER="$(llvm_tool clang++)" &&
             cmake --build build/fuzz -j "$jobs" --target idem_fuzz; } >"$log/fuzz-build.log" 2>&1; then
            for f in test/fuzz/*_fuzz.cpp; do
                name=$(basename "$f" .cpp)
                if [ -n "$tests" ] && [[ " $tests " != *" $name "* ]]; then continue; fi
                corpus=build/fuzz/corpus/$name; mkdir -p "$corpus"
                set -- "$corpus"
                if [ -d "test/fuzz/corpus/$name" ]; then set -- "$corpus" "test/fuzz/corpus/$name"; fi
                TAIL=40 item "$name" "$log/$name.log" timeout 300 "build/fuzz/$name" -runs="${FUZZ_RUNS:-20000}" \
                    -max_total_time="${FUZZ_TIME:-30}" -timeout=20 -rss_limit_mb=2048 -print_funcs=0 -print_final_stats=1 \
                    -artifact_prefix="$log/" "$@"
            done
        else
            say "FAIL build of the fuzzers"; grep -E -A5 'error|Error' "$log/fuzz-build.log" | head -n 80 || true; add 0 1 1
        fi
    fi
    stage_ends
}

stage_model() {
    stage_begins model "spin"
    local status=0 last
    # shellcheck disable=SC2086
    set -- $tests
    test/model/check.sh "$@" 2>&1 | tee "$log/model.log" || status=$?
    last=$(tail -n 1 "$log/model.log")
    if [[ $last =~ ^([0-9]+)\ passed,\ ([0-9]+)\ failed$ ]]; then
        add "${BASH_REMATCH[1]}" "${BASH_REMATCH[2]}" "$status"
    else
        add 0 1 1
    fi
    stage_ends
}

# ---- stages on a server

# Builds and installs into a private PostgreSQL, and copies what the tests read to where the unprivileged user can read
# it; done once. Counts as one item of the first stage that needs it.
need_postgres() {
    local sys
    if [ -n "${pg_bin:-}" ]; then return 0; fi
    if [ -n "${build_broken:-}" ]; then say "FAIL the extension was not built"; add 0 1 1; return 1; fi
    sys=$(find_pg_config) || die "no PostgreSQL with server headers found (scripts/setup.sh)"
    say "PostgreSQL: $("$sys" --version | sed 's/^PostgreSQL //') by $sys"
    if make_private_postgres "$sys" WERROR=1 >"$log/build.log" 2>&1; then
        add 1 0 0; say "ok   build"
    else
        add 0 1 1; say "FAIL build"; grep -E -A5 'error|Error|\*\*\*' "$log/build.log" | head -n 80 || true
        pg_bin="" build_broken=1
        return 1
    fi
    mkdir "$work/tree"
    tar -c --exclude=./build --exclude=./.git --exclude='*.o' . | tar -x -C "$work/tree"
    chown -R "$user" "$work/tree"
    chmod -R u+rwX,go+rX "$work/tree"
}

# regress or isolation, once on a stock server and once with the library preloaded.
installcheck() { # stage, make variables...
    local pass status out
    stage=$1; shift
    for pass in plain preload; do
        out=$log/$stage-$pass.log status=0
        if [ "$pass" = plain ]; then start_server "$stage-$pass"; else start_server "$stage-$pass" test/regress.conf; fi ||
            { say "FAIL the server does not start ($pass)"; add 0 1 1; continue; }
        rm -rf "$work/tree/results" "$work/tree/output_iso" "$work/tree"/regression.*
        as_user env PATH="$pg_bin:$PATH" timeout 1200 make -s -C "$work/tree" installcheck PG_CONFIG="$pg_config" "$@" >"$out" 2>&1 || status=$?
        if [ "$status" != 0 ]; then
            grep -vE '\.\.\. ok|^ok |^(SET|ALTER DATABASE|(DROP|CREATE) DATABASE)$' "$out" | tail -n 30 || true
            cat "$work/tree/regression.diffs" "$work/tree/output_iso/regression.diffs" 2>/dev/null |
                tee "$log/$stage-$pass.diffs" | head -n "${DIFF_LINES:-200}" || true
            if grep -E 'PANIC|FATAL:  .*abort|terminated by signal|TRAP:' "$server_log"; then tail -n 30 "$server_log"; fi
        fi
        cp "$server_log" "$log/$stage-$pass.server.log"
        say "$pass: $(count '\.\.\. ok|^ok ' "$out") ok, $(count '\.\.\. FAILED|^not ok ' "$out") not ok"
        add "$(count '\.\.\. ok|^ok ' "$out")" "$(count '\.\.\. FAILED|^not ok ' "$out")" "$status"
        stop_server
    done
}

stage_regress() {
    stage_begins regress "pg_regress"
    if ! compgen -G 'sql/*.sql' >/dev/null; then nothing "regression tests"
    elif chosen sql .sql && need_postgres; then installcheck regress ISOLATION= ${tests:+REGRESS="$tests"}; fi
    stage_ends
}

stage_isolation() {
    stage_begins isolation "pg_isolation_regress"
    if ! compgen -G 'test/isolation/specs/*.spec' >/dev/null; then nothing "isolation tests"
    elif chosen test/isolation/specs .spec && need_postgres; then installcheck isolation REGRESS= ${tests:+ISOLATION="$tests"}; fi
    stage_ends
}

stage_tap() {
    stage_begins tap "prove"
    local f name file list=()
    for f in test/t/*.pl; do
        name=$(basename "$f" .pl)
        if [ -e "$f" ] && { [ -z "$tests" ] || [[ " $tests " = *" $name "* ]]; }; then list+=("$name"); fi
    done
    if ! compgen -G 'test/t/*.pl' >/dev/null; then nothing "TAP tests"
    elif chosen test/t .pl && need_postgres; then
        mkdir "$work/out/tap" "$work/run/ports"; chown "$user" "$work/out/tap" "$work/run/ports"
        cat >"$work/tap" <<END
#!/bin/bash
# One TAP file, as PGXS would run it.
dir=$work/out/tap/\$1; t=\$SECONDS
mkdir -p "\$dir/tmp_check/log" && cd "$work/tree/test" || exit 2
export TESTDIR=\$dir TESTDATADIR=\$dir/tmp_check TESTLOGDIR=\$dir/tmp_check/log PG_TEST_PORT_DIR=$work/run/ports
export PATH=$pg_bin:\$PATH PG_REGRESS=$pgxs_src/test/regress/pg_regress PG_CONFIG=$pg_config
export PERL5LIB=$pgxs_src/test/perl\${PERL5LIB:+:\$PERL5LIB}
timeout -k 30 ${TAP_TIMEOUT:-900} prove --norc -v -I t "t/\$1.pl" >"\$dir/log" 2>&1 </dev/null
echo "\$?" >"\$dir/status"
echo "ran  \$1 (\$((SECONDS - t)) s)"
END
        chmod 755 "$work/tap"
        printf '%s\n' "${list[@]}" | as_user xargs -n 1 -P "${TAP_JOBS:-$jobs}" "$work/tap" || true
        for name in "${list[@]}"; do tap_result "$name"; done
    fi
    stage_ends
}
tap_result() {
    local file=$work/out/tap/$1/log status bad good
    status=$(cat "$work/out/tap/$1/status" 2>/dev/null || echo 1)
    cp "$file" "$log/tap-$1.log" 2>/dev/null || : >"$log/tap-$1.log"
    file=$log/tap-$1.log
    good=$(grep -E '^ok ' "$file" | grep -cviE '# (skip|todo)' || true)
    bad=$(grep -E '^not ok ' "$file" | grep -cviE '# todo' || true)
    if [ "$status" = 0 ] && [ "$bad" = 0 ]; then
        say "ok   $1: $good assertions$(grep -m1 -oiE '# skip.*' "$file" | sed 's/^/ /')"
    else
        say "FAIL $1: $good ok, $bad not ok, exit $status"
        grep -vE '^ok ' "$file" | tail -n 60 || true
        tail -n 20 "$work/out/tap/$1"/tmp_check/log/*.log 2>/dev/null | tail -n 60 || true
        cp -r "$work/out/tap/$1/tmp_check/log" "$log/tap-$1.servers" 2>/dev/null || true
    fi
    add "$good" "$bad" "$status"
}

# The demo counts as one test: all of its invariants hold. It brings a server of its own.
stage_demo() {
    stage_begins demo
    item "demo" "$log/demo.log" examples/demo/run --check
    stage_ends
}

# ----

for s in $stages; do declare -F "stage_$s" >/dev/null || die "no such stage: $s"; done
make_work
mkdir -p "$log"
for s in $stages; do "stage_$s"; done
say "$total_passed passed, $total_failed failed"
[ "$total_failed" = 0 ] && [ "$total_passed" -gt 0 ]
