// Launches an empty kernel as fast as one thread can, and prints what one launch takes on the host.
//
//     nvcc -O2 -cudart shared -o launch-shared launch.cu
//     nvcc -O2 -cudart static -o launch-static launch.cu
//     ./launch-shared [LAUNCHES [ROUNDS]]       (100000, 9)
//
// {"launches":100000,"rounds":9,"ns_per_launch":[...]}: one figure a round, each with a synchronise at its end.
#include <chrono>
#include <cstdio>
#include <cstdlib>

__global__ void nothing() {}

static void check(cudaError_t status)
{
	if (status != cudaSuccess) {
		fprintf(stderr, "launch: %s\n", cudaGetErrorString(status));
		exit(2);
	}
}

int main(int argc, char **argv)
{
	const long launches = argc > 1 ? atol(argv[1]) : 100000;
	const long rounds = argc > 2 ? atol(argv[2]) : 9;

	nothing<<<1, 1>>>();
	check(cudaDeviceSynchronize());
	printf("{\"launches\":%ld,\"rounds\":%ld,\"ns_per_launch\":[", launches, rounds);
	for (long round = 0; round < rounds; round++) {
		const auto began = std::chrono::steady_clock::now();
		for (long i = 0; i < launches; i++)
			nothing<<<1, 1>>>();
		check(cudaDeviceSynchronize());
		const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - began;
		printf("%s%.1f", round ? "," : "", took.count() / launches);
	}
	printf("]}\n");
	return 0;
}
