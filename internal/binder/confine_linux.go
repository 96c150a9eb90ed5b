package binder

/*
#define _GNU_SOURCE
#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>

// What the process has given up, and the error number of what it couldn't.
static int firn_privileges = -1, firn_limits = -1, firn_calls = -1;

#if defined(__x86_64__)
#define FIRN_ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define FIRN_ARCH AUDIT_ARCH_AARCH64
#endif

#ifdef FIRN_ARCH
// firn_refused are the system calls that reach files, other machines or other
// processes. Reading, writing and mapping what is open already is left.
static const unsigned int firn_refused[] = {
	__NR_openat, __NR_execve, __NR_execveat, __NR_socket, __NR_socketpair, __NR_connect, __NR_bind, __NR_listen, __NR_accept, __NR_accept4,
	__NR_sendto, __NR_sendmsg, __NR_sendmmsg, __NR_ptrace, __NR_process_vm_readv, __NR_process_vm_writev, __NR_unlinkat, __NR_mkdirat, __NR_mknodat,
	__NR_renameat2, __NR_linkat, __NR_symlinkat, __NR_truncate, __NR_ftruncate, __NR_fallocate, __NR_fchmod, __NR_fchmodat, __NR_fchown, __NR_fchownat,
	__NR_utimensat, __NR_setxattr, __NR_lsetxattr, __NR_fsetxattr, __NR_removexattr, __NR_mount, __NR_umount2, __NR_chroot, __NR_pivot_root, __NR_unshare, __NR_setns,
	__NR_bpf, __NR_perf_event_open, __NR_userfaultfd, __NR_keyctl, __NR_add_key, __NR_request_key, __NR_init_module, __NR_finit_module, __NR_kexec_load,
	__NR_open_by_handle_at, __NR_name_to_handle_at, __NR_memfd_create, __NR_shmget, __NR_shmat, __NR_msgget, __NR_semget, __NR_mq_open, __NR_inotify_init1,
	__NR_fanotify_init, __NR_swapon, __NR_acct, __NR_quotactl, __NR_reboot, __NR_prlimit64, __NR_faccessat, __NR_readlinkat,
#ifdef __NR_open
	__NR_access, __NR_stat, __NR_lstat, __NR_readlink, __NR_open, __NR_creat, __NR_unlink, __NR_rmdir, __NR_mkdir, __NR_mknod, __NR_rename, __NR_renameat, __NR_link, __NR_symlink, __NR_chmod, __NR_chown, __NR_lchown,
	__NR_utime, __NR_utimes, __NR_futimesat, __NR_fork, __NR_vfork, __NR_inotify_init,
#endif
#ifdef __NR_faccessat2
	__NR_faccessat2,
#endif
#ifdef __NR_openat2
	__NR_openat2,
#endif
#ifdef __NR_io_uring_setup
	__NR_io_uring_setup, __NR_io_uring_enter, __NR_io_uring_register,
#endif
#ifdef __NR_pidfd_getfd
	__NR_pidfd_open, __NR_pidfd_getfd,
#endif
#ifdef __NR_landlock_create_ruleset
	__NR_open_tree, __NR_move_mount, __NR_fsopen,
#endif
};

enum { firn_count = sizeof firn_refused / sizeof firn_refused[0] };

static int firn_filter(void) {
	static struct sock_filter code[8 + firn_count + 4];
	unsigned short n = 0;
	code[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch));
	code[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, FIRN_ARCH, 1, 0);
	code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
	code[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
#if defined(__x86_64__)
	// The calls of the x32 ABI have the same numbers above this bit.
	code[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, 0x40000000u, 0, 1);
	code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
#endif
	for (unsigned short i = 0; i < firn_count; i++)
		code[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, firn_refused[i], (unsigned char)(firn_count - i), 0);
	code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EACCES);
	struct sock_fprog program = {n, code};
	return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0 ? 0 : errno;
}
#endif

static int firn_limit(int what, rlim_t most) {
	struct rlimit l = {most, most};
	return setrlimit(what, &l) == 0 ? 0 : errno;
}

// It runs before Go does, while the process has one thread, so that what it gives
// up is given up for all. Only a process that was started as a helper does.
__attribute__((constructor)) static void firn_confine(int argc, char **argv) {
	if (argc < 2 || strcmp(argv[1], "binding-helper") != 0)
		return;
#ifdef __NR_close_range
	syscall(__NR_close_range, 3u, ~0u, 0u);
#endif
	firn_privileges = prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) == 0 ? 0 : errno;
	firn_limits = firn_limit(RLIMIT_CORE, 0);
	if (firn_limits == 0)
		firn_limits = firn_limit(RLIMIT_FSIZE, 0);
	if (firn_limits == 0)
		firn_limits = firn_limit(RLIMIT_NOFILE, 64);
	if (firn_limits == 0)
		firn_limits = firn_limit(RLIMIT_AS, (rlim_t)16 << 30);
	if (firn_limits == 0)
		firn_limits = firn_limit(RLIMIT_DATA, (rlim_t)4 << 30);
#ifdef FIRN_ARCH
	if (firn_privileges == 0)
		firn_calls = firn_filter();
#endif
}

static int firn_given_up_privileges(void) { return firn_privileges; }
static int firn_given_up_limits(void) { return firn_limits; }
static int firn_given_up_calls(void) { return firn_calls; }
*/
import "C"

import (
	"fmt"
	"strings"
	"syscall"
)

// confinement says what the helper couldn't give up, empty if it gave up all: the
// right to gain rights, memory and files beyond limits, and the system calls that
// reach files, other machines or other processes. It happened before Go started;
// see the C part.
func confinement() string {
	var missing []string
	for what, code := range map[string]C.int{
		"privileges": C.firn_given_up_privileges(), "resource limits": C.firn_given_up_limits(), "system calls": C.firn_given_up_calls(),
	} {
		if code != 0 {
			missing = append(missing, fmt.Sprintf("%s (%s)", what, reason(int(code))))
		}
	}
	return strings.Join(missing, ", ")
}

func reason(code int) string {
	if code < 0 {
		return "not tried"
	}
	return syscall.Errno(code).Error()
}
