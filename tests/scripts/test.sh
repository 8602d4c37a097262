#!/usr/bin/env bash
# Everything that a change must pass. The last line is the sum over all test programs.
#
#   INGERO_TEST_KERNELS=quick test.sh    the tests that tell most about a kernel also on other kernels (tests/kernels), where
#                                        there is time left for it
set -uo pipefail
cd "$(dirname "$0")/../.."
export PATH=$PATH:/usr/sbin:/sbin
cargo=${CARGO:-cargo}

if [ "$(id -u)" != 0 ]; then
	echo "test: the end-to-end tests set live probes: run \`make test\` as root" >&2
	exit 2
fi

step() {
	echo "== $SECONDS s: $*"
	"$@" || { echo "test: $* failed" >&2; exit 1; }
}
# The tools as users run them, beside what else there is to build: cargo keeps the profiles apart.
"$cargo" build --release --workspace --bins --quiet &
tools=$! log=$(mktemp)
trap 'rm -f "$log"; [ -z "$tools" ] || kill "$tools" 2>/dev/null' EXIT
step "$cargo" fmt --all --check
step "$cargo" clippy --workspace --all-targets --quiet -- -D warnings
step env RUSTDOCFLAGS='-D warnings' "$cargo" doc --workspace --no-deps --quiet

failed=0
tests() {
	echo "== $SECONDS s: $*"
	"$@" 2>&1 | tee -a "$log" || failed=1
}
# All test programs with overflow checks. Many set live probes, so they have the one machine one at a time.
echo "== $SECONDS s: waiting for the release build"
wait "$tools" || { tools='' && echo "test: building the tools failed" >&2 && exit 1; }
tools=
INGERO_BIN_DIR=$(realpath "${CARGO_TARGET_DIR:-target}")/release
export INGERO_BIN_DIR RUST_TEST_THREADS=1
tests "$cargo" test --workspace --no-fail-fast
if [ "${INGERO_TEST_KERNELS:-}" = quick ]; then
	if [ "$SECONDS" -lt 1200 ]; then
		# Where qemu cannot be installed either, the matrix says that it is skipped.
		tests/scripts/prerequisites.sh kernels || true
		tests env CARGO="$cargo" python3 tests/kernels/run.py --quick --optional
	else
		echo "test: other kernels skipped: the tests on this one took ${SECONDS} s"
	fi
fi

awk -v failed=$failed '
	/^test result:/ { for (i = 1; i < NF; i++) { if ($(i + 1) ~ /^passed/) ok += $i; if ($(i + 1) ~ /^failed/) bad += $i; if ($(i + 1) ~ /^ignored/) left += $i } }
	/^test .* \.\.\. FAILED$/ { print "FAILED: " $2 }
	END { printf "test result: %s. %d passed; %d failed; %d ignored\n", (failed || bad || !ok) ? "FAILED" : "ok", ok, bad, left }
' "$log"
exit $failed
