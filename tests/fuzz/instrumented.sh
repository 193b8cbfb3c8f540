#!/bin/sh
# Compiles the laws too (`cfg(fuzzing)`), and with a record of the code that is reached: cargo runs it in place of rustc for the crates of this
# workspace. The libraries they use stay as any other build has made them.
exec "$@" --cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares
