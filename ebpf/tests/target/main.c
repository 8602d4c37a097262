/* Waits for a line on stdin, makes exactly known calls, and says so: target SCENARIO [COUNT [THREADS]] */
#include <pthread.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

int f0(long, long), f1(long, long), f7(long, long), f19(long, long);
int eight(long, long, long, long, long, long, long, long);
int in_out(const long *, long *);
int outer(long), recursive(long), tail(void), jump_and_return(void), jumps(void), ends(void);
extern jmp_buf back;

static long count;

static void *calls(void *unused)
{
	(void)unused;
	for (long i = 0; i < count; i++)
		f7(i, 2);
	return NULL;
}

/* With much of the stack between the call and who is jumped to. */
static __attribute__((noinline)) int deep(void)
{
	volatile char room[32768];

	room[0] = 1;
	return jumps() + room[0];
}

static void *leaves(void *unused)
{
	(void)unused;
	if (setjmp(back) == 0)
		deep();
	return NULL;
}

static void *ends_inside(void *unused)
{
	(void)unused;
	ends();
	return NULL;
}

int main(int argc, char **argv)
{
	const char *scenario = argc > 1 ? argv[1] : "";
	int threads = argc > 3 ? atoi(argv[3]) : 1;
	char line[16];

	count = argc > 2 ? atol(argv[2]) : 1;
	if (!fgets(line, sizeof(line), stdin))
		return 1;
	if (!strcmp(scenario, "calls")) {
		pthread_t thread[64];
		for (int i = 0; i < threads; i++)
			pthread_create(&thread[i], NULL, calls, NULL);
		for (int i = 0; i < threads; i++)
			pthread_join(thread[i], NULL);
	} else if (!strcmp(scenario, "leaves") || !strcmp(scenario, "ends")) {
		pthread_t thread;

		pthread_create(&thread, NULL, scenario[0] == 'l' ? leaves : ends_inside, NULL);
		pthread_join(thread, NULL);
	} else if (!strcmp(scenario, "arguments")) {
		long in[2] = {3, 21}, out = 0;
		f0(-1, 5);
		f19(7, 8);
		eight(1, 2, 3, 4, 5, 6, 7, 8);
		in_out(in, &out);
		in_out(in, &out);
	} else if (!strcmp(scenario, "nested")) {
		for (long i = 0; i < count; i++)
			outer(i);
	} else if (!strcmp(scenario, "recursive")) {
		recursive(count);
	} else if (!strcmp(scenario, "odd")) {
		for (long i = 0; i < count; i++) {
			jump_and_return();
			tail();
		}
	} else if (!strcmp(scenario, "cost") || !strcmp(scenario, "cost-nested")) {
		/* Prints what a call takes, in picoseconds: for benchmarks. */
		int nested = !strcmp(scenario, "cost-nested");
		struct timespec from, to;

		clock_gettime(CLOCK_MONOTONIC, &from);
		for (long i = 0; i < count; i++)
			nested ? outer(i) : f7(i, 2);
		clock_gettime(CLOCK_MONOTONIC, &to);
		printf("%ld\n", ((to.tv_sec - from.tv_sec) * 1000000000L + to.tv_nsec - from.tv_nsec) * 1000 / count);
	} else if (!strcmp(scenario, "empty")) {
		/* No call at all. */
	} else {
		return 2;
	}
	puts("done");
	fflush(stdout);
	/* Stay, so that open calls and mappings can be looked at, until stdin is closed. */
	while (fgets(line, sizeof(line), stdin))
		;
	return 0;
}
