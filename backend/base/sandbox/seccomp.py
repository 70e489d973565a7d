"""Allowlists of the system calls that sandboxed processes may make, for libseccomp."""

import errno
import os
import socket
from collections.abc import Iterable
from typing import Any

# fmt: off
COMPUTE_CALLS = [
    "access", "arch_prctl", "brk", "clock_getres", "clock_gettime", "clock_nanosleep", "close",
    "close_range", "dup", "dup2", "dup3", "epoll_create1", "epoll_ctl", "epoll_pwait", "epoll_wait",
    "eventfd2", "exit", "exit_group", "faccessat", "faccessat2", "fadvise64", "fcntl", "fstat", "fstatfs",
    "futex", "getcpu", "getcwd", "getdents64", "getegid", "geteuid", "getgid", "getgroups", "getitimer",
    "getpgrp", "getpid", "getppid", "getrandom", "getresgid", "getresuid", "getrlimit", "getrusage",
    "getsid", "gettid", "gettimeofday", "getuid", "ioctl", "lseek", "lstat", "madvise", "membarrier",
    "mincore", "mlock", "mmap", "mprotect", "mremap", "munlock", "munmap", "nanosleep", "newfstatat",
    "pipe", "pipe2", "poll", "ppoll", "pread64", "preadv", "pselect6", "pwrite64", "read", "readlink",
    "readlinkat", "readv", "restart_syscall", "rseq", "rt_sigaction", "rt_sigpending", "rt_sigprocmask",
    "rt_sigreturn", "rt_sigsuspend", "rt_sigtimedwait", "sched_get_priority_max", "sched_get_priority_min",
    "sched_getaffinity", "sched_getparam", "sched_getscheduler", "sched_yield", "select", "set_robust_list",
    "set_tid_address", "setitimer", "sigaltstack", "stat", "statfs", "statx", "sysinfo", "time",
    "timerfd_create", "timerfd_settime", "times", "uname", "write", "writev",
]
"""Calls for reading, memory, time and process information. `_allow_only` adds calls with conditions."""

LIMIT_CALLS = ["prctl", "seccomp", "setrlimit"]
"""Calls with which a process adds restrictions to itself."""

PROCESS_CALLS = [
    "clone", "execve", "execveat", "fork", "kill", "setpgid", "setsid", "tgkill", "tkill", "vfork", "wait4",
    "waitid",
]

WRITE_CALLS = [
    "fallocate", "fdatasync", "fsync", "ftruncate", "link", "linkat", "mkdir", "mkdirat", "rename",
    "renameat", "renameat2", "rmdir", "symlink", "symlinkat", "truncate", "umask", "unlink", "unlinkat",
]

MODE_CALLS = ["chmod", "fchmod", "fchmodat", "utimensat"]
"""Calls that Landlock does not restrict, allowed only if the process sees no files of other users."""

EVENT_LOOP_CALLS = ["recvfrom", "sendto"]
"""Calls that an event loop needs for its pair of connected stream sockets, which reach nothing else."""

NETWORK_CALLS = [
    "accept", "accept4", "bind", "connect", "getpeername", "getsockname", "getsockopt", "listen",
    "recvfrom", "recvmmsg", "recvmsg", "sendmmsg", "sendmsg", "sendto", "setsockopt", "shutdown", "socket",
    "socketpair",
]

# fmt: on
CLONE_THREAD = 0x10000
SOCKET_TYPE_MASK = 0xF
"""Mask for the type of a socket. Only stream sockets are allowed: a datagram socket can send to any name."""
WRITE_FLAGS = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC


def parent_filter(*, network: bool) -> Any:
    """Return the filter of the warm parent, which also allows it to start and kill its forks."""
    return _allow_only(
        [
            *COMPUTE_CALLS,
            *LIMIT_CALLS,
            *PROCESS_CALLS,
            *WRITE_CALLS,
            *MODE_CALLS,
            *EVENT_LOOP_CALLS,
            *(NETWORK_CALLS * network),
        ],
        opens_for_writing=True,
        has_event_loop=True,
    )


def fork_filter(*, processes: bool, may_write: bool, network: bool, sees_own_files_only: bool) -> Any:
    """Return the filter of a fork, which computes one answer."""
    optional_calls = [
        *(LIMIT_CALLS + PROCESS_CALLS) * processes,
        *(WRITE_CALLS * may_write),
        *(NETWORK_CALLS * network),
    ]
    optional_calls += MODE_CALLS * (may_write and sees_own_files_only)
    optional_calls += EVENT_LOOP_CALLS * may_write
    return _allow_only(
        [*COMPUTE_CALLS, *optional_calls], opens_for_writing=may_write, has_event_loop=may_write
    )


def _allow_only(names: Iterable[str], *, opens_for_writing: bool, has_event_loop: bool) -> Any:
    """Return a filter that permits these calls. All other calls fail with EPERM."""
    import pyseccomp as libseccomp

    rules = libseccomp.SyscallFilter(libseccomp.ERRNO(errno.EPERM))
    for name in names:
        _add(rules, libseccomp.ALLOW, name)
    # The C library tries clone3 first and falls back to clone, whose flags a filter can inspect.
    _add(rules, libseccomp.ERRNO(errno.ENOSYS), "clone3")
    thread = libseccomp.Arg(0, libseccomp.MASKED_EQ, CLONE_THREAD, CLONE_THREAD)
    if "clone" not in names:
        _add(rules, libseccomp.ALLOW, "clone", thread)
    if has_event_loop and "socketpair" not in names:
        local = libseccomp.Arg(0, libseccomp.EQ, socket.AF_UNIX)
        stream = libseccomp.Arg(1, libseccomp.MASKED_EQ, SOCKET_TYPE_MASK, socket.SOCK_STREAM)
        _add(rules, libseccomp.ALLOW, "socketpair", local, stream)
    # only the limits of the process itself
    _add(rules, libseccomp.ALLOW, "prlimit64", libseccomp.Arg(0, libseccomp.EQ, 0))
    for name, flags in (("open", 1), ("openat", 2)):
        read_only_condition = libseccomp.Arg(flags, libseccomp.MASKED_EQ, WRITE_FLAGS, os.O_RDONLY)
        _add(rules, libseccomp.ALLOW, name, *([] if opens_for_writing else [read_only_condition]))
    return rules


def _add(rules: Any, action: int, name: str, *arguments: Any) -> None:
    """Add a rule, unless the processor's architecture lacks the call."""
    try:
        rules.add_rule(action, name, *arguments)
    except (OSError, ValueError) as error:
        if getattr(error, "errno", None) not in (None, errno.EINVAL, errno.EFAULT, errno.EDOM):
            raise
