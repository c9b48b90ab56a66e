#!/bin/bash
# clang-tidy over every source, or the given ones. A file that passed is not looked at again until it, a header, or the
# configuration changes.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh
tool=$(llvm_tool clang-tidy)
if ! "$tool" --version | grep -q "version $LLVM\."; then
    say "not the version that the sources are clean for, $LLVM: $("$tool" --version | xargs)"; say "not checked"; exit 0
fi
configure build/tidy -DCMAKE_CXX_COMPILER="$(llvm_tool clang++ || echo g++)" >/dev/null
if [ $# = 0 ]; then mapfile -t files < <(cxx_files 'src/*' 'test/unit/*' 'test/fuzz/*' | grep '\.cpp$'); else files=("$@"); fi
common=$({ "$tool" --version; cat .clang-tidy test/.clang-tidy build/tidy/compile_commands.json; cxx_files | grep -E '\.h(pp)?$' | xargs -r -d '\n' cat; } | sha256sum)
mkdir -p build/tidy/passed

# Some files take a minute: each one is told, to descriptor 3 where the caller keeps the rest in a log.
{ true >&3; } 2>/dev/null || exec 3>&1

one() { # file key number
    printf '     clang-tidy %s/%s %s\n' "$3" "$total" "$1" >&3
    "$tool" -p build/tidy --quiet "$1" 2> >(grep -vE '^[0-9]+ warnings? (generated|treated)|^Suppressed|^Use -header-filter' >&2) && touch "build/tidy/passed/$2"
}
export -f one
todo=()
for f in "${files[@]}"; do
    key=$(printf '%s' "$f $common" | cat - "$f" | sha256sum | cut -c1-40)
    if [ ! -e "build/tidy/passed/$key" ]; then todo+=("$f" "$key" "$((${#todo[@]} / 3 + 1))"); fi
done
if [ ${#todo[@]} = 0 ]; then exit 0; fi
export tool total=$((${#todo[@]} / 3))
printf '%s\n' "${todo[@]}" | xargs -d '\n' -P "$jobs" -n 3 bash -c 'one "$@"' _
