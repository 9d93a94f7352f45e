# What there is to do; `just` alone lists it.
default:
    @{{ quote(just_executable()) }} --list

# Build the binary
build:
    cargo build --release

# Run the tests; those that need SeaweedFS or Python say so and are skipped unless they are set up
test:
    cargo test --release

# Run the tests with SeaweedFS and Python set up, skipping nothing
test-all dir="target/seaweedfs":
    #!/usr/bin/env bash
    set -euo pipefail
    eval "$(scripts/start-seaweedfs.sh {{dir}})"
    trap 'kill "$S3MQ_SEAWEEDFS_PID"' EXIT
    S3MQ_TEST_SKIP_NOTHING=1 cargo test --release

# Formatting, clippy and rustdoc, with warnings denied
lint:
    cargo fmt --all --check
    cargo fmt --manifest-path fuzz/Cargo.toml --check
    cargo clippy --workspace --all-targets -- -D warnings
    RUSTDOCFLAGS="-D warnings" cargo doc --no-deps

# Format the code
fmt:
    cargo fmt --all
    cargo fmt --manifest-path fuzz/Cargo.toml

# The reference sweep: 10,000 to 250,000 messages a second, on the store that the environment names
bench commit_ms="1000" *flags="":
    cargo run --release -- bench --range-start 10000 --range-end 250000 --range-step 40000 --seconds-to-stream 30 --autocommit-duration-ms {{commit_ms}} {{flags}}

# A short bench on the embedded store
smoke:
    cargo run --release -- bench --s3-backend embedded --range-start 1000 --range-end 3000 --range-step 1000 --seconds-to-stream 10

# Prove the measuring: add 200 ms to each commit of the embedded store and look where they come out
calibrate *flags="":
    cargo build --release
    scripts/calibrate.py --binary "${CARGO_TARGET_DIR:-target}/release/s3mq" {{flags}}

# What a message costs each role in instructions and allocations (valgrind); --save compares later runs with this one
bench-code *flags="":
    cargo build --release
    scripts/code_cost.py {{flags}}

# Times of the hot pieces, one by one (Criterion)
bench-hot *flags="":
    cargo bench -p s3mq-hot -- {{flags}}

# Fuzz everything that is read from outside, a minute a target; or one target, for so many seconds. Compiles deltalake once more
fuzz target="all" seconds="60":
    scripts/fuzz.sh {{target}} {{seconds}}

# A short bench on the MinIO of docker-compose.minio.yml
smoke-minio:
    docker compose -f docker-compose.minio.yml up --detach --wait
    MINIO_S3_ENDPOINT=http://127.0.0.1:9000 MINIO_S3_BUCKET=s3mq MINIO_S3_ACCESS_KEY=s3mqminio MINIO_S3_SECRET_ACCESS_KEY=s3mqminiosecret cargo run --release -- bench --s3-backend minio --range-start 1000 --range-end 3000 --range-step 1000 --seconds-to-stream 10

# Messages through a store that misbehaves while processes are killed; proves that none is lost or doubled
chaos *flags="":
    cargo build --release
    scripts/chaos.py {{flags}}

# The library's documentation
docs:
    RUSTDOCFLAGS="-D warnings" cargo doc --no-deps

# What the queue costs over plain requests, on the store that the environment names; rewrites benches/results/layers.json and docs/layers.md
layers *flags="":
    RUSTFLAGS= cargo run --release -p s3mq-layers -- --page docs/layers.md {{flags}}

# Measure what s3mq promises of itself (a quarter of an hour); rewrites benches/results/targets.json and docs/targets.md
targets *flags="":
    cargo build --release
    scripts/targets.py --binary "${CARGO_TARGET_DIR:-target}/release/s3mq" {{flags}}
