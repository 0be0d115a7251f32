# Two commands: `make run` shows a first comparison, `make test` runs the default tests.
.PHONY: run test test-platforms test-long lint bench deny

run:
	cargo run --release --package weigh

test: lint
	cargo test --workspace --no-fail-fast

# The conformance suite on the quickest guest of every platform that is ready here.
test-platforms:
	cargo test --package weigh-platforms --test conformance --no-fail-fast -- --nocapture --test-threads=1

# Long simulations of the statistics.
test-long:
	WEIGH_LONG=1 cargo test --release --package weigh-stats --no-fail-fast

lint:
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps

# Ratios of this tool against hyperfine, gcc, xz and runc, each taken in one run.
bench:
	cargo build --release --package weigh
	cargo run --release --package weigh-bench
	cargo run --release --package weigh-kernels --example versus_c

# Licences and sources of every dependency (cargo install cargo-deny).
deny:
	cargo deny check bans licenses sources
