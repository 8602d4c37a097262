/* What the parts of the workload share: see workload.c. */
#ifndef WORKLOAD_H
#define WORKLOAD_H

#include <stddef.h>
#include <stdint.h>
#include <time.h>

uint64_t clock_ns(clockid_t id);
/* Waits for a byte on stdin, or its end. */
void gate(void);
/* Prints "key value". */
void say(const char *key, uint64_t value);
void nap(uint64_t ns);

/* resources.c */
void disk(const char *path, int blocks);
void lossy(void);
void hungry(size_t bytes);
/* births.c */
void births(const char *self, int children);
/* cuda.c */
void cuda(const char *library, int threads);
void cuda_sandboxed(const char *library, int calls);

#endif
