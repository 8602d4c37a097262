// SPDX-License-Identifier: Apache-2.0
/*
 * A strict sandbox: every system call that the steps do not need kills the process. Where a return probe enters the
 * kernel by a system call of its own (x86-64 from 6.11 on) and the filter sees it, the process dies at its first traced
 * call. Facts: seccomp(2), linux/seccomp.h.
 */
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include "app.h"

#if defined(__x86_64__)
#define THIS_ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define THIS_ARCH AUDIT_ARCH_AARCH64
#else
#error "no audit architecture known for this machine"
#endif

#define ALLOW(call)                                         \
	BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1),    \
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

void sandbox_enter(void)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, THIS_ARCH, 1, 0),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		ALLOW(__NR_read),
		ALLOW(__NR_write),
		ALLOW(__NR_pread64),
		ALLOW(__NR_close),
		ALLOW(__NR_clock_gettime),
		ALLOW(__NR_clock_nanosleep),
		ALLOW(__NR_nanosleep),
		ALLOW(__NR_getrusage),
		ALLOW(__NR_futex),
		ALLOW(__NR_restart_syscall),
		ALLOW(__NR_rt_sigreturn),
		ALLOW(__NR_exit),
		ALLOW(__NR_exit_group),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
	};
	struct sock_fprog program = { .len = sizeof(filter) / sizeof(filter[0]), .filter = filter };

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
		fail("installing the seccomp filter", "prctl");
}
