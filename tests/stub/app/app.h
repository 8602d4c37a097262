// SPDX-License-Identifier: Apache-2.0
/*
 * stub-app makes CUDA calls exactly as its plan says, and counts them in shared memory. It is C because it does what a
 * training program's runtime does: fork without exec, threads after fork, raw calls through dlsym. ingero-workload
 * writes its plan and reads its counts.
 */
#ifndef STUB_APP_H
#define STUB_APP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "behaviour.h"

#define MAX_STEPS 16

struct op; /* one API function that can be called: calls.c */

/* One step of the plan: `count` calls of one function, all alike. Without `op` it is the host's own work. */
struct step {
	const struct op *op;
	void *function;
	char name[48];
	uint64_t count;
	struct stub_behaviour behaviour;
	uint64_t bytes;
	int kind;
	uint64_t stream;
};

struct plan {
	const char *library;  /* path for dlopen, or a soname */
	const char *stats;    /* file for the counts */
	const char *name;     /* comm of the process */
	uint64_t wait_ns;     /* asleep before the library is opened */
	bool gate;            /* a byte from stdin is awaited before the first call */
	bool hold;            /* and one after the last, before the process ends */
	uint64_t seccomp;     /* a strict filter is installed: 1 before the gate, 2 after it */
	uint64_t cpus;        /* mask for this process, 0 = as inherited */
	uint64_t threads;     /* at a time; 1 = the main thread itself */
	uint64_t generations; /* of threads, one after the other */
	uint64_t forks;       /* children that run the plan too */
	uint64_t loops;       /* times through the steps (loader: items) */
	uint64_t for_ns;      /* or for so long, where not 0 */
	struct step steps[MAX_STEPS];
	size_t steps_n;

	uint64_t workers;     /* loader: processes forked before the first call */
	uint64_t worker_cpus; /* mask for them, 0 = as inherited */
	uint64_t item_cpu_ns; /* CPU time of a worker for one item */
	uint64_t item_sleep_ns;
	uint64_t prefetch; /* items under way for each worker */
	bool feeder;       /* a worker hands over through a thread created with the first item */
	bool pin;          /* a thread of the main process takes the items in */
};

/* main.c */
void fail(const char *doing, const char *what) __attribute__((noreturn));
uint64_t mono_ns(void);
void burn_cpu_ns(uint64_t ns);
void sleep_ns(uint64_t ns);
void set_comm(const char *name);
void set_cpus(uint64_t mask);

/* plan.c */
void plan_read(struct plan *plan, int argc, char **argv);

/* calls.c */
const struct op *op_find(const char *name);
void calls_open(struct plan *plan);
void calls_steps(const struct plan *plan);

/* stats.c */
enum role { ROLE_MAIN = 1, ROLE_THREAD, ROLE_WORKER, ROLE_FEEDER, ROLE_PIN, ROLE_CHILD, ROLE_SPIN };
void stats_open(const char *path);
void stats_opened_library(void);
void stats_begin(enum role role);
void stats_call(const char *name, uint64_t began_ns, uint64_t ended_ns, int ret);
void stats_finish(void);

/* loader.c, sandbox.c */
void loader_run(const struct plan *plan);
void sandbox_enter(void);

#endif
