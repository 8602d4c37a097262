#!/usr/bin/env bash
# What a change must pass. The last line is the sum over all test programs.
#
#   test.sh          everything, as root
#   test.sh check    what needs no root: the format, clippy, unit tests, cases and whatever else sets no live probe
#
#   INGERO_TEST_KERNELS=quick test.sh    the tests that tell most about a kernel also on other kernels (tests/kernels), where
#                                        there is time left for it
set -uo pipefail
cd "$(dirname "$0")/../.."
export PATH=$PATH:/usr/sbin:/sbin
cargo=${CARGO:-cargo}
what=${1:-all}

if [ "$what" = all ] && [ "$(id -u)" != 0 ]; then
	echo "test: the end-to-end tests set live probes: run \`make test\` as root; \`make check\` needs no root" >&2
	exit 2
fi

step() {
	echo "== $SECONDS s: $*"
	"$@" || { echo "test: $* failed" >&2; exit 1; }
}
failed=0
tests() {
	echo "== $SECONDS s: $*"
	"$@" 2>&1 | tee -a "$log" || failed=1
}
tools='' log=$(mktemp)
trap 'rm -f "$log"; [ -z "$tools" ] || kill "$tools" 2>/dev/null' EXIT

if [ "$what" = all ]; then
	# The tools for the end-to-end tests, beside what else there is to build: cargo keeps the profiles apart.
	"$cargo" build --profile test-tools --workspace --bins --quiet &
	tools=$!
fi
step "$cargo" fmt --all --check
step "$cargo" clippy --workspace --all-targets --quiet -- -D warnings
if [ "$what" = all ]; then
	step env RUSTDOCFLAGS='-D warnings' "$cargo" doc --workspace --no-deps --quiet
	echo "== $SECONDS s: waiting for the tools"
	wait "$tools" || { tools='' && echo "test: building the tools failed" >&2 && exit 1; }
	tools=
	profile=test-tools
else
	profile=debug
	# Enough to notice that something is broken; `make test` takes more.
	export INGERO_SIM_SEEDS=${INGERO_SIM_SEEDS:-0..4}
fi

# A crate has unit tests, `it` for what needs no live probe, and `live`; all of it runs with overflow checks, the tools too.
# A test starts an example, which cargo does not build where test programs are named.
step "$cargo" build --workspace --bins --examples --quiet
INGERO_BIN_DIR=$(realpath "${CARGO_TARGET_DIR:-target}")/$profile
export INGERO_BIN_DIR
tests "$cargo" test --workspace --no-fail-fast --lib --bins --test it
if [ "$what" = all ]; then
	tests "$cargo" test --workspace --no-fail-fast --doc
	# They compare with what the kernel counts and leave the consumer a CPU, so they have the machine one at a time.
	tests env RUST_TEST_THREADS=1 "$cargo" test --workspace --no-fail-fast --test live
	if [ "${INGERO_TEST_KERNELS:-}" = quick ]; then
		if [ "$SECONDS" -lt 1200 ]; then
			# Where qemu cannot be installed either, the matrix says that it is skipped.
			tests/scripts/prerequisites.sh kernels || true
			tests env CARGO="$cargo" python3 tests/kernels/run.py --quick --optional
		else
			echo "test: other kernels skipped: the tests on this one took ${SECONDS} s"
		fi
	fi
fi

awk -v failed=$failed '
	/^test result:/ { for (i = 1; i < NF; i++) { if ($(i + 1) ~ /^passed/) ok += $i; if ($(i + 1) ~ /^failed/) bad += $i; if ($(i + 1) ~ /^ignored/) left += $i } }
	/^test .* \.\.\. FAILED$/ { print "FAILED: " $2 }
	END { printf "test result: %s. %d passed; %d failed; %d ignored\n", (failed || bad || !ok) ? "FAILED" : "ok", ok, bad, left }
' "$log"
exit $failed
