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

one() {
    local key
    key=$(printf '%s' "$1 $3" | cat - "$1" | sha256sum | cut -c1-40)
    if [ -e "build/tidy/passed/$key" ]; then return 0; fi
    "$2" -p build/tidy --quiet "$1" 2> >(grep -vE '^[0-9]+ warnings? (generated|treated)|^Suppressed|^Use -header-filter' >&2) && touch "build/tidy/passed/$key"
}
export -f one
printf '%s\n' "${files[@]}" | xargs -d '\n' -P "$jobs" -I '{}' bash -c 'one "$1" "$2" "$3"' _ '{}' "$tool" "$common"
