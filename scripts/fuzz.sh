#!/usr/bin/env bash
# Fuzzes what is read from outside: `scripts/fuzz.sh [TARGET|all] [SECONDS]`, by default each target for a minute.
# The first build takes a quarter of an hour. What is worth keeping of the found inputs is not put into the corpus by
# itself; an input that breaks a check is in fuzz/artifacts/TARGET.
set -euo pipefail
cd "$(dirname "$0")/.."
target="${1:-all}" seconds="${2:-60}"
command -v cargo-fuzz >/dev/null || cargo install --locked cargo-fuzz

targets=("$target")
[ "$target" != all ] || mapfile -t targets < <(cargo fuzz list)
# The address sanitizer needs a nightly compiler, coverage does not. Some dependencies do less with --cfg fuzzing.
build=(--sanitizer none --no-cfg-fuzzing)
for target in "${targets[@]}"; do
  cargo fuzz build "${build[@]}" "$target"
done
failed=()
for target in "${targets[@]}"; do
  printf '\n== %s, for %s s\n' "$target" "$seconds"
  found="${CARGO_TARGET_DIR:-fuzz/target}/found/$target"
  mkdir -p "$found"
  # New inputs go to the first directory.
  cargo fuzz run "${build[@]}" "$target" "$found" "fuzz/corpus/$target" -- \
    -max_total_time="$seconds" -timeout=20 -rss_limit_mb=6144 -print_final_stats=1 || failed+=("$target")
done
[ ${#failed[@]} = 0 ] || { echo "a check was broken: ${failed[*]}; the input is in fuzz/artifacts" >&2; exit 1; }
