#!/usr/bin/env bash
# Installs what a build (or the tests) need and the machine lacks, with apt-get; elsewhere it says what is missing.
#
#   prerequisites.sh build|test|kernels
set -euo pipefail
PATH=$PATH:/usr/sbin:/sbin

missing=()
need() { # COMMAND PACKAGE; a builtin of the shell is no program
	type -P "$1" >/dev/null || missing+=("$2")
}

compiles() { # OPTIONS of the compiler
	echo 'int main(void) { return 0; }' | gcc "$@" -x c -o /dev/null - 2>/dev/null
}

need gcc gcc
# Debian's gcc only recommends it.
compiles || missing+=(libc6-dev)
need make make
need "${CLANG:-clang}" clang
echo '#include <bpf/bpf_helpers.h>' | gcc -E -x c -include linux/types.h - >/dev/null 2>&1 || missing+=(libbpf-dev)
if [ "${1:-build}" != build ]; then
	need bpftool bpftool
	# The tests' stand-in for sudo is linked statically.
	compiles -static || missing+=(libc6-dev)
	need readelf binutils
	need strip binutils
	need kill procps
	for command in prlimit setsid setpriv unshare; do
		need "$command" util-linux
	done
	need mount mount
	need musl-gcc musl-tools
	need python3 python3
	python3 -m pip --version >/dev/null 2>&1 || missing+=(python3-pip)
	python3 -c 'import ensurepip, venv' 2>/dev/null || missing+=(python3-venv)
	need node nodejs
	need npm npm
fi
if [ "${1:-build}" = kernels ]; then
	need qemu-system-x86_64 qemu-system-x86
	need dpkg-deb dpkg
	need mkfs.ext4 e2fsprogs
	need ip iproute2
fi
[ ${#missing[@]} -gt 0 ] || exit 0

if ! command -v apt-get >/dev/null; then
	echo "prerequisites: missing: ${missing[*]} (Debian's names); install them with this system's package manager" >&2
	exit 2
fi
as_root=()
if [ "$(id -u)" != 0 ]; then
	command -v sudo >/dev/null || { echo "prerequisites: missing: ${missing[*]}; run as root: apt-get install ${missing[*]}" >&2; exit 2; }
	as_root=(sudo)
fi
echo "prerequisites: installing ${missing[*]}" >&2
export DEBIAN_FRONTEND=noninteractive
"${as_root[@]}" apt-get update -qq
"${as_root[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
