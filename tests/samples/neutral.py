#!/usr/bin/env python3
"""Makes a recording fit to be shared: takes names of machine and folders out of it, and changes nothing else.

    ingero-join cuda.ndjson sched.ndjson | neutral.py | zstd -19 > recording.ndjson.zst

The host becomes "gpu-host", the boot a nil id, the kernel its version number; of paths only the file's name stays, below
/opt. Times, processes, threads and their names stay as they were: look through the names before you share them:

    zstdcat recording.ndjson.zst | jq -r '.. | .comm? // empty' | sort | uniq -c
"""
import json
import re
import sys


def neutral(key, value):
    """The value of one key as it may be shared."""
    if isinstance(value, dict):
        return {k: neutral(k, v) for k, v in value.items()}
    if isinstance(value, list):
        return [neutral(key, v) for v in value]
    if key == "host":
        return "gpu-host" if isinstance(value, str) else value
    if key == "boot_id":
        return "00000000-0000-0000-0000-000000000000"
    if key == "kernel":
        return re.match(r"\d+\.\d+(\.\d+)?|", value).group()
    if isinstance(value, str) and value.startswith("/"):
        return "/opt/" + value.rpartition("/")[2]
    return value


def main():
    for line in sys.stdin:
        record = json.loads(line)
        print(json.dumps(neutral("", record), ensure_ascii=False, separators=(",", ":")))


if __name__ == "__main__":
    main()
