#!/bin/bash
# cppcheck over the sources, without PostgreSQL's headers: its macros come from scripts/cppcheck.cfg.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh
mkdir -p build/cppcheck
cppcheck --quiet --error-exitcode=1 --std=c++20 --language=c++ --enable=warning,performance,portability \
    --inline-suppr --library=scripts/cppcheck.cfg --suppressions-list=scripts/cppcheck.suppressions \
    --cppcheck-build-dir=build/cppcheck -j "$jobs" -Isrc src
