# Shortcuts; each line can be typed by hand. `just` alone lists them.

default:
    @just --list

# Serve fences on 127.0.0.1:7411 with the public development tokens
run *ARGS:
    cargo run --release -- serve --dev {{ARGS}}

# Every test, or those that match: just test late_seal
test *FILTER:
    ./test {{FILTER}}

# Formatting, lints, documentation
lint:
    cargo fmt --all --check
    cargo clippy --workspace --all-targets -- -D warnings
    RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps

# Side by side with Redis, PostgreSQL, a no-op server and raw fjall
bench *ARGS:
    cargo run --release -p fencepost-bench -- {{ARGS}}

# The simulator: just sim --seeds 10000
sim *ARGS:
    cargo run --release -p fencepost-sim -- {{ARGS}}

# The long forms of the tests: hours, not minutes
long:
    ./test --long

# Rewrite docs/openapi.json from the code
snapshot:
    UPDATE_SNAPSHOTS=1 cargo test -p fencepost-house
