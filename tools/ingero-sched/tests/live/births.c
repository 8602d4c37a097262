/*
 * A part of the workload: many short lives.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "workload.h"

#define THREADS 7

static void *short_life(void *arg)
{
	nap(200000);
	return arg;
}

/* Ends all other threads, its process's first one among them, and takes that one's number. */
static void *executing(void *self)
{
	execl(self, self, "exit", "0", NULL);
	_exit(3);
}

static void *waiting(void *arg)
{
	for (;;)
		pause();
	return arg;
}

/*
 * So many children, each with threads that end before it. Every third executes a program from a thread of its own then, and
 * every third after it ends with threads that wait.
 */
void births(const char *self, int children)
{
	for (int i = 0; i < children; i++) {
		pthread_t threads[THREADS];
		pid_t child = fork();
		int status;

		if (child) {
			waitpid(child, &status, 0);
			if (status)
				exit(3);
			continue;
		}
		for (int t = 0; t < THREADS; t++)
			pthread_create(&threads[t], NULL, short_life, NULL);
		for (int t = 0; t < THREADS; t++)
			pthread_join(threads[t], NULL);
		if (i % 3 == 0) {
			pthread_create(&threads[0], NULL, executing, (void *)self);
			for (;;)
				pause();
		}
		if (i % 3 == 1) {
			/* They all end at once, with the process. */
			for (int t = 0; t < THREADS; t++)
				pthread_create(&threads[t], NULL, waiting, NULL);
		}
		_exit(0);
	}
	say("threads", (uint64_t)(children + (children + 1) / 3) * THREADS + (children + 2) / 3);
	say("programs", (children + 2) / 3);
}
