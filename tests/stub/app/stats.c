// SPDX-License-Identifier: Apache-2.0
/*
 * The counts, in a file mapped shared: they outlive whatever ends the process. Each thread writes a slot of its own, so
 * nothing is contended; ingero-workload reads the same layout (src/stats.rs).
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "app.h"

#define SLOTS 4096
#define OPS 14

struct op_count {
	char name[48];
	uint64_t calls, total_ns, max_ns, failed;
};

struct slot {
	uint32_t pid, tid, role, ops_n;
	char comm[16];
	uint64_t started_ns, finished_ns; /* CLOCK_MONOTONIC; finished 0 = it never did */
	/* What the kernel counted for the thread between the two. */
	uint64_t cpu_ns, run_delay_ns, voluntary, involuntary;
	struct op_count ops[OPS];
};

struct stats {
	uint64_t magic, slot_bytes, slots_n, opened_ns;
	struct slot slots[SLOTS];
};

_Static_assert(sizeof(struct op_count) == 80, "src/stats.rs reads this layout");
_Static_assert(sizeof(struct slot) == 80 + OPS * 80, "src/stats.rs reads this layout");

static struct stats *stats;
static __thread struct slot *mine;
static __thread int schedstat_fd = -1; /* opened at the start: a sandbox opens nothing later */

void stats_open(const char *path)
{
	int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	if (fd < 0 || ftruncate(fd, sizeof(*stats)))
		fail("creating the file for the counts", path);
	stats = mmap(NULL, sizeof(*stats), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (stats == MAP_FAILED)
		fail("mapping the file for the counts", path);
	close(fd);
	stats->slot_bytes = sizeof(struct slot);
	stats->magic = 0x31415453; /* written last: the file is complete */
}

void stats_opened_library(void)
{
	stats->opened_ns = mono_ns();
}

static void kernel_counts(uint64_t *cpu, uint64_t *delay, uint64_t *voluntary, uint64_t *involuntary)
{
	char text[96] = "";
	unsigned long long ran = 0, waited = 0;
	struct rusage usage;

	/* schedstat(5): time on the CPU and time runnable without one, both ns. */
	if (pread(schedstat_fd, text, sizeof(text) - 1, 0) > 0)
		sscanf(text, "%llu %llu", &ran, &waited);
	getrusage(RUSAGE_THREAD, &usage);
	*cpu = ran;
	*delay = waited;
	*voluntary = (uint64_t)usage.ru_nvcsw;
	*involuntary = (uint64_t)usage.ru_nivcsw;
}

/* The calling thread takes a slot. After fork the child's thread takes one of its own. */
void stats_begin(enum role role)
{
	uint64_t n = __atomic_fetch_add(&stats->slots_n, 1, __ATOMIC_RELAXED);
	char path[64];

	if (n >= SLOTS)
		fail("counting", "more threads than the file has slots for");
	mine = &stats->slots[n];
	mine->pid = (uint32_t)getpid();
	mine->tid = (uint32_t)gettid();
	mine->role = role;
	prctl(PR_GET_NAME, mine->comm);
	snprintf(path, sizeof(path), "/proc/self/task/%u/schedstat", mine->tid);
	schedstat_fd = open(path, O_RDONLY | O_CLOEXEC);
	kernel_counts(&mine->cpu_ns, &mine->run_delay_ns, &mine->voluntary, &mine->involuntary);
	mine->started_ns = mono_ns();
}

void stats_call(const char *name, uint64_t began_ns, uint64_t ended_ns, int ret)
{
	static __thread struct op_count *last;
	struct op_count *op = last;

	if (!op || op < mine->ops || op >= mine->ops + OPS || strcmp(op->name, name)) {
		for (op = mine->ops; op < mine->ops + mine->ops_n && strcmp(op->name, name); op++)
			;
		if (op == mine->ops + OPS)
			fail("counting", "more different functions than a slot has room for");
		if (op == mine->ops + mine->ops_n) {
			strncpy(op->name, name, sizeof(op->name) - 1);
			mine->ops_n++;
		}
		last = op;
	}
	op->calls++;
	op->total_ns += ended_ns - began_ns;
	if (op->max_ns < ended_ns - began_ns)
		op->max_ns = ended_ns - began_ns;
	op->failed += ret != 0;
}

void stats_finish(void)
{
	uint64_t cpu, delay, voluntary, involuntary;

	mine->finished_ns = mono_ns();
	kernel_counts(&cpu, &delay, &voluntary, &involuntary);
	mine->cpu_ns = cpu - mine->cpu_ns;
	mine->run_delay_ns = delay - mine->run_delay_ns;
	mine->voluntary = voluntary - mine->voluntary;
	mine->involuntary = involuntary - mine->involuntary;
	close(schedstat_fd);
}
