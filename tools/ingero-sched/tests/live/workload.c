/*
 * A process that does one exactly known thing, for the live tests.
 *
 * It waits for a byte on stdin first, so that it can be watched before it begins, and for another one before it ends. What
 * it has counted of itself it prints as "key value" lines; instants are CLOCK_MONOTONIC ns.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "workload.h"

uint64_t clock_ns(clockid_t id)
{
	struct timespec t;

	clock_gettime(id, &t);
	return t.tv_sec * 1000000000ull + t.tv_nsec;
}

void gate(void)
{
	char byte;

	fflush(stdout);
	if (read(0, &byte, 1) < 0)
		exit(9);
}

void say(const char *key, uint64_t value)
{
	printf("%s %llu\n", key, (unsigned long long)value);
}

static void spin(uint64_t ns)
{
	uint64_t end = clock_ns(CLOCK_THREAD_CPUTIME_ID) + ns;

	while (clock_ns(CLOCK_THREAD_CPUTIME_ID) < end)
		;
}

void nap(uint64_t ns)
{
	struct timespec t = { 0, ns };

	nanosleep(&t, NULL);
}

static void pin(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	if (sched_setaffinity(0, sizeof(set), &set))
		exit(8);
}

static int first_cpu(void)
{
	cpu_set_t set;
	int cpu = 0;

	sched_getaffinity(0, sizeof(set), &set);
	while (!CPU_ISSET(cpu, &set))
		cpu++;
	return cpu;
}

/* What the kernel has counted of this thread. */
struct counts {
	unsigned long long voluntary, preempted, run_delay_ns, cpu_ns, at_ns;
};

static void read_counts(struct counts *c)
{
	char text[4096];
	unsigned long long cpu, slices;
	FILE *f = fopen("/proc/thread-self/status", "r");
	size_t n = fread(text, 1, sizeof(text) - 1, f);

	fclose(f);
	text[n] = 0;
	sscanf(strstr(text, "\nvoluntary_ctxt_switches:") + 25, "%llu", &c->voluntary);
	sscanf(strstr(text, "nonvoluntary_ctxt_switches:") + 27, "%llu", &c->preempted);
	f = fopen("/proc/thread-self/schedstat", "r");
	if (fscanf(f, "%llu %llu %llu", &cpu, &c->run_delay_ns, &slices) != 3)
		exit(7);
	fclose(f);
	c->cpu_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID);
}

/* Counts at an instant at which the thread was on the CPU: between two readings without a switch from one to the other. */
static struct counts stable_counts(void)
{
	struct counts before, after;

	do {
		read_counts(&before);
		before.at_ns = clock_ns(CLOCK_MONOTONIC);
		read_counts(&after);
	} while (before.voluntary != after.voluntary || before.preempted != after.preempted);
	return before;
}

static void say_counts(struct counts a, struct counts b)
{
	say("from_ns", a.at_ns);
	say("to_ns", b.at_ns);
	say("voluntary", b.voluntary - a.voluntary);
	say("preempted", b.preempted - a.preempted);
	say("run_delay_ns", b.run_delay_ns - a.run_delay_ns);
	say("cpu_ns", b.cpu_ns - a.cpu_ns);
}

/* Sleeps, yields and spins beside a competitor on the same CPU. */
static void counted(int rounds)
{
	struct counts before;
	pid_t rival;

	pin(first_cpu());
	rival = fork();
	if (!rival)
		for (;;)
			;
	before = stable_counts();
	for (int i = 0; i < rounds; i++) {
		nap(200000);
		spin(3000000);
		sched_yield();
	}
	say_counts(before, stable_counts());
	kill(rival, SIGKILL);
	waitpid(rival, NULL, 0);
	say("rival", rival);
}

/* One byte there and back; parent and child are each other's wakers. */
static void ping_pong(int rounds)
{
	int there[2], back[2];
	uint64_t from_ns;
	char byte = 0;
	pid_t child;

	if (pipe(there) || pipe(back))
		exit(6);
	child = fork();
	if (!child) {
		/* Else it would wait for itself to close it. */
		close(there[1]);
		prctl(PR_SET_NAME, "pong");
		while (read(there[0], &byte, 1) == 1)
			if (write(back[1], &byte, 1) != 1)
				_exit(1);
		_exit(0);
	}
	close(there[0]);
	prctl(PR_SET_NAME, "ping");
	from_ns = clock_ns(CLOCK_MONOTONIC);
	for (int i = 0; i < rounds; i++)
		if (write(there[1], &byte, 1) != 1 || read(back[0], &byte, 1) != 1)
			exit(6);
	say("from_ns", from_ns);
	say("to_ns", clock_ns(CLOCK_MONOTONIC));
	say("child", child);
	close(there[1]);
	waitpid(child, NULL, 0);
}

/* Timed sleeps while a thread that has nothing to do with them runs on the same CPU. */
static void timer(int rounds)
{
	struct counts before;
	pid_t bystander;

	pin(first_cpu());
	bystander = fork();
	if (!bystander)
		for (;;)
			;
	before = stable_counts();
	for (int i = 0; i < rounds; i++)
		nap(1000000);
	say_counts(before, stable_counts());
	say("bystander", bystander);
	kill(bystander, SIGKILL);
	waitpid(bystander, NULL, 0);
}

/* Children that fork again, run something else, and die in different ways. */
static void family(char *self)
{
	pid_t child = fork();
	int status;

	if (!child) {
		pid_t grandchild = fork();

		if (!grandchild) {
			spin(2000000);
			_exit(5);
		}
		waitpid(grandchild, NULL, 0);
		execl(self, self, "exit", "3", NULL);
		_exit(1);
	}
	waitpid(child, &status, 0);
	say("child", child);
	child = fork();
	if (!child) {
		raise(SIGKILL);
		_exit(1);
	}
	waitpid(child, &status, 0);
	say("killed", child);
}

static pthread_barrier_t both;

static void *short_thread(void *arg)
{
	say("thread", syscall(SYS_gettid));
	return arg;
}

static void *renamed_thread(void *arg)
{
	say("renamed", syscall(SYS_gettid));
	prctl(PR_SET_NAME, "before");
	/* Longer than a slow machine takes to leave the CPU: it must be asleep. */
	nap(100000000);
	prctl(PR_SET_NAME, "after");
	nap(100000000);
	return arg;
}

static void *last_thread(void *arg)
{
	/* The main thread has gone by then. */
	nap(50000000);
	fflush(stdout);
	gate();
	exit(7);
	return arg;
}

/* Threads come and go, at last the main one, and the process lives on. */
static void threads(void)
{
	pthread_t t;

	pthread_create(&t, NULL, short_thread, NULL);
	pthread_join(t, NULL);
	pthread_create(&t, NULL, renamed_thread, NULL);
	pthread_join(t, NULL);
	pthread_create(&t, NULL, last_thread, NULL);
	fflush(stdout);
	pthread_exit(NULL);
}

static void *stuck_thread(void *arg)
{
	say("sleeper", syscall(SYS_gettid));
	pthread_barrier_wait(&both);
	pause();
	return arg;
}

/* Off the CPU since before it was watched: one thread asleep, and one that waits, uninterruptibly, for a vfork child. */
static void *vfork_thread(void *arg)
{
	say("waiter", syscall(SYS_gettid));
	pthread_barrier_wait(&both);
	if (!vfork()) {
		for (;;)
			syscall(SYS_ppoll, NULL, 0, NULL, NULL, 0);
	}
	return arg;
}

static void stuck(void)
{
	pthread_t t;

	pthread_barrier_init(&both, NULL, 3);
	pthread_create(&t, NULL, stuck_thread, NULL);
	pthread_create(&t, NULL, vfork_thread, NULL);
	pthread_barrier_wait(&both);
	/* Both are in their last system call soon; there is no way to be told. */
	nap(200000000);
	puts("stuck 1");
	gate();
	kill(0, SIGKILL);
}

/* Touches fresh memory: one page allocation each, at least. */
static void pages(int count)
{
	volatile char *memory = malloc((size_t)count * 4096 + 4096);
	uint64_t from_ns = clock_ns(CLOCK_MONOTONIC);

	for (int i = 0; i < count; i++)
		memory[(size_t)i * 4096] = 1;
	say("from_ns", from_ns);
	say("to_ns", clock_ns(CLOCK_MONOTONIC));
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";
	int n = argc > 2 ? atoi(argv[2]) : 0;

	if (!strcmp(what, "exit"))
		return n;
	say("pid", getpid());
	if (!strcmp(what, "stuck")) {
		setpgid(0, 0);
		stuck();
	}
	gate();
	if (!strcmp(what, "counted"))
		counted(n);
	else if (!strcmp(what, "ping-pong"))
		ping_pong(n);
	else if (!strcmp(what, "timer"))
		timer(n);
	else if (!strcmp(what, "family"))
		family(argv[0]);
	else if (!strcmp(what, "births"))
		births(argv[0], n);
	else if (!strcmp(what, "threads"))
		threads();
	else if (!strcmp(what, "pages"))
		pages(n);
	else if (!strcmp(what, "disk"))
		disk(argv[3], n);
	else if (!strcmp(what, "lossy"))
		lossy();
	else if (!strcmp(what, "hungry"))
		hungry((size_t)n << 20);
	else if (!strcmp(what, "cuda"))
		cuda(argv[3], n);
	else if (!strcmp(what, "cuda-sandboxed"))
		cuda_sandboxed(argv[3], n);
	else if (!strcmp(what, "spin"))
		spin((uint64_t)n * 1000000);
	else
		return 64;
	puts("done 1");
	gate();
	return 0;
}
