// SPDX-License-Identifier: Apache-2.0
/*
 * A training loop fed by forked workers, as PyTorch's DataLoader does it: each worker has a pipe with the numbers of the
 * items that it is to make, all answer in one pipe, the main process takes the items in order and keeps `prefetch` of
 * them under way for each worker. With `feeder` a worker hands over through a thread that is created with its first item
 * (Python's multiprocessing queues); with `pin` a thread of the main process takes them in (pin_memory).
 *
 * Example: 4 workers on one CPU, 10 ms of CPU for an item: an item comes every 10 ms, and its worker has had the CPU for a
 * quarter of the time that it took.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "app.h"

/* A queue between threads of one process, as long as all items that can be under way. */
#define QUEUE 1024
struct queue {
	pthread_mutex_t lock;
	pthread_cond_t filled;
	uint64_t items[QUEUE];
	size_t head, tail;
};

#define QUEUE_INIT { .lock = PTHREAD_MUTEX_INITIALIZER, .filled = PTHREAD_COND_INITIALIZER }
#define NO_MORE UINT64_MAX

static void queue_put(struct queue *q, uint64_t item)
{
	pthread_mutex_lock(&q->lock);
	if (q->tail - q->head == QUEUE)
		fail("queueing an item", "the queue is full");
	q->items[q->tail++ % QUEUE] = item;
	pthread_cond_signal(&q->filled);
	pthread_mutex_unlock(&q->lock);
}

static uint64_t queue_take(struct queue *q)
{
	uint64_t item;

	pthread_mutex_lock(&q->lock);
	while (q->head == q->tail)
		pthread_cond_wait(&q->filled, &q->lock);
	item = q->items[q->head++ % QUEUE];
	pthread_mutex_unlock(&q->lock);
	return item;
}

/* One number through a pipe; writes of this size are atomic (pipe(7), PIPE_BUF). */
static bool pipe_take(int fd, uint64_t *item)
{
	ssize_t n;

	do
		n = read(fd, item, sizeof(*item));
	while (n < 0 && errno == EINTR);
	return n == sizeof(*item);
}

static bool pipe_put(int fd, uint64_t item)
{
	ssize_t n;

	do
		n = write(fd, &item, sizeof(item));
	while (n < 0 && errno == EINTR);
	return n == sizeof(item);
}

static struct queue done = QUEUE_INIT; /* of the worker: made, not handed over */
static int answer_fd;

static void *feeder_thread(void *unused)
{
	uint64_t item;

	(void)unused;
	set_comm("QueueFeederThre");
	stats_begin(ROLE_FEEDER);
	while ((item = queue_take(&done)) != NO_MORE && pipe_put(answer_fd, item))
		;
	stats_finish();
	return NULL;
}

static void worker_run(const struct plan *plan, uint64_t number, int ask, int answer)
{
	char name[16];
	pthread_t feeder;
	bool feeding = false;
	uint64_t item;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	snprintf(name, sizeof(name), "data_worker_%u", (unsigned)number % 100);
	set_comm(name);
	set_cpus(plan->worker_cpus);
	stats_begin(ROLE_WORKER);
	answer_fd = answer;
	while (pipe_take(ask, &item)) {
		burn_cpu_ns(plan->item_cpu_ns);
		sleep_ns(plan->item_sleep_ns);
		if (!plan->feeder) {
			if (!pipe_put(answer, item))
				break;
			continue;
		}
		if (!feeding && pthread_create(&feeder, NULL, feeder_thread, NULL))
			fail("starting a thread", "feeder");
		feeding = true;
		queue_put(&done, item);
	}
	if (feeding) {
		queue_put(&done, NO_MORE);
		pthread_join(feeder, NULL);
	}
	stats_finish();
	_exit(0);
}

static struct queue pinned = QUEUE_INIT; /* of the main process: taken in, not used */
static int answers_fd;

static void *pin_thread(void *unused)
{
	uint64_t item;

	(void)unused;
	set_comm("pin_memory");
	stats_begin(ROLE_PIN);
	while (pipe_take(answers_fd, &item))
		queue_put(&pinned, item);
	queue_put(&pinned, NO_MORE);
	stats_finish();
	return NULL;
}

static bool take(const struct plan *plan, uint64_t *item)
{
	if (!plan->pin)
		return pipe_take(answers_fd, item);
	*item = queue_take(&pinned);
	return *item != NO_MORE;
}

void loader_run(const struct plan *plan)
{
	int answers[2], ask[64];
	pthread_t pin;
	uint64_t asked = 0, under_way = plan->workers * plan->prefetch;
	/* By time, no machine gets through so many items. */
	uint64_t loops = plan->for_ns ? 10000000 : plan->loops;
	uint64_t until = plan->for_ns ? mono_ns() + plan->for_ns : UINT64_MAX;
	bool *made = calloc(loops, sizeof(*made));

	if (!made || plan->workers > 64 || under_way > QUEUE / 2)
		fail("starting the loader", "too many items or workers");
	if (pipe(answers))
		fail("starting the loader", "pipe");
	for (uint64_t w = 0; w < plan->workers; w++) {
		int ends[2];
		pid_t child;

		if (pipe(ends) || (child = fork()) < 0)
			fail("starting a worker", strerror(errno));
		if (!child) {
			close(ends[1]);
			close(answers[0]);
			for (uint64_t earlier = 0; earlier < w; earlier++)
				close(ask[earlier]); /* else no worker ever sees the end of its pipe */
			worker_run(plan, w, ends[0], answers[1]);
		}
		close(ends[0]);
		ask[w] = ends[1];
	}
	close(answers[1]);
	answers_fd = answers[0];
	if (plan->pin && pthread_create(&pin, NULL, pin_thread, NULL))
		fail("starting a thread", "pin");

	for (; asked < loops && asked < under_way; asked++)
		pipe_put(ask[asked % plan->workers], asked);
	for (uint64_t next = 0; next < loops && mono_ns() < until; next++) {
		while (!made[next]) {
			uint64_t item;

			if (!take(plan, &item))
				fail("taking an item", "the workers are gone");
			made[item] = true;
		}
		if (asked < loops) {
			pipe_put(ask[asked % plan->workers], asked);
			asked++;
		}
		calls_steps(plan);
	}
	for (uint64_t w = 0; w < plan->workers; w++)
		close(ask[w]);
	while (wait(NULL) > 0)
		;
	if (plan->pin)
		pthread_join(pin, NULL);
	free(made);
}
