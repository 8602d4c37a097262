#!/bin/bash
# The first process of a guest: runs each test of /tests in a process of its own and tells of it on the second serial line.
#
#   @kernel RELEASE
#   @begin PROGRAM TEST         then what the test says
#   @end STATUS SECONDS         137: it took longer than the limit and was killed
#   @done
#
# Lines of /tests: PROGRAM, a tab, its path, a tab, the test's name.
export PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin HOME=/ TERM=dumb LANG=C.UTF-8
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
ln -s /proc/self/fd /dev/fd
mkdir -p /dev/pts /dev/shm
mount -t devpts devpts /dev/pts
mount -t tmpfs -o mode=1777 tmpfs /dev/shm
# As systemd does on a distribution that runs these kernels.
mount -t tracefs tracefs /sys/kernel/tracing
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mount -t ext4 /dev/nvme0n1 /disk
ip link set lo up
exec >/dev/ttyS1 2>&1 </dev/null
stty -F /dev/ttyS1 raw
. /environment
cd /

echo "@kernel $(uname -r)"
if [ -e /script ]; then
	bash /script
else
	while IFS=$'\t' read -r name path test <&3; do
		echo "@begin $name $test"
		began=$SECONDS
		timeout --signal=KILL "$limit" "$path" --exact "$test" --nocapture --test-threads=1 3<&-
		echo "@end $? $((SECONDS - began))"
		# What a failed test leaves behind must not disturb the next: everything but this process.
		kill -KILL -1
	done 3</tests
fi
echo "@done"
# Sets the line's modes once what was written has left.
stty -F /dev/ttyS1 sane
# Ends the guest: it is started with -no-reboot.
echo b >/proc/sysrq-trigger
