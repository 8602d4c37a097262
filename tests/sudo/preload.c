/* Wherever it is loaded, it notes as whom: one line "preload UID GID" in the file that PRELOAD_LOG names. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

__attribute__((constructor)) static void note(void)
{
	const char *path = getenv("PRELOAD_LOG");
	FILE *log = path ? fopen(path, "a") : NULL;

	if (!log)
		return;
	fprintf(log, "preload %d %d\n", (int)geteuid(), (int)getegid());
	fclose(log);
}
