#include <errno.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Written in Go: reads n bytes at off of the file into buf and gives their number,
   -1 for an error, or -2 if they are in the file by now, or it isn't one of the
   package's. */
extern int64_t firnLazyRead(uint64_t dev, uint64_t ino, void *buf, int64_t n, int64_t off);

static atomic_int files;

void firn_lazy_files(int change) { atomic_fetch_add(&files, change); }

/* Stands in for the C library's function in this program. */
ssize_t pread(int fd, void *buf, size_t n, off_t off) {
	struct stat st;
	if (atomic_load(&files) > 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && (st.st_mode & S_ISVTX)) {
		int64_t got = firnLazyRead(st.st_dev, st.st_ino, buf, (int64_t)n, off);
		if (got >= 0) {
			return got;
		}
		if (got == -1) {
			errno = EIO;
			return -1;
		}
	}
	return syscall(SYS_pread64, fd, buf, n, off);
}
