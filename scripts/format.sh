#!/bin/bash
# clang-format over our C++ files; with --check it only reports.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh
tool=${CLANG_FORMAT:-$(llvm_tool clang-format)}
files=$(cxx_files)
[ -n "$files" ] || { say "no C++ files yet"; exit 0; }
if ! "$tool" --version | grep -q "version $LLVM\."; then
    say "not the version that the sources are formatted with, $LLVM: $("$tool" --version)"
    if [ "${1:-}" = --check ]; then say "format is not checked"; exit 0; fi
fi
if [ "${1:-}" = --check ]; then set -- --dry-run -Werror; else set -- -i; fi
xargs -d '\n' -P "$jobs" -n 16 "$tool" --style=file "$@" <<<"$files"
