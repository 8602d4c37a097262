// SPDX-License-Identifier: Apache-2.0
/* Runs a plan: open the library, take the place asked for (CPUs, threads, children, sandbox), go through the steps. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "app.h"

void fail(const char *doing, const char *what)
{
	fprintf(stderr, "stub-app: %s: %s\n", doing, what);
	exit(2);
}

static uint64_t now_ns(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

uint64_t mono_ns(void)
{
	return now_ns(CLOCK_MONOTONIC);
}

void burn_cpu_ns(uint64_t ns)
{
	uint64_t until = ns ? now_ns(CLOCK_THREAD_CPUTIME_ID) + ns : 0;

	while (ns && now_ns(CLOCK_THREAD_CPUTIME_ID) < until)
		;
}

void sleep_ns(uint64_t ns)
{
	struct timespec left = { .tv_sec = (time_t)(ns / 1000000000u), .tv_nsec = (long)(ns % 1000000000u) };

	while (ns && nanosleep(&left, &left) == -1 && errno == EINTR)
		;
}

void set_comm(const char *name)
{
	prctl(PR_SET_NAME, name);
}

void set_cpus(uint64_t mask)
{
	cpu_set_t set;

	if (!mask)
		return;
	CPU_ZERO(&set);
	for (int cpu = 0; cpu < 64; cpu++)
		if (mask >> cpu & 1)
			CPU_SET(cpu, &set);
	if (sched_setaffinity(0, sizeof(set), &set))
		fail("choosing the CPUs", strerror(errno));
}

static void await_byte(const char *what)
{
	char byte;

	if (read(0, &byte, 1) < 0)
		fail("waiting on stdin", what);
}

static void run_loops(const struct plan *plan)
{
	uint64_t until = plan->for_ns ? mono_ns() + plan->for_ns : 0;

	for (uint64_t n = 0; until ? mono_ns() < until : n < plan->loops; n++)
		calls_steps(plan);
}

static void *thread_main(void *plan)
{
	stats_begin(ROLE_THREAD);
	run_loops(plan);
	stats_finish();
	return NULL;
}

static void run_threads(struct plan *plan)
{
	pthread_t threads[256];

	if (plan->threads > 256)
		fail("starting threads", "more than 256");
	for (uint64_t generation = 0; generation < plan->generations; generation++) {
		for (uint64_t t = 0; t < plan->threads; t++)
			if (pthread_create(&threads[t], NULL, thread_main, plan))
				fail("starting a thread", strerror(errno));
		for (uint64_t t = 0; t < plan->threads; t++)
			pthread_join(threads[t], NULL);
	}
}

static void fork_children(const struct plan *plan)
{
	for (uint64_t n = 0; n < plan->forks; n++) {
		pid_t child = fork();

		if (child < 0)
			fail("starting a child", strerror(errno));
		if (!child) {
			stats_begin(ROLE_CHILD);
			run_loops(plan);
			stats_finish();
			_exit(0);
		}
	}
}

int main(int argc, char **argv)
{
	struct plan plan;
	bool spins;

	plan_read(&plan, argc, argv);
	stats_open(plan.stats);
	prctl(PR_SET_PDEATHSIG, SIGKILL); /* never outlive the test that started this */
	if (plan.name)
		set_comm(plan.name);
	set_cpus(plan.cpus);
	sleep_ns(plan.wait_ns);
	/* A plan of host work only needs no library: it is somebody else who wants the CPU. */
	spins = true;
	for (size_t i = 0; i < plan.steps_n; i++)
		spins &= !plan.steps[i].op;
	if (!spins)
		calls_open(&plan);
	/* From here on the counts say that it is ready: the library is open, the gate is next. */
	stats_begin(spins ? ROLE_SPIN : ROLE_MAIN);
	if (plan.seccomp == 1)
		sandbox_enter();
	if (plan.gate)
		await_byte("before the calls");
	if (plan.seccomp == 2)
		sandbox_enter();

	if (plan.forks)
		fork_children(&plan);
	if (plan.workers)
		loader_run(&plan);
	else if (plan.threads > 1 || plan.generations > 1)
		run_threads(&plan);
	else
		run_loops(&plan);
	stats_finish();
	if (plan.hold)
		await_byte("after the calls");
	/* In the sandbox waiting for children is not allowed, nor are there any. */
	while (plan.forks && wait(NULL) > 0)
		;
	return 0;
}
