/*
 * Parts of the workload that call cuInit of a library which they open themselves.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "workload.h"

typedef int init_function(unsigned int flags);

static init_function *open_library(const char *path)
{
	void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	void *function = library ? dlsym(library, "cuInit") : NULL;

	if (!function) {
		fprintf(stderr, "%s\n", dlerror());
		exit(4);
	}
	return (init_function *)function;
}

static void *sleeper(void *arg)
{
	say("sleeper", syscall(SYS_gettid));
	for (;;)
		nap(1000000);
	return arg;
}

/* A child and so many threads first, then cuInit, then a sleep, which is what comes first after it. */
void cuda(const char *path, int threads)
{
	init_function *init = open_library(path);
	pid_t child = fork();

	if (!child) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;)
			nap(1000000);
	}
	say("child", child);
	for (int i = 0; i < threads; i++) {
		pthread_t t;

		pthread_create(&t, NULL, sleeper, NULL);
	}
	puts("open 1");
	gate();
	say("before_ns", clock_ns(CLOCK_MONOTONIC));
	if (init(0))
		exit(4);
	say("after_ns", clock_ns(CLOCK_MONOTONIC));
	nap(1000000);
	say("to_ns", clock_ns(CLOCK_MONOTONIC));
	gate();
	kill(child, 9);
	waitpid(child, NULL, 0);
}

/* In a sandbox that allows read, write and exit, and kills for everything else. */
void cuda_sandboxed(const char *path, int calls)
{
	init_function *init = open_library(path);
	static const char done[] = "survived 1\n";

	puts("open 1");
	gate();
	if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT))
		exit(4);
	for (int i = 0; i < calls; i++)
		init(0);
	if (write(1, done, sizeof(done) - 1) < 0)
		syscall(SYS_exit, 3);
	syscall(SYS_exit, 0);
}
