/* The probed library: each function returns its own number, so that a record that names the wrong one is seen. */
#include <setjmp.h>
#include <sys/syscall.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline))

static volatile int sink;
jmp_buf back;

#define F(n) NOINLINE int f##n(long a, long b) { sink += (int)(a + b); return 1000 + n; }
F(0) F(1) F(2) F(3) F(4) F(5) F(6) F(7) F(8) F(9)
F(10) F(11) F(12) F(13) F(14) F(15) F(16) F(17) F(18) F(19)

/* Eight arguments: on x86-64 two of them are on the stack. */
NOINLINE int eight(long a, long b, long c, long d, long e, long f, long g, long h)
{
	sink += (int)(a + b + c + d + e + f + g + h);
	return 0;
}

/* Has an in-parameter and an out-parameter. */
NOINLINE int in_out(const long *in, long *out)
{
	*out = in[1] * 2;
	return 0;
}

NOINLINE int outer(long a) { return f0(a, 1) + f1(a, 2); }

NOINLINE int recursive(long n) { return n > 0 ? recursive(n - 1) + 1 : 0; }

NOINLINE int jumps(void)
{
	sink++;
	longjmp(back, 1);
	return 1;
}

/* Ends the thread inside the call. */
NOINLINE int ends(void)
{
	sink++;
	syscall(SYS_exit, 0);
	return 1;
}

/* Ends with a jump into f2, not a call. */
__attribute__((naked)) int tail(void)
{
#if defined(__x86_64__)
	__asm__("push %rbp\n\tpop %rbp\n\tjmp f2");
#else
	__asm__("b f2");
#endif
}

NOINLINE int jump_and_return(void)
{
	if (setjmp(back) == 0)
		jumps();
	return f3(1, 2);
}
