# Two commands: `make run` shows a first comparison, `make test` runs the default tests.
.PHONY: run rust dist test-dist test-reproducible test-crates test debian-image test-platforms test-containers test-fleet test-kubernetes test-kvm test-gates test-kills test-faults test-studies claims-page life-cycle neighbours test-long lint bench figures book deny advisories fuzz miri

run: rust
	cargo run --release --package weighbridge

# A cargo that is older than the edition, such as that of Debian 12, does not say what would help.
rust:
	@wanted=$$(sed -n 's/^rust-version = "1\.\([0-9]*\)"$$/\1/p' Cargo.toml); \
	found=$$(cargo --version | sed -n 's/^cargo 1\.\([0-9]*\)\..*/\1/p'); \
	{ command -v cargo > /dev/null && [ "$${found:-$$wanted}" -ge "$$wanted" ]; } || \
	  { echo "weighbridge needs Rust 1.$$wanted or later; rustup has it: https://rustup.rs" >&2; exit 1; }

# What is given to others, in target/packages: static binaries of both architectures in archives and
# Debian packages. It needs git, python3, xz-utils, the targets of musl, of the other architecture and
# of WebAssembly (rustup target add), gcc-aarch64-linux-gnu, libc6-dev-arm64-cross and qemu-user-static.
ARCHITECTURES = amd64 arm64
dist:
	packaging/dist $(ARCHITECTURES)

# The package in clean systems, as root: trixie bookworm sid (roots by mmdebstrap), container (podman),
# machine machine-sid arm64 arm64-quick arm64-conformance (emulated); and without the package
# sandboxes-sid, the platforms that only Debian unstable has.
SYSTEMS = trixie
test-dist:
	packaging/test $(SYSTEMS)

# Two builds from different directories, compared; they take as long as two clean release builds.
test-reproducible:
	packaging/twice

# A release build, and `cargo install weighbridge` from the packaged crates alone.
test-crates:
	packaging/crates

# Examples of the documentation have a runner of their own: nextest runs none.
test: rust
	@echo "make test: about 12 minutes on two cores from a built tree, as root; the first build takes 10 more"
	@$(MAKE) --no-print-directory lint
	tests/run --workspace
	cargo test --workspace --doc --quiet

# The image of a system that tests need, made by the `weigh` that is built with all tests. Cargo gives
# any smaller selection of packages other features, and compiles half of the workspace once more.
debian-image:
	tests/run --workspace --no-run
	$${CARGO_TARGET_DIR:-target}/debug/weigh image build debian

# Every platform that is ready here: the conformance suite, of which slow platforms run only the
# telling checks; disks, networks and systems; machines through the whole of weigh, and measurements
# that take all CPUs for a long time. Systems need the Debian image.
test-platforms: debian-image
	tests/run --workspace --profile platforms

# Every container through the whole of weigh: one command over all of them, and a crash while each
# comes up.
test-containers:
	WEIGH_CONTAINERS=1 tests/run --profile long --package weighbridge -E 'test(/^containers::/)'

# Two hundred machines through a real Slurm, of which several nodes run here; what an engine adds to
# a run; and how much sooner shared blocks end. It needs slurm-wlm and munge.
test-fleet:
	WEIGH_LONG=1 tests/run --profile long --package weighbridge -E 'test(/^fleet::/)'

# Pods and a fleet on a Kubernetes cluster of one node, which is built from Debian's source once (12
# minutes of two CPUs, into /var/cache/weighbridge-kubernetes), started, and taken down again. It
# needs root, and apt sources of Debian 12.
test-kubernetes:
	cargo build --package weighbridge
	target/debug/weigh image build debian
	tests/kubernetes with sh -c 'tests/kubernetes pods && tests/kubernetes fleet && tests/kubernetes lost'

# Machines under KVM, in an emulated computer whose processor has AMD's SVM: it needs root
# and mmdebstrap, makes the computer's disk and the QEMU that emulates it once (into
# /var/cache/weighbridge-kvm), and runs for hours. PARTS="proof machines" runs these parts alone
# (`tests/kvm parts` lists them), and `tests/kvm report` shows what the last run of each found.
PARTS =
test-kvm:
	tests/kvm run $(PARTS)

# Gates of real builds: runc against itself, against itself with more work and against crun, two
# versions of runsc, and ten comparisons without a change. As root, in 15 to 40 minutes, on a machine
# that does nothing else; CASES="self more-10" makes these anew. It needs runc, crun and runsc.
CASES =
test-gates:
	cargo build --release --package weighbridge
	tests/gates $(CASES)

# SIGKILL at a thousand system calls of runs on every platform that is ready, in about two hours.
# It needs strace.
KILLS = 1000
test-kills:
	cargo run --package weighbridge -- image build debian
	WEIGH_KILLS=$(KILLS) tests/run --profile long --package weighbridge -E 'test(/^kills::after_sigkill/)'

# An hour of runs that are killed, interrupted, have no space, or lose their daemons, at random.
MINUTES = 60
test-faults:
	cargo run --package weighbridge -- image build debian
	WEIGH_FAULTS=$(MINUTES) tests/run --profile long --package weighbridge -E 'test(/^kills::a_soak/)'

# All experiments of all studies at their quick size, in an hour; what they made is in
# target/tmp/studies, where claims.md says what has become of every claim. STUDIES=continue measures
# what an interruption has left, and STUDIES=felter-2014,young-2019 these again. STUDY_BLOCKS=6
# decides more claims, in two hours and a half. It wants the machine to itself. What it measures of
# Debian is in tests/studies.rs. It begins when no such package is missing, and names the platforms
# that are; texlive-science compiles what it writes.
STUDIES = 1
STUDY_BLOCKS = 2
test-studies:
	cargo run --release --package weighbridge -- image build debian
	WEIGH_STUDIES=$(STUDIES) WEIGH_STUDIES_BLOCKS=$(STUDY_BLOCKS) tests/run --profile long --release --no-capture --package weighbridge -E 'test(/^studies::/)'

# The page of claims that test-studies has written, in the book.
claims-page:
	cp $${CARGO_TARGET_DIR:-target}/tmp/studies/claims.md docs/studies/claims.md
	grep -q '(studies/claims.md)' docs/SUMMARY.md || \
	  sed -i 's|^- \[The studies\](studies.md)$$|&\n  - [What has become of the claims](studies/claims.md)|' docs/SUMMARY.md

# What the book shows of one machine, which wants it to itself, and root: the life cycle of containers,
# sandboxes and machines in docs/start.md, in 40 to 80 minutes, and who disturbs whom in
# docs/density.md, in half an hour. Interrupted, each goes on with its run in target/measured; without
# that it measures anew. Platforms that are not ready are named first, and left out. BLOCKS=20 are the
# fewest that show tails.
life-cycle neighbours:
	cargo build --release --package weighbridge
	tests/measured $@ $(BLOCKS)

# 100,000 machines that crash, long simulations of the statistics, the kernel package of Debian, the
# method on this machine, which wants it to itself, and every check on every platform.
test-long:
	WEIGH_LONG=1 tests/run --profile long --release --package weigh-runner -E 'test(/^simulation::/)'
	WEIGH_LONG=1 tests/run --profile long --release --package weigh-stats --package weigh-images --package weigh-report
	WEIGH_LONG=1 tests/run --profile long --release --package weighbridge -E 'test(/^(selftest|crash|density|images|machines|tools)::/)'
	WEIGH_LONG=1 tests/run --profile long --package weigh-platforms

lint:
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps

# Miri over the messages between host and probe, and over what the probe reads: it needs a nightly
# compiler with the component miri. Few cases of each property, because it interprets every
# instruction. Left out are the tests that make system calls which it does not know.
MIRI = MIRIFLAGS=-Zmiri-disable-isolation PROPTEST_CASES=4 cargo +nightly miri test
miri:
	$(MIRI) --package weigh-protocol
	$(MIRI) --package weigh-links --lib -- addresses_are_parsed
	$(MIRI) --package weigh-probe --bins -- --skip channel:: --skip this_machine_has --skip digests_are --skip mitigations_are

# Five minutes for each of the fuzzers, or for those of FUZZ; what they find is in fuzz/artifacts.
# They need a nightly compiler and cargo-fuzz (cargo install cargo-fuzz). The default tests replay
# fuzz/corpus.
FUZZ = $(basename $(notdir $(wildcard fuzz/fuzz_targets/*.rs)))
FUZZ_SECONDS = 300
fuzz:
	cd fuzz && for target in $(FUZZ); do \
	  mkdir -p found/$$target && cargo +nightly fuzz run $$target found/$$target corpus/$$target \
	    ../crates/workloads/manifests ../crates/studies/studies -- -max_total_time=$(FUZZ_SECONDS) -rss_limit_mb=2048 -timeout=20 || exit 1; \
	done

# Ratios of this tool against hyperfine, gcc, xz, runc and machines started by hand, each taken in
# one run; what the sensors cost. BENCH=hyperfine makes these measurements alone. WEIGH_STATIC names
# the static weigh of `make dist`, which is compared with the dynamic one, as the kernels are.
BENCH =
bench:
	cargo build --release --package weighbridge
	cargo build --profile kernels --package weigh-kernels --bin weigh-kernels
	cargo run --release --package weigh-bench -- '$(BENCH)'
	$(if $(BENCH),,cargo run --release --package weigh-kernels --example versus_c)

# The pictures of the book, made by simulations with fixed seeds.
figures:
	cargo run --package weigh-bench --bin figures -- docs/method/figures

# The book, in target/book. What is in it is checked by the test `book`, with the other tests.
book:
	@command -v mdbook >/dev/null || { echo "mdbook is missing. It makes the book; get it with:"; \
	  echo "  cargo install --locked mdbook --no-default-features"; exit 1; }
	mdbook build docs
	@echo "the book: target/book/index.html"

# Licences and sources of every dependency (cargo install cargo-deny).
deny:
	cargo deny check bans licenses sources

# Known faults of every dependency, and versions that were yanked. It fetches the database of
# advisories.
advisories:
	cargo deny check advisories
