/*
 * Parts of the workload that use a disk, the network and too much memory.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "workload.h"

#define BLOCK_BYTES (64 << 10)

static void need(int ok, const char *what)
{
	if (ok)
		return;
	perror(what);
	exit(5);
}

/* What the kernel has counted that this process had a device read or write. */
static unsigned long long own_io(const char *key)
{
	char line[128];
	unsigned long long value = 0;
	FILE *f = fopen("/proc/self/io", "r");

	while (fgets(line, sizeof(line), f))
		if (!strncmp(line, key, strlen(key)))
			value = strtoull(line + strlen(key), NULL, 10);
	fclose(f);
	return value;
}

/* Blocks written to a new file and read back, past the page cache. */
void disk(const char *path, int blocks)
{
	int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_DIRECT, 0600);
	unsigned long long read_before, written_before;
	void *block;

	need(fd >= 0, path);
	need(!posix_memalign(&block, 4096, BLOCK_BYTES), "memory");
	memset(block, 'x', BLOCK_BYTES);
	/* Its room on the disk first, so that the writes below are nothing but the blocks themselves. */
	need(!posix_fallocate(fd, 0, (off_t)blocks * BLOCK_BYTES), "allocating the file");
	for (int i = 0; i < blocks; i++)
		need(pwrite(fd, block, BLOCK_BYTES, (off_t)i * BLOCK_BYTES) == BLOCK_BYTES, "writing");
	need(!fsync(fd), "fsync");
	written_before = own_io("write_bytes:");
	read_before = own_io("read_bytes:");
	say("from_ns", clock_ns(CLOCK_MONOTONIC));
	for (int i = 0; i < blocks; i++)
		need(pwrite(fd, block, BLOCK_BYTES, (off_t)i * BLOCK_BYTES) == BLOCK_BYTES, "writing");
	for (int i = 0; i < blocks; i++)
		need(pread(fd, block, BLOCK_BYTES, (off_t)i * BLOCK_BYTES) == BLOCK_BYTES, "reading");
	say("to_ns", clock_ns(CLOCK_MONOTONIC));
	say("written", own_io("write_bytes:") - written_before);
	say("read", own_io("read_bytes:") - read_before);
	close(fd);
}

static unsigned int sent_again(int fd)
{
	struct tcp_info info;
	socklen_t size = sizeof(info);

	need(!getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size), "TCP_INFO");
	return info.tcpi_total_retrans;
}

/*
 * A connection to itself whose receiving end drops all packets for a while, by a socket filter: what was sent is sent again
 * by the kernel's timer, after 200, 400 ... ms, until the filter is taken off.
 */
void lossy(void)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct sock_filter drop = BPF_STMT(BPF_RET | BPF_K, 0);
	struct sock_fprog program = { .len = 1, .filter = &drop };
	socklen_t size = sizeof(to);
	int listener = socket(AF_INET, SOCK_STREAM, 0), client = socket(AF_INET, SOCK_STREAM, 0), server, zero = 0;
	char byte = 'x';

	need(!bind(listener, (struct sockaddr *)&to, size) && !listen(listener, 1), "listening");
	need(!getsockname(listener, (struct sockaddr *)&to, &size), "getsockname");
	need(!connect(client, (struct sockaddr *)&to, size), "connecting");
	server = accept(listener, NULL, NULL);
	need(server >= 0, "accepting");
	need(!setsockopt(server, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program)), "attaching the filter");
	need(write(client, &byte, 1) == 1, "sending");
	while (sent_again(client) < 3)
		nap(20000000);
	need(!setsockopt(server, SOL_SOCKET, SO_DETACH_FILTER, &zero, sizeof(zero)), "detaching the filter");
	need(read(server, &byte, 1) == 1, "receiving");
	say("sent_again", sent_again(client));
}

/* Touches so much memory. */
void hungry(size_t bytes)
{
	volatile char *memory = malloc(bytes);

	for (size_t at = 0; at < bytes; at += 4096)
		memory[at] = 1;
}
