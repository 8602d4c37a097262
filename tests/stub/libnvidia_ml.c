// SPDX-License-Identifier: Apache-2.0
/*
 * NVIDIA's management library without a device: two GPUs of which everything asked for is known.
 *
 *     GPU 0    37 % busy    5 GiB of 80 in use
 *     GPU 1    split (MIG): no utilisation of its own, 3 MiB in use
 *
 * With INGERO_STUB_NVML=hang it answers nothing any more once it is initialised, as a driver in trouble does.
 * Signatures, structures and error numbers are those of nvml.h.
 */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { NVML_SUCCESS = 0, NVML_ERROR_INVALID_ARGUMENT = 2, NVML_ERROR_NOT_SUPPORTED = 3 };

typedef int nvmlReturn_t;
typedef struct nvmlDevice_st {
	unsigned int index;
} *nvmlDevice_t;

typedef struct {
	unsigned int gpu;
	unsigned int memory;
} nvmlUtilization_t;

typedef struct {
	unsigned int version;
	unsigned long long total;
	unsigned long long reserved;
	unsigned long long free;
	unsigned long long used;
} nvmlMemory_v2_t;

static struct nvmlDevice_st devices[] = { { 0 }, { 1 } };

nvmlReturn_t nvmlInit_v2(void)
{
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlShutdown(void)
{
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *count)
{
	const char *how = getenv("INGERO_STUB_NVML");

	while (how && !strcmp(how, "hang"))
		pause();
	*count = sizeof(devices) / sizeof(devices[0]);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device)
{
	if (index >= sizeof(devices) / sizeof(devices[0]))
		return NVML_ERROR_INVALID_ARGUMENT;
	*device = &devices[index];
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *rates)
{
	if (device->index == 1)
		return NVML_ERROR_NOT_SUPPORTED;
	rates->gpu = 37;
	rates->memory = 11;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory)
{
	memory->total = 80ull << 30;
	memory->reserved = 0;
	memory->used = device->index == 0 ? 5ull << 30 : 3ull << 20;
	memory->free = memory->total - memory->used;
	return NVML_SUCCESS;
}
