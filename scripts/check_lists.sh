#!/bin/bash
# Every test file is one that a stage runs: inputs have expected outputs and the reverse, names are as the stages want them.
set -euo pipefail
cd "$(dirname "$0")/.."
shopt -s nullglob
bad=0
complain() { printf '%s\n' "$*"; bad=1; }

pairs() { # inputs/ suffix expected/
    local f base
    for f in "$1"/*; do
        base=$(basename "$f" "$2")
        if [[ $f != *"$2" ]]; then complain "$f: not a *$2 file, so no stage runs it"
        elif [ ! -e "$3/$base.out" ]; then complain "$f: no $3/$base.out"; fi
    done
    for f in "$3"/*; do
        base=$(basename "$f" .out)
        # NAME_1.out and so on are alternatives of NAME.out
        if [ ! -e "$1/$base$2" ] && [ ! -e "$1/${base%_[0-9]}$2" ]; then complain "$f: no $1/$base$2"; fi
    done
}
pairs sql .sql expected
pairs test/isolation/specs .spec test/isolation/expected

for f in test/t/*; do
    case $(basename "$f") in
    [0-9][0-9][0-9]_*.pl | *.pm) ;;
    *.pl) complain "$f: TAP tests are named NNN_topic.pl" ;;
    esac
done
dup=$(for f in test/t/*.pl; do basename "$f" | cut -c1-3; done | sort | uniq -d)
[ -z "$dup" ] || complain "test/t: numbers used twice: $(xargs <<<"$dup")"
for f in test/unit/*.cpp; do [[ $f = *_test.cpp ]] || complain "$f: unit tests are named *_test.cpp"; done
for f in test/fuzz/*.cpp; do [[ $f = *_fuzz.cpp ]] || complain "$f: fuzzers are named *_fuzz.cpp"; done
exit "$bad"
