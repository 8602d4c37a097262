#!/usr/bin/env bash
# The live pipeline for some seconds, ending with its report.
#
#   BIN=target/release DURATION=10s run.sh [PID]
#
# On the process PID; without one, on every CUDA process where there is an NVIDIA GPU; where there is none, on a training loop
# that forked workers starve, which calls the stub library of tests/stub; after it, what a recording from a GPU machine tells.
set -euo pipefail

PATH=$(cd "$BIN" && pwd):$PATH
as_root=()
if [ "$(id -u)" != 0 ]; then
	command -v sudo >/dev/null || { echo "run: tracing needs root: run \`make run\` as root" >&2; exit 2; }
	as_root=(sudo env "PATH=$PATH")
fi

which=()
if [ $# -gt 0 ]; then
	which=(--pid "$1")
	echo "run: tracing process $1 for $DURATION" >&2
elif [ -e /dev/nvidiactl ]; then
	echo "run: tracing every CUDA process for $DURATION; PID=... chooses one" >&2
else
	echo "run: no NVIDIA GPU here, and no PID=...: tracing a workload on the stub CUDA library for $DURATION" >&2
	echo "run: it trains on items from 4 workers, each of which needs 15 ms of the one CPU that they share" >&2
	coproc WORKLOAD {
		exec ingero-workload loader --name training --workers 4 --worker-cpus 0 --item-cpu 15ms --feeder --pin \
			--loops 1000000 -s 'cudaMemcpyAsync*2,bytes=16m' -s 'cudaLaunchKernel*20' -s 'cudaStreamSynchronize,sleep=3ms'
	}
	workload=$WORKLOAD_PID
	# Its program ends with it.
	trap 'kill "$workload" 2>/dev/null || true' EXIT
	read -r started <&"${WORKLOAD[0]}"
	pid=${started#*\"pid\":}
	which=(--pid "${pid%%[!0-9]*}")
fi

"${as_root[@]}" ingero-cuda "${which[@]}" --duration "$DURATION" |
	ingero-join <("${as_root[@]}" ingero-sched "${which[@]}" --duration "$DURATION") |
	ingero-chain --format text

if [ ! -e /dev/nvidiactl ] && [ $# -eq 0 ]; then
	sample=tests/samples/dataloader-starved.ndjson.zst
	echo "run: and a DataLoader with 4 workers on an H200, from $sample:" >&2
	ingero-chain --format text "$(dirname "$0")/../../$sample"
fi
