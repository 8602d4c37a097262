/*
 * A libcuda whose cuInit begins with the 5-byte nop that Linux 6.18 turns a probe on into a call, and the call into a system
 * call of its own (x86-64).
 */
int cuLaunchKernel(void)
{
	return 0;
}

#if defined(__x86_64__)
__asm__(".globl cuInit\n.type cuInit, @function\n.balign 16\n"
	"cuInit:\n\t.byte 0x0f, 0x1f, 0x44, 0x00, 0x00\n\tpush %rbp\n\txor %eax, %eax\n\tpop %rbp\n\tret\n"
	".size cuInit, . - cuInit\n");
#else
int cuInit(unsigned int flags)
{
	return flags;
}
#endif
