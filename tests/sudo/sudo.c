/*
 * Stands for sudo: run as root with the environment of whoever called it, it runs a command in the environment that sudo's
 * env_reset and secure_path make. Linked statically, because sudo's dynamic linker does not heed LD_PRELOAD either.
 *
 *     sudo UID GID COMMAND...
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	int status;

	if (argc < 4)
		return 1;
	/* Setuid programs have the real user id of whoever called them. */
	if (setresuid(atoi(argv[1]), 0, 0))
		return 1;
	pid_t child = fork();
	if (child == 0) {
		if (setresuid(0, 0, 0))
			_exit(1);
		clearenv();
		setenv("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", 1);
		setenv("HOME", "/root", 1);
		setenv("SUDO_UID", argv[1], 1);
		setenv("SUDO_GID", argv[2], 1);
		setenv("SUDO_USER", "user", 1);
		execvp(argv[3], argv + 3);
		perror(argv[3]);
		_exit(127);
	}
	if (waitpid(child, &status, 0) != child)
		return 1;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
