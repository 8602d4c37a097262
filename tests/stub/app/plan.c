// SPDX-License-Identifier: Apache-2.0
/*
 * Reads the plan: arguments of the form key=value, all numbers plain, written by ingero-workload, which has checked what
 * its user asked for. A step is NAME:count:spin:sleep:ret:flat:bytes:kind:stream; the name "host" is no call.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app.h"

static uint64_t number(const char *key, const char *text)
{
	char *end;
	uint64_t value = strtoull(text, &end, 10);

	if (!*text || *end)
		fail("reading the plan: not a number", key);
	return value;
}

static void read_step(struct plan *plan, const char *text)
{
	struct step *step = &plan->steps[plan->steps_n];

	if (plan->steps_n == MAX_STEPS)
		fail("reading the plan", "too many steps");
	if (sscanf(text, "%47[^:]:%" SCNu64 ":%" SCNu64 ":%" SCNu64 ":%d:%d:%" SCNu64 ":%d:%" SCNu64, step->name, &step->count,
		   &step->behaviour.spin_ns, &step->behaviour.sleep_ns, &step->behaviour.ret, &step->behaviour.flat,
		   &step->bytes, &step->kind, &step->stream) != 9)
		fail("reading the plan: not a step", text);
	step->op = op_find(step->name);
	if (!step->op && strcmp(step->name, "host"))
		fail("reading the plan: no such function in the table of calls.c", step->name);
	plan->steps_n++;
}

void plan_read(struct plan *plan, int argc, char **argv)
{
	const struct {
		const char *key;
		uint64_t *value;
	} numbers[] = {
		{ "wait", &plan->wait_ns },
		{ "cpus", &plan->cpus },
		{ "threads", &plan->threads },
		{ "generations", &plan->generations },
		{ "forks", &plan->forks },
		{ "loops", &plan->loops },
		{ "for", &plan->for_ns },
		{ "seccomp", &plan->seccomp },
		{ "workers", &plan->workers },
		{ "worker_cpus", &plan->worker_cpus },
		{ "item_cpu", &plan->item_cpu_ns },
		{ "item_sleep", &plan->item_sleep_ns },
		{ "prefetch", &plan->prefetch },
	};
	const struct {
		const char *key;
		const char **value;
	} texts[] = { { "library", &plan->library }, { "stats", &plan->stats }, { "name", &plan->name } };
	const struct {
		const char *key;
		bool *value;
	} flags[] = {
		{ "gate", &plan->gate }, { "hold", &plan->hold },
		{ "feeder", &plan->feeder }, { "pin", &plan->pin },
	};

	*plan = (struct plan){ .threads = 1, .generations = 1, .loops = 1, .prefetch = 2 };
	for (int i = 1; i < argc; i++) {
		char *value = strchr(argv[i], '=');
		bool known = false;

		if (!value)
			fail("reading the plan: not key=value", argv[i]);
		*value++ = '\0';
		if (!strcmp(argv[i], "step")) {
			read_step(plan, value);
			continue;
		}
		for (size_t k = 0; k < sizeof(numbers) / sizeof(numbers[0]); k++)
			if (!strcmp(argv[i], numbers[k].key))
				*numbers[k].value = number(argv[i], value), known = true;
		for (size_t k = 0; k < sizeof(texts) / sizeof(texts[0]); k++)
			if (!strcmp(argv[i], texts[k].key))
				*texts[k].value = value, known = true;
		for (size_t k = 0; k < sizeof(flags) / sizeof(flags[0]); k++)
			if (!strcmp(argv[i], flags[k].key))
				*flags[k].value = number(argv[i], value) != 0, known = true;
		if (!known)
			fail("reading the plan: unknown key", argv[i]);
	}
	if (!plan->stats)
		fail("reading the plan", "no file for the counts");
}
